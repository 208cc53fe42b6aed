"""What the worker itself costs per frame: `python -m bench.overhead --bootstrap HOST:PORT`.

Two processes answer the same frames in turn, several times, at each size of record. One is the real
worker with a lane that neither decodes nor infers (its journal, guard, metrics and commits are all
there). The other is the least that anybody can write with the same Kafka client: poll, send a fixed
answer of a result's length for each record, wait for the acknowledgements, commit. What is compared
is the processor time of the two processes per frame; the broker's is nobody's.

Both are measured in full run: from when an eighth of the frames is answered until an eighth is
left. So neither the start is in it nor the join, and what is under way at one end is under way at
the other.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np

from bench.contender import Contender, Meter, Order, Spent, serve
from bench.kafka_load import Load, filled, kafka_settings
from bench.report import (
    Bars,
    Cell,
    Document,
    Goal,
    check_files,
    machine,
    median,
    plan_of,
    show,
    spread,
    write,
)
from schemas.codec import write_frame
from schemas.frame import Encoding, FrameMessage
from schemas.settings import RouteSettings
from workers.kafka_clients import make_consumer, make_producer, start_client, stop_client

GOAL = 1.5
ANSWER = bytes(455)
"""As long as a result without detections."""
STREAMS = 8
POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        bootstrap: the broker; all records of one size must fit its memory.
        frames: records of the smallest size in a round; larger records are fewer.
        repeats: rounds of each side at each size.
        sizes: of records, KiB.
    """

    bootstrap: str
    frames: int = 4_000
    repeats: int = 5
    sizes: tuple[int, ...] = (20, 100, 1_000)

    def count(self, kib: int) -> int:
        """Records in a round: at most 300 MiB of them."""
        return max(8, min(self.frames, 300 * 1024 // kib))


def picture(kib: int) -> bytes:
    """A JPEG of about so many KiB: noise, which takes nine tenths of a byte a pixel."""
    pixels = kib * 1024 / 0.9
    height = max(16, round((pixels / (4 / 3)) ** 0.5))
    rng = np.random.default_rng(kib)
    noise = rng.integers(0, 256, (height, height * 4 // 3, 3), np.uint8)
    return cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 88])[1].tobytes()


def loads(kib: int, count: int) -> list[Load]:
    """Frames of a few cameras, in envelopes."""
    data = memoryview(picture(kib))
    return [
        Load(
            b"camera-%d" % (n % STREAMS),
            write_frame(
                FrameMessage(
                    stream_id=f"camera-{n % STREAMS}", seq=n // STREAMS, captured_at_us=n,
                    encoding=Encoding.JPEG, data=data,
                )
            ),
        )
        for n in range(count)
    ]  # fmt: skip


async def measure(options: Options) -> Document:
    """Both sides in turn, at every size."""
    about = machine()
    found: dict[int, dict[str, list[Spent]]] = {}
    async with (
        Contender("worker", ["-m", "bench.overhead", "--side", "worker"]) as worker,
        Contender("bare", ["-m", "bench.overhead", "--side", "bare"]) as bare,
    ):
        for kib in options.sizes:
            count = options.count(kib)
            found[kib] = {"worker": [], "bare": []}
            async with filled(options.bootstrap, loads(kib, count)) as topics:
                for _ in range(options.repeats):
                    for side in (worker, bare):
                        order = Order(
                            bootstrap=options.bootstrap, input=topics.input, output=topics.output,
                            dead_letter=topics.dead_letter, group=f"bench-{uuid.uuid4().hex}",
                            frames=count, edge=count // 8,
                        )  # fmt: skip
                        found[kib][side.name].append(await side.round(order))
    return document(options, about, found)


def document(
    options: Options, about: dict[str, Cell], found: dict[int, dict[str, list[Spent]]]
) -> Document:
    """The figures of all sizes. The ratio is the median of the ratios of neighbouring rounds."""
    rows: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    for kib, sides in found.items():
        pairs = zip(sides["worker"], sides["bare"], strict=True)
        ratios = [ours.cpu_us / theirs.cpu_us for ours, theirs in pairs]
        rows.append(
            {
                "KiB": kib,
                "frames": options.count(kib),
                "worker_cpu_us": median([s.cpu_us for s in sides["worker"]]),
                "bare_cpu_us": median([s.cpu_us for s in sides["bare"]]),
                "ratio": median(ratios),
                "ratios": spread(ratios),
                "batch": median([s.frames / max(1, s.batches) for s in sides["worker"]]),
            }
        )
        goals.append(
            Goal(
                name=f"{kib} KiB: worker / bare loop", value=median(ratios), goal=GOAL, at_most=True
            )
        )
    bars = Bars(
        title="Processor time per frame with a model that does nothing",
        axis="CPU µs per frame",
        groups=[f"{kib} KiB" for kib in found],
        series={
            name: [median([s.cpu_us for s in sides[name]]) for sides in found.values()]
            for name in ("worker", "bare")
        },
    )
    plan = plan_of({**asdict(options), "sizes": ", ".join(map(str, options.sizes))})
    return Document(bench="overhead", machine=about, plan=plan, rows=rows, goals=goals, bars=bars)


async def bare_side(order: Order) -> Spent:
    """Poll, answer, wait, commit. 0 frames where one poll brought what was to be measured."""
    kafka = kafka_settings(order.bootstrap, order.group)
    consumer, producer = make_consumer(kafka), make_producer(kafka)
    await start_client(consumer, kafka)
    await start_client(producer, kafka)
    answered, before, meter = 0, 0, Meter()
    consumer.subscribe(topics=[order.input])
    try:
        while answered < order.frames - order.edge:
            fetched = await consumer.getmany(timeout_ms=POLL_MS)
            sent = [
                await producer.send(order.output, ANSWER, record.key)
                for records in fetched.values()
                for record in records
            ]
            await asyncio.gather(*sent)
            if sent:
                await consumer.commit()
            answered += len(sent)
            if not before and answered >= order.edge:
                before, meter = answered, Meter()
        return meter.spent(answered - before)
    finally:
        await stop_client(producer)
        await stop_client(consumer)


async def worker_side(order: Order) -> Spent:
    """The worker, without a lane to speak of."""
    from bench.noop_lane import noop_lane  # noqa: PLC0415 - imports torch
    from bench.worker_round import Span, settings_of, worker_round  # noqa: PLC0415
    from workers.lanes import Loaded  # noqa: PLC0415

    span = Span(after=order.edge, frames=order.frames - 2 * order.edge)
    return await worker_round(
        settings_of(order, RouteSettings()),
        lambda _: Loaded({"default": noop_lane()}, "cpu"),
        span if order.edge else order.frames,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The bench, or one of its sides. 0 when all goals are met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--frames", type=int, default=4_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 100, 1_000], metavar="KIB")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--side", choices=("worker", "bare"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.side:
        serve(lambda: worker_side if asked.side == "worker" else bare_side)
        return 0
    check_files(asked.json, asked.plot)
    options = Options(asked.bootstrap, asked.frames, asked.repeats, tuple(asked.sizes))
    found = asyncio.run(measure(options))
    show(found)
    write(found, asked.json, asked.plot)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
