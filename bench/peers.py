"""The worker against the loops most people write, on the demo's mixed streams:
`python -m bench.peers --bootstrap HOST:PORT`.

Four processes answer the same frames with the same weights in turn, several times: the loop that
calls `YOLO.predict` for each frame, the one that calls it for each poll, the worker with buckets of
the same tensor shapes as the first loop's, and the worker as configured by default (small pictures
take a smaller bucket). Every process may use all cores, and idle OpenMP threads sleep in all of
them. The boxes of the first and the third are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from bench.contender import Contender, Order, Side, Spent, serve
from bench.kafka_load import Topics, filled, kafka_settings
from bench.mixed_streams import mixed_loads
from bench.peer_loops import PeerAnswer
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
from bench.same_boxes import Frames, agree
from schemas.codec import read_result
from schemas.settings import Backend, BucketSettings, RouteSettings
from workers.kafka_clients import make_consumer, start_client, stop_client

WEIGHTS = "bench/assets/frameloom-demo.pt"
PEERS = ("per frame", "per poll")
OURS = ("frameloom, same shapes", "frameloom, default")
GOALS = {"per frame": 2.0, "per poll": 1.3}
LEAST_OVERLAP = 0.98
CONF = 0.25
"""Of `predict` and of a route, by default."""
SAME_SHAPES = (
    BucketSettings(name="wide", max_source_pixels=50_000_000, height=384, width=640, max_batch=8),
    BucketSettings(name="tall", max_source_pixels=50_000_000, height=640, width=384, max_batch=8),
)
"""What `predict(imgsz=640)` makes of 16:9 and 9:16."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        bootstrap: the broker.
        frames: in a round.
        repeats: rounds of each side.
        weights: of the model.
        backend: of the worker's routes.
    """

    bootstrap: str
    frames: int = 129
    repeats: int = 3
    weights: str = WEIGHTS
    backend: str = "auto"


async def measure(options: Options) -> Document:
    """All four in turn."""
    about = machine()
    names = (*PEERS, *OURS)
    found: dict[str, list[Spent]] = {name: [] for name in names}
    async with filled(options.bootstrap, mixed_loads(options.frames), outputs=len(names)) as topics:
        contenders = [_contender(name, options) for name in names]
        async with contenders[0], contenders[1], contenders[2], contenders[3]:
            for _ in range(options.repeats):
                for number, each in enumerate(contenders):
                    order = Order(
                        bootstrap=options.bootstrap, input=topics.input,
                        output=f"{topics.output}.{number}", dead_letter=topics.dead_letter,
                        group=f"bench-{uuid.uuid4().hex}", frames=options.frames,
                    )  # fmt: skip
                    found[each.name].append(await each.round(order))
        boxes = await asyncio.gather(
            *(_boxes(options, topics, number, ours=number > 1) for number in (0, 2))
        )
    return document(options, about, found, agree(boxes[0], boxes[1], CONF))


def document(
    options: Options,
    about: dict[str, Cell],
    found: Mapping[str, Sequence[Spent]],
    same: tuple[int, int, float],
) -> Document:
    """The figures. Ratios are medians over the repeats, each of rounds that followed each other."""
    rows: list[dict[str, Cell]] = []
    goals: list[Goal] = []
    for name, rounds in found.items():
        row: dict[str, Cell] = {
            "side": name,
            "frames_per_s": median([spent.rate for spent in rounds]),
            "cpu_ms_per_frame": median([spent.cpu_us / 1e3 for spent in rounds]),
        }
        for peer in PEERS:
            pairs = list(zip(found[peer], rounds, strict=True))
            rates = [ours.rate / theirs.rate for theirs, ours in pairs]
            row[f"×{peer}"] = median(rates)
            row[f"×{peer}, from-to"] = spread(rates)
            row[f"×{peer}, by CPU"] = median([t.cpu_us / o.cpu_us for t, o in pairs])
        rows.append({**row, "note": rounds[-1].note})
    for name in OURS:
        pairs_of = {peer: list(zip(found[peer], found[name], strict=True)) for peer in PEERS}
        goals += [
            Goal(
                name=f"{name} / {peer} loop, frames per second",
                value=median([ours.rate / theirs.rate for theirs, ours in pairs]),
                goal=GOALS[peer],
            )
            for peer, pairs in pairs_of.items()
        ]
    boxes, agreeing, least = same
    alike = agreeing / max(1, boxes)
    goals.append(Goal(name=f"boxes found alike ({agreeing} of {boxes})", value=alike, goal=1.0))
    goals.append(Goal(name="least overlap of two such boxes", value=least, goal=LEAST_OVERLAP))
    bars = Bars(
        title="Mixed streams, the same weights",
        axis="frames per second",
        groups=list(found),
        series={"rate": [median([s.rate for s in rounds]) for rounds in found.values()]},
    )
    plan = plan_of(asdict(options))
    return Document(bench="peers", machine=about, plan=plan, rows=rows, goals=goals, bars=bars)


def _contender(name: str, options: Options) -> Contender:
    arguments = ["-m", "bench.peers", "--side", name, "--weights", options.weights]
    arguments += ["--backend", options.backend]
    return Contender(name, arguments, {"OMP_WAIT_POLICY": "PASSIVE", "YOLO_OFFLINE": "true"})


async def _boxes(options: Options, topics: Topics, number: int, *, ours: bool) -> Frames:
    """The first answer to each frame on a side's output topic."""
    kafka = kafka_settings(options.bootstrap)
    topic = f"{topics.output}.{number}"
    consumer = make_consumer(kafka, topic, group=False, auto_offset_reset="earliest")
    await start_client(consumer, kafka)
    frames: Frames = {}
    try:
        async with asyncio.timeout(60):
            while len(frames) < options.frames:
                value = (await consumer.getone()).value or b""
                if ours:
                    result = read_result(value)
                    boxes = [(*d.box, d.score, d.class_id) for d in result.detections]
                    frames.setdefault((result.stream_id, result.seq), boxes)
                else:
                    answer = msgspec.msgpack.decode(value, type=PeerAnswer)
                    frames.setdefault((answer.stream_id, answer.seq), answer.boxes)
    finally:
        await stop_client(consumer)
    return frames


def _side(name: str, weights: str, backend: str) -> Side:
    """Load what a side needs."""
    if name in PEERS:
        from bench.peer_loops import PeerLoop  # noqa: PLC0415

        return PeerLoop(weights, per_poll=name == "per poll").round
    from bench.cpu_rig import Rig, rig_settings  # noqa: PLC0415
    from bench.worker_round import settings_of, worker_round  # noqa: PLC0415

    route = RouteSettings(model=weights, backend=Backend(backend))
    if name == OURS[0]:
        route = msgspec.structs.replace(route, buckets=list(SAME_SHAPES))
    rig = Rig(rig_settings(route))

    async def side(order: Order) -> Spent:
        settings = settings_of(order, route)
        return await worker_round(settings, lambda _: rig.loaded(), order.frames)

    return side


def main(arguments: Sequence[str] | None = None) -> int:
    """The bench, or one of its sides. 0 when all goals are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--frames", type=int, default=129)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--weights", default=WEIGHTS)
    parser.add_argument("--backend", default="auto", choices=[each.value for each in Backend])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--side", choices=(*PEERS, *OURS), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.side:
        serve(lambda: _side(asked.side, asked.weights, asked.backend))
        return 0
    check_files(asked.json, asked.plot)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    options = Options(asked.bootstrap, asked.frames, asked.repeats, asked.weights, asked.backend)
    found = asyncio.run(measure(options))
    show(found)
    write(found, asked.json, asked.plot)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
