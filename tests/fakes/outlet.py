"""An outlet of the sender whose producer acknowledges when the test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from frameloom.sender import Outlet, ProduceOptions, Sender
from frameloom.sources import SourceFrame
from frameloom.tally import Tally
from schemas.frame import Encoding


@dataclass
class SlowProducer:
    """Acknowledges when the test says so."""

    waiting: list[asyncio.Future[object]] = field(default_factory=list)
    refusal: Exception | None = None

    async def send(self, topic: str, value: bytes, **_: object) -> asyncio.Future[object]:
        if self.refusal is not None:
            raise self.refusal
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future


def an_outlet(*, live: bool, **options: object) -> tuple[Outlet, SlowProducer, Sender]:
    producer = SlowProducer()
    how = ProduceOptions(topic="frames", **options)
    sender = Sender(producer, how, Tally())
    return sender.outlet("gate", live=live), producer, sender


def a_frame(number: int = 0, **fields: object) -> SourceFrame:
    return SourceFrame(f"f{number}", Encoding.JPEG, b"\xff\xd8\xff" * 10, **fields)
