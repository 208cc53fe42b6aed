"""The journal: what a process that dies leaves written, and what it does not."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipeline.bucket import Bucket
from pipeline.item import Coordinates, Item
from pipeline.journal import REGION_BYTES, Entry, Journal, Stage, read_journal
from tests.builders import an_item

# Newer Pythons warn of forks beside other threads; the child here only writes and dies.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "1.journal")


def items(*offsets: int) -> list[Item]:
    return [an_item(f"cam{offset}", offset, partition=offset % 3) for offset in offsets]


def inside(journal: Journal) -> dict[Stage, list[int]]:
    return {
        entry.stage: [at.offset for at in entry.records] for entry in read_journal(journal.path)
    }


def test_who_is_inside_stands_there_until_they_leave(journal: Journal) -> None:
    assert inside(journal) == {}
    journal.enter(Stage.DECODE, items(4, 5))
    journal.enter(Stage.INFER, items(1, 2, 3))
    assert inside(journal) == {Stage.DECODE: [4, 5], Stage.INFER: [1, 2, 3]}
    journal.leave(Stage.DECODE)
    journal.enter(Stage.POST, items(0))
    assert inside(journal) == {Stage.INFER: [1, 2, 3], Stage.POST: [0]}
    journal.leave(Stage.INFER)
    journal.leave(Stage.POST)
    assert inside(journal) == {}


def test_an_entry_says_where_when_and_whether_it_hung(journal: Journal) -> None:
    journal.enter(Stage.DECODE, items(4, 5))
    journal.enter(Stage.POST, items(6))
    journal.mark_hung(Stage.DECODE)
    decode, post = read_journal(journal.path)
    assert decode.records == (Coordinates("frames", 1, 4), Coordinates("frames", 2, 5))
    assert (decode.hung, post.hung) == (True, False)
    assert 0 <= post.since_us - decode.since_us < 60_000_000
    journal.enter(Stage.DECODE, items(7))
    assert not read_journal(journal.path)[0].hung, "the mark belongs to the call before"


def test_the_largest_batch_with_the_longest_names_and_numbers_fits(journal: Journal) -> None:
    bucket = Bucket("b", 1 << 40, 32, 32, 1024)
    large = [an_item(bucket=bucket, seq=2**63 - 1 - n, partition=2**31 - 1) for n in range(1024)]
    places = [Coordinates("t" * 249, 2**31 - 1, item.coordinates.offset) for item in large]
    large = [replace(item, coordinates=at) for item, at in zip(large, places, strict=True)]
    journal.enter(Stage.INFER, large)
    assert read_journal(journal.path)[0].records == tuple(item.coordinates for item in large)
    more = [an_item(seq=2**63 - 1 - n, partition=2**31 - 1) for n in range(3 * 1024)]
    with pytest.raises(ValueError, match="do not fit"):
        journal.enter(Stage.INFER, more)


def test_a_record_with_several_frames_inside_is_there_once(journal: Journal) -> None:
    journal.enter(Stage.DECODE, [an_item(seq=7), an_item(seq=8), an_item(seq=7)])
    assert [at.offset for at in read_journal(journal.path)[0].records] == [7, 8]


def test_the_entry_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "dead.journal"
    pid = os.fork()
    if pid == 0:
        Journal(path).enter(Stage.DECODE, items(8, 9))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert [at.offset for at in read_journal(path)[0].records] == [8, 9]


def test_closing_removes_the_file(journal: Journal) -> None:
    journal.close()
    journal.close()
    assert not journal.path.exists()


@given(st.data())
def test_a_torn_or_foreign_file_never_names_a_wrong_record(data: st.DataObject) -> None:
    """Whatever a crash or a disk did to single bytes: an entry is whole or it is not there."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")  # noqa: S108 (a file system in memory)
    path = folder / f"frameloom-test-{os.getpid()}.journal"
    journal = Journal(path)
    try:
        journal.enter(Stage.DECODE, items(1, 2))
        journal.enter(Stage.POST, items(3))
        whole = {entry.records for entry in read_journal(path)}
        content = bytearray(path.read_bytes())
        regions = (0, 64, 64 + 2 * REGION_BYTES)
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.sampled_from(regions)) + data.draw(st.integers(0, 60))
            content[at] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        found: list[Entry] = read_journal(path)
        assert {entry.records for entry in found} <= whole
    finally:
        journal.close()


@pytest.mark.parametrize("content", [b"", b"x", b"flnative", b"\0" * 100_000])
def test_what_is_no_journal_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.journal"
    path.write_bytes(content)
    assert read_journal(path) == []


def test_a_full_disk_is_met_when_the_journal_is_made(journal: Journal) -> None:
    seen = journal.path.stat()
    assert seen.st_blocks * 512 >= seen.st_size, "a hole would be filled, or not, inside a batch"


def test_what_cannot_be_written_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(OSError, match="No space left"):
        Journal(tmp_path / "one.journal")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_two_processes_never_share_a_file(journal: Journal) -> None:
    with pytest.raises(FileExistsError):
        Journal(journal.path)
