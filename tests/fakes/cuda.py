"""CUDA without a GPU: streams whose work is done at once, and who may touch what when.

Each stream, and the host, keeps a vector clock: how much of every other's work is over from where
it stands. Recording an event takes the stream's clock, waiting for it joins it to another's. Every
operation on a buffer is compared with the accesses before it, and one that is not ordered after
them raises `HazardError`: on a GPU the two would race. Time is virtual: a stream's costs are
scripted, and the host's time is that of the latest event it waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.cuda_graphs import Captured, Forward

DEADLINE_S = 180.0
HOST = "host"

VectorClock = dict[str, int]


class HazardError(AssertionError):
    """Two accesses to a buffer that nothing orders."""


def _join(into: VectorClock, other: Mapping[str, int]) -> None:
    for name, tick in other.items():
        into[name] = max(into.get(name, 0), tick)


@dataclass(eq=False)
class FakeStream:
    runtime: FakeCuda
    kind: str
    name: str
    high_priority: bool
    clock: VectorClock = field(default_factory=dict)
    time_s: float = 0.0
    busy: bool = False

    def wait_event(self, event: FakeEvent) -> None:
        assert event.clock is not None, "waits for an event that was never recorded"
        with self.runtime.lock:
            _join(self.clock, event.clock)
            self.time_s = max(self.time_s, event.time_s)


@dataclass(eq=False)
class FakeEvent:
    runtime: FakeCuda
    clock: VectorClock | None = None
    time_s: float = 0.0

    def synchronize(self) -> None:
        self.runtime.wait(self)


@dataclass(eq=False)
class _Buffer:
    name: str
    storage: torch.Tensor
    written: tuple[str, int] | None = None
    read: VectorClock = field(default_factory=dict)


class FakeCuda:
    """Implements `CudaRuntime` on CPU tensors. `costs`: virtual seconds per kind of stream, for
    each stretch of work between two events."""

    def __init__(self, costs: Mapping[str, float] | None = None) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.costs = dict(costs or {})
        self.streams: list[FakeStream] = []
        self.names: list[str] = []
        self.host: VectorClock = {}
        self.host_time_s = 0.0
        self.hazards: list[str] = []
        self.frozen = False
        self.lost: dict[str, Exception] = {}
        """Kind of stream → what waiting for its work raises."""
        self._held: set[str] = set()
        self._buffers: dict[int, _Buffer] = {}

    def stream(self, kind: str, *, high_priority: bool = False) -> FakeStream:
        number = sum(stream.kind == kind for stream in self.streams)
        self.streams.append(FakeStream(self, kind, f"{kind}-{number}", high_priority))
        return self.streams[-1]

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def record(self, event: FakeEvent, stream: FakeStream) -> None:
        with self.lock:
            self._enqueue(stream)
            if stream.busy:
                stream.time_s += self.costs.get(stream.kind, 0.0)
                stream.busy = False
            event.clock, event.time_s = dict(stream.clock), stream.time_s
            self.changed.notify_all()

    def elapsed_s(self, start: FakeEvent, end: FakeEvent) -> float:
        for event in (start, end):
            self._known(event)
        return end.time_s - start.time_s

    @contextmanager
    def on(self, stream: FakeStream) -> Generator[None]:
        with _Recorder(self, stream):
            yield

    @contextmanager
    def named(self, name: str) -> Generator[None]:
        self.names.append(name)
        yield

    def device_buffer(self, nbytes: int) -> torch.Tensor:
        return self._new("device", nbytes)

    def pinned_buffer(self, nbytes: int) -> torch.Tensor:
        return self._new("pinned", nbytes)

    def on_host(self, pinned: torch.Tensor) -> torch.Tensor:
        with self.lock:
            self.host[HOST] = self.host.get(HOST, 0) + 1
            self._access(pinned, HOST, self.host, writes=True)
        return pinned

    # --- what tests do --------------------------------------------------------------------------

    def now(self) -> float:
        """The host's virtual time."""
        return self.host_time_s

    def hold(self, kind: str) -> None:
        """Work on streams of this kind does not end from now on ..."""
        with self.lock:
            self._held.add(kind)

    def release(self) -> None:
        """... until now."""
        with self.lock:
            self._held.clear()
            self.changed.notify_all()

    def track(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Watch one more tensor."""
        storage = tensor.untyped_storage().data_ptr()
        self._buffers.setdefault(storage, _Buffer(name, tensor))
        return tensor

    # --- the order of things --------------------------------------------------------------------

    def wait(self, event: FakeEvent) -> None:
        clock = event.clock
        assert clock is not None, "waits for an event that was never recorded"
        with self.changed:
            assert self.changed.wait_for(lambda: not self._pending(clock), DEADLINE_S)
            for name in clock:
                if self._kind(name) in self.lost:
                    raise self.lost[self._kind(name)]
            _join(self.host, clock)
            self.host_time_s = max(self.host_time_s, event.time_s)

    def touch(
        self, stream: FakeStream, reads: list[torch.Tensor], writes: list[torch.Tensor]
    ) -> None:
        """One operation of a stream."""
        with self.lock:
            self._enqueue(stream)
            stream.busy = True
            for tensors, writing in ((reads, False), (writes, True)):
                for tensor in tensors:
                    self._access(tensor, stream.name, stream.clock, writes=writing)

    def _enqueue(self, stream: FakeStream) -> None:
        _join(stream.clock, self.host)
        stream.clock[stream.name] = stream.clock.get(stream.name, 0) + 1
        stream.time_s = max(stream.time_s, self.host_time_s)

    def _access(self, tensor: torch.Tensor, who: str, clock: VectorClock, *, writes: bool) -> None:
        buffer = self._buffers.get(tensor.untyped_storage().data_ptr())
        if buffer is None:
            return
        before: VectorClock = dict(buffer.read) if writes else {}
        if buffer.written is not None:
            _join(before, {buffer.written[0]: buffer.written[1]})
        for other, tick in before.items():
            if other != who and clock.get(other, 0) < tick:
                doing = "writes" if writes else "reads"
                self.hazards.append(f"{who} {doing} {buffer.name} while {other} may still use it")
                raise HazardError(self.hazards[-1])
        if writes:
            buffer.written, buffer.read = (who, clock[who]), {}
        else:
            buffer.read[who] = clock[who]

    def _new(self, kind: str, nbytes: int) -> torch.Tensor:
        if self.frozen:
            raise HazardError(f"allocates {nbytes} bytes of {kind} memory after the start")
        buffer = torch.zeros(nbytes, dtype=torch.uint8)
        return self.track(buffer, f"{kind}-{len(self._buffers)}")

    def _pending(self, clock: VectorClock) -> bool:
        return any(
            self._kind(name) in self._held and tick > self.host.get(name, 0)
            for name, tick in clock.items()
        )

    def _known(self, event: FakeEvent) -> None:
        clock = event.clock or {HOST: 1 << 60}
        if any(tick > self.host.get(name, 0) for name, tick in clock.items()):
            raise HazardError("asks for the time of an event that has not passed")

    @staticmethod
    def _kind(name: str) -> str:
        return name.split("-", maxsplit=1)[0]


class _Recorder(TorchDispatchMode):
    """Every operation of this thread counts as one of the stream."""

    def __init__(self, runtime: FakeCuda, stream: FakeStream) -> None:
        super().__init__()
        self._runtime = runtime
        self._stream = stream

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        if not view:
            reads: list[torch.Tensor] = []
            writes: list[torch.Tensor] = []
            given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
            for argument in schema.arguments:
                value = given.get(argument.name)
                tensors = value if isinstance(value, list | tuple) else [value]
                kept = [each for each in tensors if isinstance(each, torch.Tensor)]
                writing = argument.alias_info is not None and argument.alias_info.is_write
                (writes if writing else reads).extend(kept)
            self._runtime.touch(self._stream, reads, writes)
        return func(*args, **kwargs)


class FakeGraphs:
    """Implements `Graphs`: a replay runs the closure again and leaves its result where the first
    one lies, in memory that all graphs of this recorder share, as a pool's are."""

    def __init__(self, runtime: FakeCuda | None = None) -> None:
        self.captures = 0
        self.replays = 0
        self.recoveries = 0
        self.broken: dict[int, Exception] = {}
        """Batch size → what its capture raises."""
        self.dead: Exception | None = None
        """What `recover` raises."""
        self._pool = torch.zeros(1)
        if runtime is not None:
            runtime.track(self._pool, "pool")

    def warm_up(self, run: Forward) -> None:
        run()

    def capture(self, run: Forward) -> Captured:
        output = run().clone()
        if len(output) in self.broken:
            raise self.broken[len(output)]
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            self._pool.add_(1)  # scratch memory that every graph writes to
            output.copy_(run())

        return Captured(replay, output)

    def recover(self) -> None:
        self.recoveries += 1
        if self.dead is not None:
            raise self.dead
