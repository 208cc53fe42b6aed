"""What becomes of a live source that is read as the command does."""

from __future__ import annotations

import asyncio
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import av

from frameloom.address import read_address
from frameloom.dial import Dial
from frameloom.live import LiveSource
from frameloom.live_reader import LiveOptions, LiveState
from frameloom.network import NetworkOptions
from frameloom.segment_cut import SegmentBounds
from frameloom.segments import SegmentOptions
from frameloom.sources import SourceFrame, Unreadable
from frameloom.tally import Drop
from pipeline.retry import Backoff
from schemas.settings import LimitSettings

DEADLINE_S = 180.0
AT_ONCE = Backoff(0.01, 0.05, lambda: 0.5)
SEGMENT = SegmentOptions(0.4, SegmentBounds(1_000_000))


@dataclass
class Taken:
    """What came out of a live source."""

    frames: list[SourceFrame] = field(default_factory=list)
    broken: list[Unreadable] = field(default_factory=list)
    states: list[tuple[LiveState, str]] = field(default_factory=list)
    dropped: Counter[Drop] = field(default_factory=Counter)
    read: int = 0

    def count_of(self, state: LiveState) -> int:
        return sum(1 for each, _ in self.states if each is state)


def options(**changes: object) -> LiveOptions:
    # Long enough for a busy machine not to pass for a silent camera.
    network = NetworkOptions(timeout_s=60.0)
    return LiveOptions(**({"network": network, "backoff": AT_ONCE} | changes))


async def take(
    url: str,
    enough: Callable[[Taken], bool],
    *,
    how: LiveOptions | None = None,
    dial: Dial | None = None,
    buffer: int = 1_000,
    slowly_s: float = 0.0,
) -> Taken:
    """Frames of a camera until it is enough, or it ends by itself."""
    source = LiveSource(
        read_address(url, {}), how or options(), buffer=buffer, limits=LimitSettings()
    )
    taken = Taken()
    frames = source.frames(
        dial or Dial(90),
        lambda why, n: taken.dropped.update({why: n}),
        lambda state, note: taken.states.append((state, note)),
    )

    def look() -> None:
        came = source.arrivals()
        taken.read += came.read
        taken.dropped.update(came.dropped)

    async with asyncio.timeout(DEADLINE_S):
        async with aclosing(frames):
            async for found in frames:
                (taken.frames if isinstance(found, SourceFrame) else taken.broken).append(found)
                look()
                if enough(taken):
                    break
                await asyncio.sleep(slowly_s)
    look()
    return taken


@asynccontextmanager
async def meanwhile(work: Callable[[], None]) -> AsyncIterator[None]:
    """Do something blocking on the side."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    yield
    await task


def wait_for(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def unpacked(data: bytes) -> tuple[list[float], list[bytes]]:
    """A segment's frame times, seconds, and the NAL units of each packet without their lengths."""
    with av.open(io.BytesIO(data)) as container:
        payloads = []
        for packet in container.demux(video=0):
            raw, units = bytes(packet), []
            while raw:
                size = int.from_bytes(raw[:4], "big")
                units.append(raw[4 : 4 + size])
                raw = raw[4 + size :]
            if units:
                payloads.append(b"".join(units))
    with av.open(io.BytesIO(data)) as container:
        return [float(frame.time) for frame in container.decode(video=0)], payloads
