"""The CUDA device on streams and events that know who may touch what when."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from pipeline import native_calls
from pipeline.cuda_graphs import GraphedModel
from pipeline.guard import Guard
from pipeline.item import Batch, Item
from pipeline.journal import Stage
from pipeline.ports import BatchDone, Lane
from pipeline.retry import Backoff
from pipeline.slot import frames_bytes
from pipeline.slot_cuda import CudaSlot
from pipeline.slots_cuda import CudaDevice
from schemas.errors import FatalError, PoisonError, Reason, TransientError
from schemas.result import ClosedBy
from tests.builders import LARGE, SMALL
from tests.fakes.cuda import FakeCuda, FakeEvent, FakeGraphs, FakeStream, HazardError
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
    def __init__(
        self,
        *,
        slots: int = 3,
        on_gpu: bool = False,
        runtime: FakeCuda | None = None,
        graphs: FakeGraphs | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.runtime = runtime or FakeCuda()
        self.decoder, self.model, self.post = FakeDecoder(), FakeModel(), FakePostprocessor()
        model = self.model if graphs is None else GraphedModel(self.model, graphs)
        model.warm_up([SMALL])
        lane = Lane(self.decoder, model, self.post, on_gpu, (SMALL, LARGE))
        self.device = CudaDevice(
            {"default": lane}, self.runtime, slots=slots, guard=guard, clock=self.runtime.now
        )
        self.model.batch_sizes.clear()
        self._changed = threading.Condition()
        self.done: list[BatchDone] = []
        self.device.listen(self._notify)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: condition() or self.device.failure is not None, DEADLINE_S
            )
        if self.device.failure is not None:
            raise self.device.failure

    def start(self, items: Sequence[Item]) -> None:
        self.device.start(Batch(next(_ids), "default", SMALL, tuple(items), ClosedBy.FULL, 0.0))

    def finish(self, count: int) -> list[BatchDone]:
        def finished() -> bool:
            self.done.extend(self.device.collect())
            return len(self.done) >= count

        self.until(finished)
        return self.done

    def run(self, items: Sequence[Item]) -> BatchDone:
        self.start(items)
        return self.finish(len(self.done) + 1)[-1]

    def close(self) -> None:
        self.runtime.release()
        self.device.close()
        assert self.device.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_calls, "BACKOFF", Backoff(0.0, 0.0, lambda: 0.0))


@pytest.fixture(params=[False, True], ids=["staged", "on-gpu"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig = Rig(on_gpu=request.param)
    yield rig
    rig.close()
    assert not rig.runtime.hazards


# --- what any device does ------------------------------------------------------------------------


def test_each_frame_gets_its_own_detections_batch_after_batch(rig: Rig) -> None:
    for level in range(20):
        assert levels_of(rig.run(pictures(level, 5, 9, 1))) == [level, 5, 9, 1]


@pytest.mark.parametrize("bad", [(0,), (1,), (3,), (0, 2), (0, 1, 2, 3)])
def test_bad_pictures_cost_only_themselves(rig: Rig, bad: tuple[int, ...]) -> None:
    levels: list[int | None] = [10, 11, 12, 13]
    expected: list[int | Reason] = [10, 11, 12, 13]
    for index in bad:
        levels[index], expected[index] = None, Reason.DECODE_FAILED
    assert levels_of(rig.run(pictures(*levels))) == expected
    assert rig.model.batch_sizes == ([4 - len(bad)] if len(bad) < 4 else [])
    assert levels_of(rig.run(pictures(3))) == [3]


def test_the_frame_that_breaks_the_model_is_found_and_its_neighbours_keep_their_rows(
    rig: Rig,
) -> None:
    def choke(levels: list[int]) -> None:
        if 66 in levels:
            raise ValueError("cannot stomach 66")

    rig.model.before = choke
    done = rig.run(pictures(1, 66, 3, 4))
    assert levels_of(done) == [1, Reason.INFERENCE_FAILED, 3, 4]


def test_a_row_that_suppression_cannot_take_is_found(rig: Rig) -> None:
    def choke(raw: torch.Tensor) -> None:
        if (raw == 66).any():
            raise ValueError("cannot stomach 66")

    rig.post.before = choke
    done = rig.run(pictures(1, 66, 3))
    assert levels_of(done) == [1, Reason.INFERENCE_FAILED, 3]
    error = done.outcomes[1].error
    assert error is not None
    assert error.stage == "post"


def test_a_row_that_cannot_be_told_is_found(rig: Rig) -> None:
    def choke(tables: Sequence[object]) -> None:
        if any(len(table) and table[0, 6] == 66 for table in tables):
            raise ValueError("cannot stomach 66")

    rig.post.before_answers = choke
    assert levels_of(rig.run(pictures(1, 66, 3))) == [1, Reason.INFERENCE_FAILED, 3]


def test_a_batch_that_finds_no_memory_is_run_in_parts(rig: Rig) -> None:
    def small_device(levels: list[int]) -> None:
        if len(levels) > 2:
            raise torch.OutOfMemoryError

    rig.model.before = small_device
    done = rig.run(pictures(1, 2, 3, 4))
    assert levels_of(done) == [1, 2, 3, 4]
    assert (done.fits, rig.model.batch_sizes) == (2, [2, 2])


def test_decoding_that_finds_no_memory_is_done_in_parts(rig: Rig) -> None:
    def small(items: Sequence[Item]) -> None:
        if len(items) > 1:
            raise TransientError("out of memory")

    rig.decoder.before = small
    assert levels_of(rig.run(pictures(1, None, 3))) == [1, Reason.DECODE_FAILED, 3]


# --- a device that is lost -----------------------------------------------------------------------


def an_accelerator_error(code: int) -> torch.AcceleratorError:
    error = torch.AcceleratorError("CUDA error")
    error.error_code = code  # as torch sets it
    return error


@pytest.mark.parametrize("kind", ["copy", "compute", "results"])
def test_an_error_that_shows_at_an_event_is_fatal_and_nobody_is_blamed(rig: Rig, kind: str) -> None:
    rig.runtime.lost[kind] = an_accelerator_error(700)
    with pytest.raises(FatalError, match="the device failed"):
        rig.run(pictures(1, 2))
    assert rig.device.collect() == []


def test_an_error_that_shows_at_a_launch_is_fatal_without_bisection(rig: Rig) -> None:
    def lost(levels: list[int]) -> None:
        raise an_accelerator_error(700)

    rig.model.before = lost
    with pytest.raises(FatalError, match="the device failed"):
        rig.run(pictures(1, 2, 3, 4))
    assert rig.device.collect() == []


def test_memory_that_cuda_itself_lacks_is_a_shortage_like_any_other(rig: Rig) -> None:
    def small_device(levels: list[int]) -> None:
        if len(levels) > 1:
            raise an_accelerator_error(2)

    rig.model.before = small_device
    assert levels_of(rig.run(pictures(1, 2))) == [1, 2]


# --- streams and events --------------------------------------------------------------------------


def test_slots_have_streams_of_their_own_and_compute_goes_first(rig: Rig) -> None:
    streams = rig.runtime.streams
    assert len({id(stream) for stream in streams}) == len(streams) == 9
    assert {stream.kind for stream in streams if stream.high_priority} == {"compute"}


def test_the_next_batches_are_decoded_copied_and_launched_while_the_first_infers(rig: Rig) -> None:
    rig.runtime.hold("compute")
    launched = threading.Event()
    runs = itertools.count(1)

    def on_infer(levels: list[int]) -> None:
        if next(runs) == 3:
            launched.set()

    rig.model.before = on_infer
    for level in (1, 2, 3):
        rig.start(pictures(level))
    assert launched.wait(DEADLINE_S)  # and no batch has left the model
    assert rig.device.free_slots == 0
    assert not rig.device.compute_idle
    assert rig.device.collect() == []
    rig.runtime.release()
    assert [levels_of(done) for done in rig.finish(3)] == [[1], [2], [3]]


def test_the_stages_of_batches_overlap_in_time() -> None:
    """Three batches, put into their streams while nothing ends: copies go side by side, models one
    after another, and the last batch ends long before the sum of all stages."""
    rig = Rig(runtime=FakeCuda({"copy": 1.0, "compute": 2.0, "results": 0.5}))
    began = rig.runtime.now()
    rig.runtime.hold("compute")
    launched = threading.Semaphore(0)
    rig.model.before = lambda levels: launched.release()
    for level in (1, 2, 3):
        rig.start(pictures(level))
    for _ in range(3):
        assert launched.acquire(timeout=DEADLINE_S)
    inferred = [slot.inferred for slot in rig.device._slots]
    with rig.runtime.changed:  # the third launch is being put into its stream
        assert rig.runtime.changed.wait_for(
            lambda: all(event.time_s > began for event in inferred), DEADLINE_S
        )
    rig.runtime.release()
    done = rig.finish(3)
    assert [each.times.infer_s for each in done] == [2.0] * 3
    assert [each.times.decode_s for each in done] == [1.0] * 3
    assert sorted(event.time_s - began for event in inferred) == [3.0, 5.0, 7.0]
    rig.close()


def test_nothing_is_allocated_after_the_start(rig: Rig) -> None:
    rig.runtime.frozen = True
    for _ in range(4):
        rig.run(pictures(1, None, 3, 4))


def test_every_stage_is_named_for_profilers(rig: Rig) -> None:
    rig.run(pictures(1))
    assert rig.runtime.names == [f"decode {SMALL.name}", f"infer {SMALL.name}", "wait", "nms"]


def test_every_call_and_every_wait_is_guarded_with_the_items_it_is_made_for() -> None:
    calls: list[tuple[Stage, list[str]]] = []

    class Recorder:
        @contextmanager
        def inside(self, stage: Stage, items: Sequence[Item]) -> Iterator[None]:
            calls.append((stage, [item.stream for item in items]))
            yield

    rig = Rig(guard=Recorder())
    rig.run(pictures(None, 66, 4))
    rig.close()
    assert calls == [
        (Stage.DECODE, ["cam0", "cam1", "cam2"]),
        (Stage.INFER, ["cam1", "cam2"]),
        (Stage.RETURN, ["cam1", "cam2"]),  # the wait for the model ...
        (Stage.RETURN, ["cam1", "cam2"]),  # ... and what it found
        (Stage.POST, ["cam1", "cam2"]),
    ]


def test_one_thread_runs_the_model(rig: Rig) -> None:
    rig.model.threads.clear()
    for _ in range(3):
        rig.run(pictures(1))
    assert len(rig.model.threads) == 1


# --- hazards: what happens without the events ----------------------------------------------------


def _deaf(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Streams of one kind wait for nobody."""
    listens = FakeStream.wait_event

    def wait_event(self: FakeStream, event: object) -> None:
        if self.kind != kind:
            listens(self, event)

    monkeypatch.setattr(FakeStream, "wait_event", wait_event)


def test_a_model_that_does_not_wait_for_the_copy_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _deaf(monkeypatch, "compute")
    rig = Rig()
    with pytest.raises(FatalError, match=r"reads device-.* while copy-0"):
        rig.run(pictures(1))
    rig.close()


def test_graphs_of_two_slots_that_are_not_put_in_order_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listens = FakeStream.wait_event

    def wait_for_the_copy_only(self: FakeStream, event: FakeEvent) -> None:
        if event not in inferred:
            listens(self, event)

    runtime = FakeCuda()
    rig = Rig(runtime=runtime, graphs=FakeGraphs(runtime))
    inferred = [slot.inferred for slot in rig.device._slots]
    monkeypatch.setattr(FakeStream, "wait_event", wait_for_the_copy_only)
    runtime.hold("compute")
    rig.start(pictures(1))
    rig.start(pictures(2))
    with pytest.raises(FatalError, match=r"compute-1 writes .* while compute-0 may still use it"):
        rig.finish(1)
    rig.close()


def test_graphs_of_two_slots_follow_one_another() -> None:
    runtime = FakeCuda()
    graphs = FakeGraphs(runtime)
    rig = Rig(runtime=runtime, graphs=graphs)
    runtime.hold("compute")
    for level in (1, 2, 3):
        rig.start(pictures(level, level))
    runtime.release()
    assert [levels_of(done) for done in rig.finish(3)] == [[1, 1], [2, 2], [3, 3]]
    assert graphs.replays >= 3
    rig.close()
    assert not runtime.hazards


class Streams:
    """A slot and its memory, used by hand."""

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.slot = CudaSlot(0, self.cuda)
        self.slot.reserve_frames(frames_bytes(SMALL), staged=True)
        self.slot.reserve_results(60, 16)
        self.frames, self.staging = self.slot.frames(SMALL), self.slot.staging(SMALL)

    def copy(self) -> None:
        with self.cuda.on(self.slot.copy):
            self.frames.copy_(self.staging)
        self.cuda.record(self.slot.copied, self.slot.copy)


def test_staging_that_is_filled_again_while_it_is_copied_is_caught() -> None:
    streams = Streams()
    streams.cuda.on_host(streams.staging)
    streams.copy()
    with pytest.raises(HazardError, match="host writes pinned-1 while copy-0"):
        streams.cuda.on_host(streams.staging)
    streams.slot.copied.synchronize()
    streams.cuda.on_host(streams.staging)


def test_results_that_are_read_before_their_event_are_caught() -> None:
    streams = Streams()
    table = streams.slot.table()
    with streams.cuda.on(streams.slot.results):
        table[:2].fill_(1.0)
    streams.cuda.record(streams.slot.returned, streams.slot.results)
    with pytest.raises(HazardError, match="host writes pinned-3 while results-0"):
        streams.cuda.on_host(table)
    streams.slot.returned.synchronize()
    streams.cuda.on_host(table)


def test_frames_that_are_overwritten_while_the_model_reads_them_are_caught() -> None:
    streams = Streams()
    streams.copy()
    streams.slot.compute.wait_event(streams.slot.copied)
    with streams.cuda.on(streams.slot.compute):
        streams.frames.float()
    with pytest.raises(HazardError, match="copy-0 writes device-0 while compute-0"):
        streams.copy()


def test_the_time_of_an_event_that_has_not_passed_is_not_asked_for() -> None:
    streams = Streams()
    streams.copy()
    with pytest.raises(HazardError):
        streams.cuda.elapsed_s(streams.slot.copied, streams.slot.copied)
    with pytest.raises(AssertionError, match="never recorded"):
        streams.slot.compute.wait_event(streams.slot.returned)


def test_a_gpu_decoder_that_cannot_read_a_harmless_picture_is_found_at_the_start() -> None:
    class Blind(FakeDecoder):
        def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
            return [PoisonError(Reason.DECODE_FAILED, "no nvJPEG", stage="decode")] * len(items)

    lane = Lane(Blind(), FakeModel(), FakePostprocessor(), decodes_on_gpu=True, buckets=(SMALL,))
    with pytest.raises(FatalError, match=r"harmless picture.*no nvJPEG"):
        CudaDevice({"default": lane}, FakeCuda())


def test_what_a_slot_holds_is_taken_once_for_the_largest_bucket() -> None:
    cuda = FakeCuda()
    taken: list[int] = []
    take = cuda.device_buffer

    def counted(nbytes: int) -> torch.Tensor:
        taken.append(nbytes)
        return take(nbytes)

    cuda.device_buffer = counted
    lane = Lane(FakeDecoder(), FakeModel(), FakePostprocessor(), buckets=(SMALL, LARGE))
    device = CudaDevice({"default": lane}, cuda, slots=2)
    assert taken == [frames_bytes(LARGE)] * 2 + [LARGE.max_batch * 4] * 2
    device.close()
    assert device.join(DEADLINE_S)
