"""A real worker, of a CONFIG file as its argument, whose decoder breaks on marked pictures.

A picture with `CRASH` in its bytes makes the decoder read address 0, one with `HANG` never lets it
return, one with `STUCK` never lets it return and keeps the interpreter, too, as a native call may.
A segment of video with `CRASH` in its bytes does the same to its reader, after two good frames.
Model and post-processor are fakes, which need no weights. Where a file of `Turns` lies beside
CONFIG, it starts when its turn has come.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from pipeline.decoders import make_decoder
from pipeline.item import Item
from pipeline.ports import Decoder, Lane
from pipeline.segment import SegmentFrame
from pipeline.segment_reader import PyAvReader
from schemas.errors import PoisonError
from schemas.settings import Settings, load_settings
from tests.fakes.lane import a_lane
from workers.detect import Loaded, run_worker

CRASH, HANG, STUCK = b"crash the decoder", b"hang the decoder", b"hang it with the lock"


# Not a worker itself: a supervisor is small and stays so.
_SUPERVISE = """
import sys
from frameloom.supervise import supervise
from schemas.settings import LogSettings
worker = [sys.executable, "-m", "tests.fakes.hostile_worker", sys.argv[1]]
sys.exit(supervise(worker, LogSettings()))
"""


def supervised(config: Path) -> list[str]:
    """The command for this worker under a supervisor, as `frameloom worker --restart` has it."""
    return [sys.executable, "-c", _SUPERVISE, str(config)]


class Turns:
    """How many workers in a row may start, so that there is time to look between two of them.

    Args:
        folder: where their configuration lies.
    """

    def __init__(self, folder: Path) -> None:
        self._allowed = folder / "turns"
        self._started = folder / "turns-taken"

    def allow(self, number: int) -> None:
        """So many in all."""
        new = self._allowed.with_suffix(".new")
        new.write_text(str(number))
        new.replace(self._allowed)

    def take(self) -> None:
        """Wait for one's own turn; in a new worker's process, of which there is one at a time."""
        if not self._allowed.exists():
            return
        with self._started.open("a") as taken:
            taken.write(".")
        number = self._started.stat().st_size
        while int(self._allowed.read_text()) < number:
            time.sleep(0.02)


class HostileDecoder:
    """Decodes what is not marked."""

    name = "hostile"

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        for item in items:
            data = bytes(item.frame.data)
            if CRASH in data:
                ctypes.string_at(0)
            if HANG in data:
                threading.Event().wait()
            if STUCK in data:
                # Through PyDLL the call keeps the interpreter's lock.
                ctypes.PyDLL(None).pause()
        return self._decoder.decode(items, out)

    def close(self) -> None:
        self._decoder.close()


def _break_segments() -> None:
    step = PyAvReader.step

    def hostile_step(reader: PyAvReader) -> SegmentFrame | None:
        if reader._frames > 2 and CRASH in bytes(reader._segment.data):
            ctypes.string_at(0)
        return step(reader)

    PyAvReader.step = hostile_step


def load(settings: Settings) -> Loaded:
    """A lane per route without weights."""
    _break_segments()
    lanes: dict[str, Lane] = {}
    for route in settings.routes:
        decoder = HostileDecoder(make_decoder("opencv", threads=1, device="cpu"))
        lanes[route.name] = dataclasses.replace(a_lane(), decoder=decoder)
    return Loaded(lanes, "cpu")


if __name__ == "__main__":
    Turns(Path(sys.argv[1]).parent).take()
    sys.exit(run_worker(load_settings(sys.argv[1]), load))
