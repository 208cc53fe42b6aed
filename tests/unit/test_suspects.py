"""The files of suspects: adoption of what dead workers left, locks, clearing, staleness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pipeline.item import Coordinates
from pipeline.journal import Stage
from pipeline.suspect import Death
from schemas.errors import ConfigError
from schemas.settings import KafkaSettings, LifecycleSettings, Settings
from tests.builders import an_item
from workers.logs import get_log
from workers.suspects import KEPT_US, OwnFiles, SuspectFolder, Suspects, journal_folder

# Newer Pythons warn of forks beside other threads; the children here only write and die.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LOG = get_log("test")


def at(offset: int, partition: int = 0) -> Coordinates:
    return Coordinates("frames", partition, offset)


@pytest.fixture
def folder(tmp_path: Path) -> SuspectFolder:
    return SuspectFolder(tmp_path / "group", LOG)


def a_dead_worker(folder: SuspectFolder, work: Callable[[OwnFiles], None]) -> None:
    """A process that does `work` with files of its own and is killed in the middle."""
    pid = os.fork()
    if pid == 0:
        try:
            work(folder.open_journal())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_journal_of_a_fleet_is_named_after_its_device_and_adopted_by_any(
    folder: SuspectFolder,
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            decoding(3)(folder.open_journal("cuda:1"))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (journal,) = folder.path.glob("*.journal")
    assert journal.name.startswith(f"cuda-1-{pid}-")
    assert set(folder.adopt()) == {at(3)}
    assert not journal.exists()


def decoding(*offsets: int) -> Callable[[OwnFiles], None]:
    return lambda files: files.journal.enter(Stage.DECODE, [an_item(seq=n) for n in offsets])


def test_a_killed_worker_leaves_those_inside_as_suspects(folder: SuspectFolder) -> None:
    a_dead_worker(folder, decoding(3, 4))
    known = folder.adopt()
    assert {where: (s.death, s.stage, s.deaths) for where, s in known.items()} == {
        at(3): (Death.KILLED, "decode", 1),
        at(4): (Death.KILLED, "decode", 1),
    }
    assert not list(folder.path.glob("*.journal"))
    assert folder.adopt() == known, "adopted once, held for all"


def test_one_death_counts_once_for_a_segment_inside_two_stages(folder: SuspectFolder) -> None:
    def reading_on(files: OwnFiles) -> None:
        files.journal.enter(Stage.DECODE, [an_item(seq=3), an_item(seq=3), an_item(seq=4)])
        files.journal.enter(Stage.SEGMENT, [an_item(seq=3)])

    a_dead_worker(folder, reading_on)
    known = folder.adopt()
    assert {where.offset: suspect.deaths for where, suspect in known.items()} == {3: 1, 4: 1}


def test_a_second_death_adds_to_the_first(folder: SuspectFolder) -> None:
    a_dead_worker(folder, decoding(3, 4))
    folder.adopt()
    a_dead_worker(folder, decoding(4))
    known = folder.adopt()
    assert {where.offset: suspect.deaths for where, suspect in known.items()} == {3: 1, 4: 2}


def test_a_living_worker_is_left_alone(folder: SuspectFolder) -> None:
    alive = folder.open_journal()
    decoding(5)(alive)
    other = SuspectFolder(folder.path, LOG)
    assert other.adopt() == {}
    assert alive.journal.path.exists()
    alive.close()
    assert other.adopt() == {}


def test_an_orderly_end_leaves_nothing(folder: SuspectFolder) -> None:
    files = folder.open_journal()
    decoding(5)(files)
    files.close()
    files.close()
    assert sorted(path.name for path in folder.path.iterdir()) == ["lock"]


CRASHES = """
import ctypes, sys
from pathlib import Path
from pipeline.journal import Stage
from tests.builders import an_item
from workers.logs import get_log
from workers.suspects import SuspectFolder
files = SuspectFolder(Path(sys.argv[1]), get_log("test")).open_journal()
files.catch_crashes()
files.journal.enter(Stage.INFER, [an_item(seq=6)])
if sys.argv[2] == "crash":
    ctypes.string_at(0)
files.exit_when_stuck(0.2)
ctypes.PyDLL(None).pause()
"""


@pytest.mark.parametrize(
    ("way", "code", "death"),
    [("crash", -signal.SIGSEGV, Death.CRASH), ("stuck", 1, Death.HANG)],
)
def test_a_crash_is_told_from_a_call_that_hangs_with_the_interpreter(
    folder: SuspectFolder, way: str, code: int, death: Death
) -> None:
    command = [sys.executable, "-c", CRASHES, str(folder.path), way]
    assert subprocess.run(command, check=False, timeout=600).returncode == code
    (suspect,) = folder.adopt().values()
    assert (suspect.at.offset, suspect.stage, suspect.death) == (6, "infer", death)
    assert not list(folder.path.glob("*-*")), "its traces are gone too"


def test_of_a_hang_only_the_call_that_hung_is_suspected(folder: SuspectFolder) -> None:
    def work(files: OwnFiles) -> None:
        files.journal.enter(Stage.DECODE, [an_item(seq=1)])
        files.journal.enter(Stage.INFER, [an_item(seq=2)])
        files.journal.mark_hung(Stage.INFER)

    a_dead_worker(folder, work)
    (suspect,) = folder.adopt().values()
    assert (suspect.at.offset, suspect.death) == (2, Death.HANG)


def test_suspicion_ends(folder: SuspectFolder) -> None:
    a_dead_worker(folder, decoding(1, 2, 3, 4))
    suspects = Suspects(folder)
    assert suspects.count == 0
    suspects.refresh()
    suspects.acquit(at(2))
    suspects.acquit(at(99))
    suspects.committed(("frames", 1), 100)
    suspects.committed(("frames", 0), 3)
    assert suspects.find(at(3)) is None or suspects.count == 2
    assert [offset for offset in range(6) if suspects.find(at(offset))] == [3, 4]
    other = Suspects(SuspectFolder(folder.path, LOG))
    other.refresh()
    assert other.count == 2, "for every worker of the group here"


def test_old_suspicion_is_forgotten(folder: SuspectFolder) -> None:
    a_dead_worker(folder, decoding(1))
    noted_us = folder.adopt()[at(1)].noted_us
    later = SuspectFolder(folder.path, LOG, now_us=lambda: noted_us + KEPT_US + 1)
    assert later.adopt() == {}


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x91\x01", b"suspects"])
def test_a_damaged_file_of_suspects_suspects_nobody(folder: SuspectFolder, content: bytes) -> None:
    (folder.path / "suspects").write_bytes(content)
    assert folder.adopt() == {}
    a_dead_worker(folder, decoding(1))
    assert list(folder.adopt()) == [at(1)]


def test_a_damaged_journal_is_cleared_away(folder: SuspectFolder) -> None:
    (folder.path / "1-1.journal").write_bytes(b"torn")
    assert folder.adopt() == {}
    assert not list(folder.path.glob("*.journal"))


def test_without_a_folder_nobody_is_suspected() -> None:
    suspects = Suspects()
    suspects.refresh()
    suspects.acquit(at(1))
    suspects.committed(("frames", 0), 9)
    assert suspects.find(at(1)) is None


def test_the_folder_belongs_to_one_group_on_one_broker(tmp_path: Path) -> None:
    def of(group: str, broker: str = "a:9092") -> Path:
        kafka = KafkaSettings(bootstrap_servers=broker, group_id=group)
        return journal_folder(
            Settings(kafka=kafka, lifecycle=LifecycleSettings(journal_dir=str(tmp_path)))
        )

    assert of("g") == of("g")
    assert len({of("g"), of("h"), of("g", "b:9092"), of("../g"), of("_._g")}) == 5
    assert all(path.parent == tmp_path for path in (of("g"), of("../../etc/g"), of("x" * 249)))
    assert journal_folder(Settings()).parent.name == f"frameloom-{os.getuid()}"


def test_a_folder_that_cannot_be_used_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="journal_dir"):
        SuspectFolder(tmp_path / "file" / "group", LOG)


def test_suspects_keep_their_form_on_file(folder: SuspectFolder) -> None:
    a_dead_worker(folder, decoding(1))
    folder.adopt()
    (plain,) = msgspec.msgpack.decode((folder.path / "suspects").read_bytes())
    assert plain["at"] == {"topic": "frames", "partition": 0, "offset": 1}
    assert (plain["death"], plain["faults"], plain["kills"]) == ("killed", 0, 1)
