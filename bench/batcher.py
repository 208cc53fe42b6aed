"""What the batcher costs per frame: `python -m bench.batcher [--json]`.

Feeds frames of N cameras on a virtual clock, as the engine would (add, expire, next until it
rests, next_due after every frame), and measures real CPU time per frame. The numbers of streams
are measured in turn within one run, several rounds each, best round kept, so that they can be
compared with each other on a noisy machine.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

from pipeline.batcher import Batcher, DeviceView
from pipeline.bucket import Bucket
from pipeline.item import Coordinates, Header, Item
from pipeline.letterbox import letterbox
from pipeline.surface import Surface
from pipeline.window import IntervalPolicy
from schemas.frame import Encoding, FrameMessage

BUCKETS = (
    Bucket("480p", 420_000, 256, 448, 32),
    Bucket("1080p", 2_100_000, 384, 640, 32),
    Bucket("4k", 50_000_000, 384, 640, 16),
)
BUSY = DeviceView(slot_free=True, compute_idle=False)
IDLE = DeviceView(slot_free=True, compute_idle=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds per frame (best of the rounds) and how full the batches were."""

    streams: int
    frames: int
    us_per_frame: float
    mean_batch: float


def make_items(streams: int, frames: int, rate_hz: float) -> list[Item]:
    """Frames of `streams` cameras in order of arrival, `rate_hz` frames a second in all."""
    interval_s = streams / rate_hz
    geometries = [letterbox(640, 480, bucket.width, bucket.height) for bucket in BUCKETS]
    header = Header(Encoding.JPEG, 640, 480)
    items: list[Item] = []
    for index in range(frames):
        at = 1_000.0 + index / rate_hz
        stream = index % streams
        frame = FrameMessage(
            stream_id=f"cam{stream}",
            seq=index // streams,
            captured_at_us=round(at * 1e6),
            encoding=Encoding.JPEG,
            data=memoryview(b""),
            interval_us=round(interval_s * 1e6),
        )
        items.append(
            Item(
                attempt_id=index,
                coordinates=Coordinates("frames", 0, index),
                epoch=1,
                route="default",
                frame=frame,
                header=header,
                bucket=BUCKETS[stream % 3],
                geometry=geometries[stream % 3],
                received_at=at,
            )
        )
    return items


def run_round(items: list[Item]) -> tuple[float, int]:
    """CPU seconds for all items, and the number of batches."""
    policy = IntervalPolicy(intervals=3.0, min_wait_s=0.002, max_wait_s=0.25)
    batcher = Batcher(policy, Surface())
    batches = 0
    began = time.process_time()
    for index, item in enumerate(items):
        now = item.received_at
        batcher.add(item, now)
        batcher.expire(now)
        view = IDLE if index % 64 == 0 else BUSY
        while batcher.next(now, view).batch is not None:
            batches += 1
        batcher.next_due(now, view)
    return time.process_time() - began, batches


def measure(stream_counts: tuple[int, ...], frames: int, rounds: int) -> list[Cost]:
    """One `Cost` per number of streams; rounds interleaved, the best of each kept."""
    work = {streams: make_items(streams, frames, rate_hz=5_000.0) for streams in stream_counts}
    best: dict[int, tuple[float, int]] = {}
    for _ in range(rounds):
        for streams, items in work.items():
            result = run_round(items)
            best[streams] = min(best.get(streams, result), result)
    return [
        Cost(streams, frames, seconds / frames * 1e6, frames / max(batches, 1))
        for streams, (seconds, batches) in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU cost of the batcher per frame")
    parser.add_argument("--frames", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    costs = measure((10, 100, 1_000, 10_000), options.frames, options.rounds)
    if options.json:
        print(json.dumps([asdict(cost) for cost in costs]))
        return
    print(f"{'streams':>8} {'µs/frame':>9} {'mean batch':>11}")
    for cost in costs:
        print(f"{cost.streams:>8} {cost.us_per_frame:>9.2f} {cost.mean_batch:>11.1f}")


if __name__ == "__main__":
    main()
