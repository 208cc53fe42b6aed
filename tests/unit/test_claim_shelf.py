"""Pictures kept for workers: what the producer's claim says, the worker's rules find."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest

from frameloom.claim_shelf import ClaimShelf
from frameloom.cli import main
from pipeline.claim_rules import ClaimRules
from schemas.claim_uri import UriError
from schemas.codec import read_frame, write_json_frame
from schemas.frame import Encoding
from schemas.record import RawRecord
from schemas.settings import LimitSettings
from tests.fakes.office import a_claim_record
from tests.fakes.outlet import a_frame, an_outlet
from workers.claim_files import read_file

DATA = b"\xff\xd8\xff" * 10


def test_what_is_kept_is_what_a_worker_fetches(tmp_path: Path) -> None:
    shelf = ClaimShelf.at(tmp_path / "a b", None)
    claim = shelf.put(DATA, Encoding.JPEG)
    assert shelf.put(DATA, Encoding.JPEG) == claim
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (DATA, 0o644)
    rules = ClaimRules.of([(tmp_path / "a b").as_uri()], 1_000)
    got = read_file(rules.check(claim), claim, rules.prefixes, until_at=1e12)
    assert bytes(got) == DATA


def test_workers_may_see_the_folder_elsewhere(tmp_path: Path) -> None:
    shelf = ClaimShelf.at(tmp_path, "https://store.example/frames/")
    claim = shelf.put(DATA, Encoding.PNG)
    assert claim.uri.startswith("https://store.example/frames/")
    assert claim.uri.endswith(f"/{claim.sha256}.png")
    ClaimRules.of(["https://store.example/frames"], 1_000).check(claim)
    with pytest.raises(UriError):
        ClaimShelf.at(tmp_path, "ftp://store")


async def test_records_name_what_is_kept(tmp_path: Path) -> None:
    outlet, producer, sender = an_outlet(live=False, shelf=ClaimShelf.at(tmp_path, None))
    sent: list[bytes] = []
    plain = producer.send

    async def remember(topic: str, value: bytes, **rest: object):
        sent.append(value)
        return await plain(topic, value, **rest)

    producer.send = remember
    await outlet.send(0, a_frame(), 0)
    keys = msgpack.unpackb(sent[0])
    assert "data" not in keys
    assert keys["length"] == len(DATA)
    assert keys["uri"].startswith(tmp_path.as_uri())
    producer.waiting[0].set_result(None)
    await sender.settle(10.0)

    (tmp_path / keys["sha256"][:2]).rename(tmp_path / "away")
    (tmp_path / keys["sha256"][:2]).write_text("in the way")
    await outlet.send(1, a_frame(), 0)
    assert (sender.tally.sent, sender.tally.failed) == (1, 1)


def test_json_frames_may_claim(tmp_path: Path) -> None:
    frame = read_frame(a_claim_record(3), LimitSettings())
    text = write_json_frame(frame)
    assert "data" not in json.loads(text)
    again = read_frame(RawRecord("in", 0, 3, b"cam", text, 0), LimitSettings())
    assert again.claim == frame.claim


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--claim-url", "https://h/"], "goes with --claim-dir"),
        (["--claim-dir", "DIR", "--bare"], "cannot be claimed"),
        (["--claim-dir", "DIR", "--claim-url", "ftp://h/"], "--claim-url ftp://h/"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [str(tmp_path / "d") if each == "DIR" else each for each in options]
    assert main(["produce", "x.jpg", "-t", "frames", *chosen]) == 2
    assert words in capsys.readouterr().err
