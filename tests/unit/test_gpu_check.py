"""The GPU check on a machine without a GPU: it says so, and its rehearsal runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench import gpu_check
from bench.gpu_check import EXIT_FAILED, EXIT_NO_GPU, EXIT_OK, device_of, main
from bench.gpu_check_rows import Row, at_least, at_most, holds, skipped, table
from bench.gpu_check_truth import Comparison, Limits
from schemas.result import Detection

REHEARSAL = ["--device", "cpu", "--quick", "--no-truth"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == EXIT_NO_GPU
    assert "no GPU" in capsys.readouterr().err


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["--seconds", "soon"])
    assert exit_of.value.code == 2
    assert "--seconds" in capsys.readouterr().err


def test_a_gpu_has_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert device_of("cuda") == torch.device("cuda", 0)
    assert device_of("cuda:3") == torch.device("cuda", 3)
    assert device_of("cpu") == torch.device("cpu")
    with pytest.raises(SystemExit) as exit_of:
        main(["--device", "tpu"])
    assert exit_of.value.code == 2
    assert "one of cuda, cuda:N, cpu" in capsys.readouterr().err


def test_the_rehearsal_runs_the_engine_on_the_cuda_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    assert main([*REHEARSAL, "--json", str(tmp_path / "rows.json")]) == EXIT_OK
    assert torch.get_num_threads() == threads
    rows = json.loads((tmp_path / "rows.json").read_text())
    answered = next(row for row in rows if row["name"] == "frames answered")
    assert answered["value"] > 0
    assert not [row for row in rows if row["passed"] is False]
    printed = capsys.readouterr().out
    assert "| machine | device | no GPU: a rehearsal |" in printed
    assert "not checked: needs a GPU" in printed


def test_a_section_that_breaks_off_fails_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[Row]:
        yield at_most("first", "a figure", 1.0, 2.0)
        raise ValueError("of | many\nwords")

    def sections(*_: object) -> Iterator[object]:
        yield "first", broken
        yield "second", lambda: [at_least("second", "a figure", 3.0, 4.0)]

    monkeypatch.setattr(gpu_check, "_sections", sections)
    assert main(REHEARSAL) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert "| first | a figure | 1 | ≤ 2 | ok |" in printed
    assert "| first | ran to its end | no: ValueError: of / many words | yes | FAILED |" in printed
    assert "| second | a figure | 3 | ≥ 4 | FAILED |" in printed
    assert "2 failed, 1 passed" in printed


def test_rows_are_shown_as_people_read_them() -> None:
    shown = table(
        [
            Row("s", "large", 12345.6, "img/s"),
            Row("s", "small", 0.00001),
            holds("s", "it", passed=True),
            skipped("s", "that", "no time"),
        ]
    )
    assert "| s | large | 12,346 img/s |  |  |" in shown
    assert "| s | small | 1.0e-05 |  |  |" in shown
    assert "| s | it | yes | yes | ok |" in shown
    assert "| s | that | not checked: no time |  |  |" in shown


def box(x: float, score: float, class_id: int = 0) -> Detection:
    return Detection((x, 0.0, x + 10.0, 10.0), score, class_id, "thing")


def rows_of(expected: list[Detection], found: list[Detection]) -> dict[str, Row]:
    comparison = Comparison(Limits(iou=0.9, score=0.05))
    comparison.add(expected, found)
    return {row.name: row for row in comparison.rows("parity", "it")}


def test_boxes_are_compared_with_their_own() -> None:
    rows = rows_of([box(0, 0.9), box(50, 0.8)], [box(50.5, 0.82), box(0, 0.9)])
    assert rows["boxes compared with it"].value == 2
    assert rows["boxes that only one side has"].value == 0
    assert rows["least overlap"].value == pytest.approx(9.5 / 10.5)
    assert rows["largest difference of scores"].value == pytest.approx(0.02)
    assert all(row.passed for row in rows.values())


def test_a_box_of_one_side_counts_unless_it_is_a_close_call() -> None:
    rows = rows_of([box(0, 0.9), box(50, 0.29)], [box(0, 0.9), box(80, 0.27), box(90, 0.5)])
    assert rows["boxes that only one side has"].value == 1
    assert not rows["boxes that only one side has"].passed
    assert rows_of([box(0, 0.9)], [box(0, 0.9, 1)])["boxes that only one side has"].value == 2
    assert not rows_of([], [])["boxes compared with it"].passed
