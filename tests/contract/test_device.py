"""What every device promises, run against the scripted fake and the real threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import torch

from pipeline.cuda_runtime import TorchCuda
from pipeline.item import Batch, Item
from pipeline.ports import BatchDone, Device, Lane
from pipeline.slots import ThreadedDevice
from pipeline.slots_cuda import CudaDevice
from schemas.result import ClosedBy
from tests.builders import SMALL, an_item
from tests.fakes.clock import VirtualClock
from tests.fakes.cuda import FakeCuda
from tests.fakes.device import FakeDevice
from tests.fakes.lane import FakeDecoder, FakeModel, FakePostprocessor

DEADLINE_S = 180.0
_ids = itertools.count(1)


def a_batch(*items: Item) -> Batch:
    return Batch(next(_ids), "default", SMALL, items, ClosedBy.FULL, 0.0)


def pictures(n: int) -> list[Item]:
    return [an_item(f"cam{i}", data=bytes([i])) for i in range(n)]


class Rig(Protocol):
    """A device whose model stage can be held, and a way to let things happen."""

    device: Device
    notified: int

    def hold(self) -> None:
        """From now on no batch leaves the model stage ..."""
        ...

    def release(self) -> None:
        """... until now."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until the condition holds."""
        ...


class FakeRig:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.device = FakeDevice(
            self.clock, decode_s=lambda n: 1.0, infer_s=lambda n: 1.0, post_s=lambda n: 1.0
        )
        self.notified = 0
        self.device.listen(self._count)

    def _count(self) -> None:
        self.notified += 1

    def hold(self) -> None:
        pass  # nothing moves before `until`

    def release(self) -> None:
        pass

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.clock.advance_to(self.device.next_event())
            self.device.announce()


class ThreadedRig:
    def __init__(self) -> None:
        self.model = FakeModel()
        self.gate = threading.Event()
        self.gate.set()
        self.model.before = lambda levels: self._pass_gate()
        self.decoder = FakeDecoder()
        lane = Lane(self.decoder, self.model, FakePostprocessor())
        self.device: Device = ThreadedDevice({"default": lane})
        self.changed = threading.Condition()
        self.notified = 0
        self.device.listen(self._count)

    def _pass_gate(self) -> None:
        assert self.gate.wait(DEADLINE_S)

    def _count(self) -> None:
        with self.changed:
            self.notified += 1
            self.changed.notify_all()

    def hold(self) -> None:
        self.gate.clear()

    def release(self) -> None:
        self.gate.set()

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE_S)


class CudaRig(ThreadedRig):
    """The CUDA device, on streams that are checked for hazards. Stage times are virtual."""

    def __init__(self) -> None:
        super().__init__()
        self.device.close()
        assert self.device.join(DEADLINE_S)
        self.cuda = FakeCuda({"copy": 1.0, "compute": 2.0, "results": 0.5})
        lane = Lane(self.decoder, self.model, FakePostprocessor(), buckets=(SMALL,))
        self.device = CudaDevice({"default": lane}, self.cuda, slots=2, clock=self.cuda.now)
        self.device.listen(self._count)

    def hold(self) -> None:
        self.cuda.hold("compute")

    def release(self) -> None:
        self.cuda.release()


class GpuRig(ThreadedRig):
    """The CUDA device on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.device.close()
        assert self.device.join(DEADLINE_S)
        where = torch.device("cuda")
        self.model.device = where
        lane = Lane(self.decoder, self.model, FakePostprocessor(), buckets=(SMALL,))
        self.device = CudaDevice({"default": lane}, TorchCuda(where), slots=2)
        self.device.listen(self._count)


RIGS = {"fake": FakeRig, "threads": ThreadedRig, "cuda-streams": CudaRig}
if torch.cuda.is_available():
    RIGS["gpu"] = GpuRig


@pytest.fixture(params=RIGS.values(), ids=RIGS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig: Rig = request.param()
    yield rig
    rig.release()
    rig.device.close()
    if not isinstance(rig, FakeRig):
        assert rig.device.join(DEADLINE_S)
    if isinstance(rig, CudaRig):
        assert not rig.cuda.hazards


def finish(rig: Rig, count: int) -> list[BatchDone]:
    done: list[BatchDone] = []

    def collected() -> bool:
        done.extend(rig.device.collect())
        return len(done) >= count

    rig.until(collected)
    return done


def test_a_new_device_is_free_and_idle(rig: Rig) -> None:
    assert rig.device.free_slots == 2
    assert rig.device.compute_idle
    assert rig.device.failure is None
    assert rig.device.collect() == []


def test_a_batch_takes_a_slot_and_gives_it_back(rig: Rig) -> None:
    rig.hold()
    rig.device.start(a_batch(*pictures(2)))
    assert rig.device.free_slots == 1
    assert not rig.device.compute_idle
    rig.release()
    rig.until(lambda: rig.device.free_slots == 2)
    assert rig.device.compute_idle
    assert rig.notified


def test_no_more_batches_than_slots(rig: Rig) -> None:
    rig.hold()
    rig.device.start(a_batch(*pictures(1)))
    rig.device.start(a_batch(*pictures(1)))
    assert rig.device.free_slots == 0
    with pytest.raises(RuntimeError):
        rig.device.start(a_batch(*pictures(1)))


def test_one_outcome_per_item_in_the_batchs_order(rig: Rig) -> None:
    batch = a_batch(*pictures(4))
    rig.device.start(batch)
    (done,) = finish(rig, 1)
    assert done.batch is batch
    assert [outcome.item for outcome in done.outcomes] == list(batch.items)
    assert [outcome.index for outcome in done.outcomes] == [0, 1, 2, 3]
    assert all(outcome.batch is batch and outcome.error is None for outcome in done.outcomes)
    assert all(outcome.times is done.times for outcome in done.outcomes)


def test_batches_finish_in_the_order_they_started(rig: Rig) -> None:
    batches = [a_batch(*pictures(1 + i % 4)) for i in range(8)]
    done: list[BatchDone] = []
    for batch in batches:
        rig.until(lambda: rig.device.free_slots > 0)
        rig.device.start(batch)
        done.extend(rig.device.collect())
    done.extend(finish(rig, len(batches) - len(done)))
    assert [d.batch for d in done] == batches


def test_stage_times_are_durations_inside_the_batchs_span(rig: Rig) -> None:
    rig.device.start(a_batch(*pictures(3)))
    (done,) = finish(rig, 1)
    times = done.times
    assert times.decode_s >= 0
    assert times.infer_s >= 0
    assert times.post_s >= 0
    stages = times.decode_s + times.infer_s + times.post_s
    assert stages <= times.finished_at - times.started_at + 1e-9
