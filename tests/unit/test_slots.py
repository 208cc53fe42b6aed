"""The threaded device beyond the port's contract: slots, bad pictures, culprits, failure."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from pipeline import native_calls
from pipeline.guard import Guard
from pipeline.item import Batch, Item
from pipeline.journal import Stage
from pipeline.ports import BatchDone, Lane
from pipeline.processor_time import ModelMeter
from pipeline.retry import Backoff
from pipeline.slot import HostSlot, SlotState
from pipeline.slots import ThreadedDevice
from schemas.errors import FatalError, Reason, TransientError
from schemas.result import ClosedBy
from tests.builders import LARGE, SMALL
from tests.fakes.lane import (
    FakeDecoder,
    FakeModel,
    FakePostprocessor,
    levels_of,
    pictures,
)

DEADLINE_S = 180.0
_ids = itertools.count(1)


class Rig:
    def __init__(self, guard: Guard | None = None, meter: ModelMeter | None = None) -> None:
        self.decoder, self.model = FakeDecoder(), FakeModel()
        self.post = FakePostprocessor()
        lane = Lane(self.decoder, self.model, self.post)
        self.device = ThreadedDevice({"default": lane}, guard=guard, meter=meter)
        self._changed = threading.Condition()
        self.device.listen(self._notify)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)

    def run(self, items: Sequence[Item]) -> BatchDone:
        self.device.start(Batch(next(_ids), "default", SMALL, tuple(items), ClosedBy.FULL, 0.0))
        done: list[BatchDone] = []

        def finished() -> bool:
            done.extend(self.device.collect())
            return bool(done) or self.device.failure is not None

        self.until(finished)
        if self.device.failure is not None:
            raise self.device.failure
        return done[0]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "BACKOFF", Backoff(0.0, 0.0, lambda: 0.0))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.device.close()
    assert rig.device.join(DEADLINE_S)


def test_each_frame_gets_its_own_detections(rig: Rig) -> None:
    assert levels_of(rig.run(pictures(7, 5, 9, 1))) == [7, 5, 9, 1]


@pytest.mark.parametrize("bad", range(4))
def test_a_bad_picture_costs_only_itself(rig: Rig, bad: int) -> None:
    levels: list[int | None] = [10, 11, 12, 13]
    levels[bad] = None
    expected: list[int | Reason] = [10, 11, 12, 13]
    expected[bad] = Reason.DECODE_FAILED
    assert levels_of(rig.run(pictures(*levels))) == expected
    assert rig.model.batch_sizes == [3]  # the model saw the good ones only


def test_a_batch_of_bad_pictures_never_meets_the_model(rig: Rig) -> None:
    assert levels_of(rig.run(pictures(None, None))) == [Reason.DECODE_FAILED] * 2
    assert rig.model.batch_sizes == []
    assert levels_of(rig.run(pictures(3))) == [3]


def test_the_frame_that_breaks_the_model_is_found_by_bisection(rig: Rig) -> None:
    def choke(levels: list[int]) -> None:
        if 66 in levels:
            raise ValueError("cannot stomach 66")

    rig.model.before = choke
    done = rig.run(pictures(1, None, 66, 4))
    assert levels_of(done) == [1, Reason.DECODE_FAILED, Reason.INFERENCE_FAILED, 4]
    error = done.outcomes[2].error
    assert error is not None
    assert error.stage == "infer"
    assert "cannot stomach 66" in error.detail


def test_a_broken_model_is_fatal_and_no_frame_is_blamed(rig: Rig) -> None:
    def broken(levels: list[int]) -> None:
        raise RuntimeError("device lost")

    rig.model.before = broken
    with pytest.raises(FatalError, match="device lost"):
        rig.run(pictures(1, 2))
    assert rig.device.collect() == []


def test_a_decoder_that_raises_on_a_harmless_picture_too_is_fatal(rig: Rig) -> None:
    def broken(items: Sequence[Item]) -> None:
        raise RuntimeError("bug")

    rig.decoder.before = broken
    with pytest.raises(FatalError, match="decode"):
        rig.run(pictures(1))


def test_an_exception_that_one_picture_makes_the_decoder_raise_costs_that_picture(rig: Rig) -> None:
    def choke(items: Sequence[Item]) -> None:
        if any(bytes(item.frame.data) == bytes([66]) for item in items):
            raise ZeroDivisionError("nobody foresaw 66")

    rig.decoder.before = choke
    done = rig.run(pictures(1, None, 66, 4))
    assert levels_of(done) == [1, Reason.DECODE_FAILED, Reason.INTERNAL_ERROR, 4]
    error = done.outcomes[2].error
    assert error is not None
    assert (error.stage, "ZeroDivisionError: nobody foresaw 66" in error.detail) == ("decode", True)
    assert [outcome.attempts for outcome in done.outcomes] == [1] * 4


@pytest.mark.parametrize("shortage", [MemoryError(), torch.OutOfMemoryError()])
def test_a_batch_that_finds_no_memory_is_run_in_parts_and_nobody_is_blamed(
    rig: Rig, shortage: Exception
) -> None:
    def small_device(levels: list[int]) -> None:
        if len(levels) > 2:
            raise shortage

    rig.model.before = small_device
    done = rig.run(pictures(1, 2, 3, 4))
    assert levels_of(done) == [1, 2, 3, 4]
    assert rig.model.batch_sizes == [2, 2]
    assert done.fits == 2
    assert [outcome.attempts for outcome in done.outcomes] == [2] * 4
    rig.model.before = lambda levels: None
    assert rig.run(pictures(1, 2, 3, 4)).fits is None


def test_decoding_that_finds_no_memory_is_done_in_parts(rig: Rig) -> None:
    def small_host(items: Sequence[Item]) -> None:
        if len(items) > 1:
            raise TransientError("out of memory")

    rig.decoder.before = small_host
    done = rig.run(pictures(1, None, 3, 4))
    assert levels_of(done) == [1, Reason.DECODE_FAILED, 3, 4]
    assert (done.fits, rig.model.batch_sizes) == (1, [3])
    assert [outcome.attempts for outcome in done.outcomes] == [3] * 4


def test_a_frame_alone_is_tried_again_until_there_is_memory(rig: Rig) -> None:
    failures = iter([MemoryError(), MemoryError()])

    def busy(levels: list[int]) -> None:
        for failure in failures:
            raise failure

    rig.model.before = busy
    done = rig.run(pictures(5))
    assert (levels_of(done), done.fits, done.outcomes[0].attempts) == ([5], 1, 3)


def test_a_model_without_memory_for_one_frame_is_fatal_and_no_frame_is_blamed(rig: Rig) -> None:
    def full(levels: list[int]) -> None:
        if levels != [114]:
            raise MemoryError

    rig.model.before = full
    with pytest.raises(FatalError, match="not even for one frame"):
        rig.run(pictures(1, 2))
    assert rig.device.collect() == []


def test_a_picture_that_alone_never_finds_memory_is_traced_to_itself(rig: Rig) -> None:
    def hungry(items: Sequence[Item]) -> None:
        if any(bytes(item.frame.data) == bytes([66]) for item in items):
            raise MemoryError

    rig.decoder.before = hungry
    done = rig.run(pictures(66, 2))
    assert levels_of(done) == [Reason.INTERNAL_ERROR, 2]


def test_every_native_call_is_guarded_with_the_items_it_is_made_for() -> None:
    calls: list[tuple[Stage, list[str]]] = []
    inside: set[Stage] = set()

    class Recorder:
        @contextmanager
        def inside(self, stage: Stage, items: Sequence[Item]) -> Iterator[None]:
            assert stage not in inside
            inside.add(stage)
            calls.append((stage, [item.stream for item in items]))
            try:
                yield
            finally:
                inside.remove(stage)

    rig = Rig(Recorder())

    def choke(levels: list[int]) -> None:
        assert Stage.INFER in inside
        if 66 in levels:
            raise ValueError

    rig.model.before = choke
    rig.run(pictures(None, 66, 4))
    rig.device.close()
    assert rig.device.join(DEADLINE_S)
    assert calls == [
        (Stage.DECODE, ["cam0", "cam1", "cam2"]),
        (Stage.INFER, ["cam1", "cam2"]),
        (Stage.INFER, ["cam1"]),
        (Stage.INFER, ["cam2"]),
        (Stage.INFER, []),
        (Stage.POST, ["cam2"]),
    ]
    assert not inside


class ScriptedMeter:
    """Says of every run that it took so long; is its own run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.threads: set[int] = set()

    def begin(self) -> ScriptedMeter:
        self.threads.add(threading.get_ident())
        return self

    def seconds(self) -> float:
        self.threads.add(threading.get_ident())
        return self._seconds


def test_the_models_processor_time_is_told_with_the_batch() -> None:
    meter = ScriptedMeter(0.25)
    rig = Rig(meter=meter)
    assert rig.run(pictures(2)).model_s == 0.25
    assert len(meter.threads) == 1, "read on the model's thread"
    rig.device.close()
    assert rig.device.join(DEADLINE_S)


def test_without_a_meter_there_is_only_the_time_on_the_clock(rig: Rig) -> None:
    assert rig.run(pictures(2)).model_s is None


def test_one_thread_runs_the_model(rig: Rig) -> None:
    for _ in range(3):
        rig.run(pictures(1))
    assert len(rig.model.threads) == 1


def test_the_next_batch_decodes_while_the_first_infers(rig: Rig) -> None:
    """Proven by a rendezvous: the model stage of batch 1 ends only once batch 2 was decoded."""
    second_decoded = threading.Event()
    decoded = itertools.count(1)

    def on_decode(items: Sequence[Item]) -> None:
        if next(decoded) == 2:
            second_decoded.set()

    def on_infer(levels: list[int]) -> None:
        assert second_decoded.wait(DEADLINE_S)

    rig.decoder.before, rig.model.before = on_decode, on_infer
    for level in (1, 2):
        items = tuple(pictures(level))
        rig.device.start(Batch(next(_ids), "default", SMALL, items, ClosedBy.FULL, 0.0))
    done: list[BatchDone] = []

    def both_finished() -> bool:
        done.extend(rig.device.collect())
        return len(done) == 2

    rig.until(both_finished)
    assert [levels_of(d) for d in done] == [[1], [2]]


def test_closing_ends_the_threads_and_closes_decoders() -> None:
    rig = Rig()
    rig.run(pictures(1))
    rig.device.close()
    rig.device.close()
    assert rig.device.join(DEADLINE_S)
    assert rig.decoder.closed


def test_slot_states_follow_one_path() -> None:
    slot = HostSlot(0)
    for state in (SlotState.DECODING, SlotState.DECODED, SlotState.INFERRING, SlotState.FREE):
        slot.enter(state)
    with pytest.raises(RuntimeError, match="free → inferring"):
        slot.enter(SlotState.INFERRING)


def test_a_slot_allocates_only_for_a_larger_bucket() -> None:
    slot = HostSlot(0)
    large = slot.frames(LARGE)
    assert large.shape == (LARGE.max_batch, LARGE.height, LARGE.width, 3)
    small = slot.frames(SMALL)
    assert small.shape == (SMALL.max_batch, SMALL.height, SMALL.width, 3)
    assert small.data_ptr() == slot.frames(LARGE).data_ptr() == large.data_ptr()
