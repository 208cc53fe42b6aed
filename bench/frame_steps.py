"""What each step of a frame's way costs by itself: `python -m bench.frame_steps`.

The worker's own parts take the same records through one step after the other, without Kafka and,
but for the stages, in one thread. A step's figure is the least of several rounds in processor time.
In a worker the same steps cost more: caches are cold between them, and threads hand over.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.noop_lane import noop_lane
from bench.overhead import loads
from pipeline.batcher import Batcher
from pipeline.engine import EngineLoop
from pipeline.flow import Flow
from pipeline.guard import NativeGuard
from pipeline.item import Batch, Item, Outcome
from pipeline.journal import Journal
from pipeline.ledger import Ledger
from pipeline.metrics import Metrics
from pipeline.ports import BatchDone
from pipeline.sequencer import Sequencer
from pipeline.slots import ThreadedDevice
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.errors import FatalError, PoisonError
from schemas.frame import Claim
from schemas.record import RawRecord
from schemas.settings import FlowSettings, LimitSettings, RouteSettings, WindowSettings
from workers.admission import Admission, Intake
from workers.anchor import Anchor, Time
from workers.answers import AnswerWriter, Destination
from workers.assembly import bucket_table
from workers.delivery import Delivery
from workers.desk import Books, Ends
from workers.downloads import Bounds, Downloads
from workers.kafka_intake import CHUNK
from workers.logs import RecordLog, get_log
from workers.suspects import Suspects
from workers.tickets import Answer, OrderUnit, Segment, Ticket

TOPIC = "in"
PARTITIONS = 4
ACKNOWLEDGED = 40
"""Answers in one produce request, as a worker under full load has them."""
STEPS = {
    "take": "read, probe, bucket, credits, places, counts",
    "engine": "queues, windows, batches",
    "stages": "decode, model, post of a lane that does nothing; guard, journal, hand-overs",
    "complete": "results made and encoded, order, counts",
    "settle": "credits, ledger, counts",
}


def _ended(error: FatalError) -> None:
    raise error


def _no_claim(ticket: Ticket, got: memoryview | PoisonError) -> None:
    raise NotImplementedError(f"{ticket.coordinates} claims {got!r}")


def _no_segment(segment: Segment) -> None:
    raise NotImplementedError(f"{segment.ticket.coordinates} is a segment")


class HeldDevice:
    """A device whose batches stay until they are let out. Implements the `Device` port."""

    failure: FatalError | None = None

    def __init__(self) -> None:
        self.inside: deque[Batch] = deque()
        self.done: list[BatchDone] = []

    @property
    def free_slots(self) -> int:
        return 2 - len(self.inside)

    @property
    def compute_idle(self) -> bool:
        return not self.inside

    def listen(self, notify: Callable[[], None]) -> None:
        """Nobody is told."""

    def start(self, batch: Batch) -> None:
        self.inside.append(batch)

    def collect(self) -> list[BatchDone]:
        done, self.done = self.done, []
        return done

    def close(self) -> None:
        """Nothing is open."""

    def join(self, timeout_s: float) -> bool:  # noqa: ARG002 (the port's)
        return True


class NoFetcher:
    """For records that claim nothing."""

    async def fetch(self, claim: Claim, turn: object) -> memoryview:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


class Way:
    """One worker's parts around a frame, joined as `workers/assembly.py` joins them."""

    def __init__(self, stages: ThreadedDevice) -> None:
        metrics, moment = Metrics(), Time(Anchor.now(), time.monotonic)
        log = get_log("frameloom.bench")
        writer = AnswerWriter(
            {"default": Destination("out", "dlq", noop_lane().model.info)},
            worker="bench",
            max_result_bytes=LimitSettings().max_result_bytes,
            anchor=moment.anchor,
            clock=moment.clock,
        )
        admission = Admission(
            {TOPIC: Intake("default", bucket_table(RouteSettings()), 1)},
            LimitSettings(),
            unit=OrderUnit.STREAM,
            writer=writer,
            time=moment,
            log=log,
            suspects=Suspects(),
        )
        held = FlowSettings().max_held_per_stream
        downloads = Downloads(
            NoFetcher(), Bounds(1, 1, held), done=_no_claim, fail=_ended,
            clock=moment.clock, metrics=metrics, log=log,
        )  # fmt: skip
        self._items: list[Item] = []
        self._answers: list[Answer] = []
        books = Books(Ledger(), Sequencer[Answer](held), Flow(1 << 30, 1 << 40))
        ends = Ends(self._items.extend, self._answers.append, downloads, _no_segment)
        self._delivery = Delivery(books, admission, writer, ends, metrics, RecordLog(log), moment)
        self._delivery.assign([(TOPIC, number) for number in range(PARTITIONS)])
        self._outcomes: list[Sequence[Outcome]] = []
        self._device = HeldDevice()
        surface = Surface()
        batcher = Batcher(make_policy(WindowSettings()), surface)
        self._engine = EngineLoop(batcher, surface, self._device, self._outcomes.append)
        self._stages = stages
        self._finished = threading.Event()
        stages.listen(self._finished.set)
        self.spent_s = dict.fromkeys(STEPS, 0.0)

    def go(self, records: Sequence[RawRecord]) -> None:
        """Records of one partition, all the way."""
        with self._step("take"):
            self._delivery.take((TOPIC, records[0].partition), records)
        items, self._items[:] = tuple(self._items), ()
        self._turn(items)
        while self._device.inside:
            self._turn()  # its model stage is free
            self._device.done.append(self._through_stages(self._device.inside.popleft()))
            self._turn()
        while self._outcomes:
            with self._step("complete"):
                self._delivery.complete(self._outcomes.pop())
        while self._answers:
            acknowledged = self._answers[:ACKNOWLEDGED]
            del self._answers[:ACKNOWLEDGED]
            with self._step("settle"):
                self._delivery.acknowledge(acknowledged)

    def _turn(self, arrived: Sequence[Item] = ()) -> None:
        with self._step("engine"):
            self._engine.turn(arrived, time.monotonic())

    def _through_stages(self, batch: Batch) -> BatchDone:
        with self._step("stages"):
            self._stages.start(batch)
            while not (done := self._stages.collect()):
                self._finished.wait()
                self._finished.clear()
        return done[0]

    @contextmanager
    def _step(self, name: str) -> Generator[None]:
        began = time.process_time()
        yield
        self.spent_s[name] += time.process_time() - began


def records_of(kib: int, count: int) -> list[list[RawRecord]]:
    """So many records in chunks of one partition each, as a poll brings them."""
    chunks: list[list[RawRecord]] = []
    open_chunks: dict[int, list[RawRecord]] = {}
    frames = loads(kib, CHUNK)
    for n in range(count):
        load, partition = frames[n % CHUNK], n % PARTITIONS
        chunk = open_chunks.setdefault(partition, [])
        chunk.append(RawRecord(TOPIC, partition, n, load.key, load.value, 0))
        if len(chunk) == CHUNK:
            chunks.append(open_chunks.pop(partition))
    return chunks


def measure(kib: int, count: int, rounds: int) -> dict[str, float]:
    """Step → processor microseconds per frame, the least of the rounds."""
    chunks = records_of(kib, count)
    frames = sum(map(len, chunks))
    least = dict.fromkeys(STEPS, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "bench.journal")
        guard = NativeGuard(journal, 60.0, hung=lambda _: None)
        device = ThreadedDevice({"default": noop_lane()}, guard=guard)
        for _ in range(rounds):
            way = Way(device)
            for chunk in chunks:
                way.go(chunk)
            least = {name: min(least[name], way.spent_s[name]) for name in STEPS}
        device.close()
        device.join(5.0)
    return {name: seconds / frames * 1e6 for name, seconds in least.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=6_400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kib", type=int, default=20)
    asked = parser.parse_args(arguments)
    found = measure(asked.kib, asked.frames, asked.rounds)
    for name, microseconds in found.items():
        sys.stdout.write(f"{name:10} {microseconds:6.1f} µs a frame   {STEPS[name]}\n")
    sys.stdout.write(f"{'all':10} {sum(found.values()):6.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
