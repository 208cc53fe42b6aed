"""A cache that several workers of a machine share."""

from __future__ import annotations

import threading
from pathlib import Path

from pipeline.model_cache import Choice, ModelCache


def test_who_makes_a_file_is_alone_and_the_others_find_it(tmp_path: Path) -> None:
    """Locks belong to open files, so threads stand for processes here."""
    made, found = list[int](), list[int]()
    file = tmp_path / "model.onnx"

    def start(number: int) -> None:
        cache = ModelCache(tmp_path)
        with cache.making(file.name):
            if file.exists():
                found.append(number)
            else:
                file.write_bytes(b"weights")
                made.append(number)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert (len(made), len(found)) == (1, 3)


def test_what_one_worker_chose_another_finds(tmp_path: Path) -> None:
    ModelCache(tmp_path).keep("key", Choice(backend="onnx"))
    assert ModelCache(tmp_path).choice("key") == Choice(backend="onnx", cached=True)
    assert ModelCache(tmp_path).choice("other") is None
