"""The segment thread: steps in order, guarded, and begun anew where memory ran out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import pytest

from pipeline.guard import Unguarded
from pipeline.item import Coordinates
from pipeline.journal import Located, Stage
from pipeline.retry import Backoff
from pipeline.segment import Sampling, SegmentFrame
from pipeline.segment_thread import SegmentOrder, SegmentThread
from schemas.errors import PoisonError, Reason
from schemas.frame import FrameMessage
from tests.builders import a_frame

TIMEOUT_S = 180.0


class ScriptedReader:
    """Gives frames 0 to `frames` - 1, each after a step without one; may run out of memory."""

    def __init__(self, frames: int, hungry_at: list[int]) -> None:
        self.left = list(range(frames))
        self.hungry_at = hungry_at
        self.steps = 0
        self.closed = False

    @property
    def frame_bytes(self) -> int:
        return 100 + (self.left[0] if self.left else 0)

    def step(self) -> SegmentFrame | None:
        self.steps += 1
        if self.steps % 2:
            return None
        if not self.left:
            raise PoisonError(Reason.DECODE_FAILED, "damaged", stage="segment")
        index = self.left[0]
        if index in self.hungry_at:
            self.hungry_at.remove(index)
            raise MemoryError
        del self.left[0]
        return SegmentFrame(index, 0, 1, 1, memoryview(b"rgb"), last=False)

    def close(self) -> None:
        self.closed = True


class ScriptedDecoder:
    name = "scripted"

    def __init__(self, frames: int = 2, hungry_at: Sequence[int] = ()) -> None:
        self.frames = frames
        self.hungry_at = list(hungry_at)
        self.readers: list[ScriptedReader] = []

    def open(self, segment: FrameMessage, sampling: Sampling) -> ScriptedReader:
        self.readers.append(ScriptedReader(self.frames, self.hungry_at))
        return self.readers[-1]


class Recording:
    """A guard that notes who was inside."""

    def __init__(self) -> None:
        self.calls: list[tuple[Stage, list[int]]] = []

    @contextmanager
    def inside(self, stage: Stage, items: Sequence[Located]) -> Generator[None]:
        self.calls.append((stage, [item.coordinates.offset for item in items]))
        yield


def an_order(offset: int = 0) -> SegmentOrder:
    return SegmentOrder(Coordinates("in", 0, offset), a_frame(), Sampling())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.segment_thread.BACKOFF", Backoff(0.001, 0.001, lambda: 0.0))


def test_frames_come_with_the_size_of_the_next_and_then_the_error() -> None:
    decoder, guard = ScriptedDecoder(), Recording()
    thread = SegmentThread(decoder, guard)
    thread.start()
    order = an_order(7)
    assert thread.open(order).result(TIMEOUT_S) == 100
    assert thread.next(order).result(TIMEOUT_S)[0].index == 0
    frame, nbytes = thread.next(order).result(TIMEOUT_S)
    assert (frame.index, nbytes) == (1, 100)
    with pytest.raises(PoisonError):
        thread.next(order).result(TIMEOUT_S)
    thread.close(order).result(TIMEOUT_S)
    assert decoder.readers[0].closed
    assert thread.stop(TIMEOUT_S)
    # Opened, two steps a frame and for the error, closed: each by itself.
    assert guard.calls == [(Stage.SEGMENT, [7])] * 8


def test_where_memory_runs_out_the_segment_is_begun_anew_behind_what_it_gave() -> None:
    decoder = ScriptedDecoder(frames=3, hungry_at=[1, 1])
    thread = SegmentThread(decoder, Unguarded())
    thread.start()
    order = an_order()
    thread.open(order)
    indices = [thread.next(order).result(TIMEOUT_S)[0].index for _ in range(3)]
    assert indices == [0, 1, 2]
    assert [reader.closed for reader in decoder.readers] == [True, True, False]
    thread.stop(TIMEOUT_S)


def test_a_segment_that_never_finds_memory_is_given_up_alone() -> None:
    decoder = ScriptedDecoder(hungry_at=[0] * 4)
    thread = SegmentThread(decoder, Unguarded())
    thread.start()
    order, other = an_order(0), an_order(1)
    thread.open(order)
    with pytest.raises(PoisonError) as caught:
        thread.next(order).result(TIMEOUT_S)
    assert caught.value.code is Reason.INTERNAL_ERROR
    thread.open(other)
    assert thread.next(other).result(TIMEOUT_S)[0].index == 0
    thread.stop(TIMEOUT_S)


def test_a_thread_that_never_started_has_ended() -> None:
    assert SegmentThread(ScriptedDecoder(), Unguarded()).stop(0.0)
