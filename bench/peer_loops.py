"""The loops most people write: poll, `cv2.imdecode`, `YOLO.predict`, produce.

One calls the model for each frame, the other for each poll. Otherwise they are as good as the
worker's client allows: answers are sent without waiting for each, and offsets committed per poll.
Both are written to `bench.contender`'s rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import msgspec
import numpy as np

from bench.contender import Meter, Order, Spent
from bench.kafka_load import kafka_settings
from workers.kafka_clients import (
    TopicPartition,
    make_consumer,
    make_producer,
    partition_numbers,
    start_client,
    stop_client,
)

IMGSZ = 640
"""What `predict` does by default: the longer side, the other padded to a multiple of 32 where all
pictures of a call are of one shape, else a square."""
POLL_MS = 200
POLL_RECORDS = 16

Box = tuple[float, float, float, float, float, int]
"""x1, y1, x2, y2 in source pixels, score, class id."""
Predict = Callable[[list[np.ndarray]], list[list[Box]]]


class PeerAnswer(msgspec.Struct, frozen=True):
    """What the loops send."""

    stream_id: str
    seq: int
    boxes: list[Box]


class _Frame(msgspec.Struct, frozen=True):
    stream_id: str
    seq: int
    data: memoryview


class PeerLoop:
    """One of the two loops, its model loaded and warm.

    Args:
        weights: an Ultralytics file.
        per_poll: call the model once for all frames of a poll.
    """

    def __init__(self, weights: str, *, per_poll: bool) -> None:
        from ultralytics import YOLO  # noqa: PLC0415

        self._yolo: Any = YOLO(weights)
        self._per_poll = per_poll
        blank = np.full((360, 640, 3), 114, np.uint8)
        self._predict([blank] * 2)

    async def round(self, order: Order) -> Spent:
        """Answer all frames of the input topic."""
        kafka = kafka_settings(order.bootstrap, order.group)
        consumer = make_consumer(kafka, max_poll_records=POLL_RECORDS)
        producer = make_producer(kafka)
        numbers = await partition_numbers(kafka, order.input)
        await start_client(consumer, kafka)
        await start_client(producer, kafka)
        try:
            meter, answered = Meter(), 0
            consumer.assign([TopicPartition(order.input, number) for number in numbers])
            while answered < order.frames:
                fetched = await consumer.getmany(timeout_ms=POLL_MS)
                if fetched and not answered:
                    meter.first()
                records = [record for batch in fetched.values() for record in batch]
                sent = [
                    await producer.send(order.output, msgspec.msgpack.encode(answer), key)
                    for key, answer in self._answers([(r.key, r.value) for r in records])
                ]
                await asyncio.gather(*sent)
                if sent:
                    await consumer.commit()
                answered += len(sent)
            return meter.spent(answered)
        finally:
            await stop_client(producer)
            await stop_client(consumer)

    def _answers(
        self, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[tuple[bytes | None, PeerAnswer]]:
        frames = [msgspec.msgpack.decode(value or b"", type=_Frame) for _, value in records]
        pictures = [_decoded(frame.data) for frame in frames]
        found: list[list[Box]] = []
        if self._per_poll and pictures:
            found = self._predict(pictures)
        elif pictures:
            found = [boxes for picture in pictures for boxes in self._predict([picture])]
        return [
            (key, PeerAnswer(frame.stream_id, frame.seq, boxes))
            for (key, _), frame, boxes in zip(records, frames, found, strict=True)
        ]

    def _predict(self, pictures: list[np.ndarray]) -> list[list[Box]]:
        results = self._yolo.predict(pictures, imgsz=IMGSZ, verbose=False, device="cpu")
        return [
            [(*row[:4], row[4], int(row[5])) for row in result.boxes.data.tolist()]
            for result in results
        ]


def _decoded(data: memoryview) -> np.ndarray:
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("a picture of the bench cannot be decoded")
    return picture
