"""Records that the command `produce` sent."""

from __future__ import annotations

import asyncio

from frameloom.reader import TopicReader
from schemas.codec import read_frame
from schemas.frame import FrameMessage
from schemas.record import RawRecord
from schemas.settings import KafkaSettings, LimitSettings

LIMITS = LimitSettings()
DEADLINE_S = 180.0
"""How long anything that must happen may take, on a machine that is busy with other things."""
PAUSE_S = 0.1


def records_of(broker: str, topic: str) -> list[RawRecord]:
    async def read() -> list[RawRecord]:
        async with TopicReader(
            KafkaSettings(bootstrap_servers=broker), topic, from_start=True
        ) as reader:
            return [record async for record in reader.up_to_now()]

    return asyncio.run(read())


def frames_of(broker: str, topic: str) -> list[FrameMessage]:
    frames = [read_frame(record, LIMITS) for record in records_of(broker, topic)]
    return sorted(frames, key=lambda frame: (frame.stream_id, frame.seq))
