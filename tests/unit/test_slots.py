"""The threaded device beyond the port's contract: slots, bad pictures, culprits, failure."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from pipeline.item import Batch, Item
from pipeline.ports import BatchDone, Lane
from pipeline.slots import Slot, SlotState, ThreadedDevice
from schemas.errors import FatalError, Reason
from schemas.result import ClosedBy
from tests.builders import LARGE, SMALL, an_item
from tests.fakes.lane import BAD_PICTURE, FakeDecoder, FakeModel, FakePostprocessor

DEADLINE_S = 30.0
_ids = itertools.count(1)


class Rig:
    def __init__(self) -> None:
        self.decoder, self.model = FakeDecoder(), FakeModel()
        self.post = FakePostprocessor()
        self.device = ThreadedDevice({"default": Lane(self.decoder, self.model, self.post)})
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


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.device.close()
    assert rig.device.join(DEADLINE_S)


def pictures(*levels: int | None) -> list[Item]:
    return [
        an_item(f"cam{i}", data=BAD_PICTURE if level is None else bytes([level]))
        for i, level in enumerate(levels)
    ]


def levels_of(done: BatchDone) -> list[int | Reason]:
    return [
        outcome.error.code if outcome.error is not None else outcome.detections[0].class_id
        for outcome in done.outcomes
    ]


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


def test_a_decoder_that_raises_breaks_its_contract_and_is_fatal(rig: Rig) -> None:
    def broken(items: Sequence[Item]) -> None:
        raise RuntimeError("bug")

    rig.decoder.before = broken
    with pytest.raises(FatalError, match="decode"):
        rig.run(pictures(1))


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
    slot = Slot(0, torch.device("cpu"))
    for state in (SlotState.DECODING, SlotState.DECODED, SlotState.INFERRING, SlotState.FREE):
        slot.enter(state)
    with pytest.raises(RuntimeError, match="free → inferring"):
        slot.enter(SlotState.INFERRING)


def test_a_slot_allocates_only_for_a_larger_bucket() -> None:
    slot = Slot(0, torch.device("cpu"))
    large = slot.frames(LARGE)
    assert large.shape == (LARGE.max_batch, LARGE.height, LARGE.width, 3)
    small = slot.frames(SMALL)
    assert small.shape == (SMALL.max_batch, SMALL.height, SMALL.width, 3)
    assert small.data_ptr() == slot.frames(LARGE).data_ptr() == large.data_ptr()
