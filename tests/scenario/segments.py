"""Segments of video whose worker dies in the middle of them."""

from __future__ import annotations

import functools
import signal

from schemas.codec import write_frame
from schemas.frame import Encoding, FrameMessage
from tests.builders_video import a_segment
from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage

FRAMES = 12
STREAMS = 8


@functools.cache
def _video(encoding: Encoding) -> bytes:
    return a_segment(encoding.value, FRAMES)


def segment_of(stream: str, number: int) -> bytes:
    """The stream's segment of this number."""
    encoding = (Encoding.MP4, Encoding.TS, Encoding.MKV)[number % 3]
    frame = FrameMessage(
        stream_id=stream,
        seq=number * FRAMES,
        captured_at_us=number * FRAMES * 100_000,
        encoding=encoding,
        data=memoryview(_video(encoding)),
    )
    return write_frame(frame)


async def killed_in_mid_segment(rig: Rig, *, times: int, segments: int) -> Verdict:
    """The only worker is killed while it answers segments, again and again; each time a new one
    takes over. The account is settled by frames: each of every segment is answered, in order, and
    once where the guarantee says so. Duplicates: at most the frames of records at or above the
    offset that was committed.

    Args:
        rig: where.
        times: how often; at most twice, for a record that was inside three deaths is suspected.
        segments: of each stream.
    """
    stage = await Stage.build(rig, Plan(pace_ms=40.0))
    oracle, allowed = Oracle(stage), 0
    async with feed(stage) as feeding:
        for number in range(segments):
            for stream in (f"cam-{n}" for n in range(STREAMS)):
                await feeding.put(stream.encode(), segment_of(stream, number))
        await feeding.settle()
    assert await oracle.look()
    left = oracle.sent
    for number in range(times):
        # Of frames that are left, so many that some records get done, and a record's fewer than
        # this kill's share: each of them is inferred again until it is committed.
        stage.gate(FRAMES * (left // (times - number) - 1))
        async with stage.worker() as worker:
            await oracle.until_more(2)
            worker.send(signal.SIGKILL)
            assert await worker.ended() == -signal.SIGKILL
        assert await oracle.look()
        committed = await oracle.committed()
        left = oracle.sent - sum(committed.values())
        assert left, "all was done: the kill shows nothing"
        allowed += FRAMES * oracle.above(committed)
    stage.no_gate()
    async with stage.worker() as worker:
        await oracle.until_committed()
        await worker.drained()
    verdict = await oracle.verdict(allowed=allowed)
    assert oracle.results >= STREAMS * segments * FRAMES
    return verdict
