"""The example producer's frames, read by the worker's codec."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.codec import RawRecord, read_frame
from schemas.frame import Encoding
from schemas.settings import KafkaSettings, LimitSettings
from tests.builders_pictures import jpeg, picture, png, webp
from tests.examples.builds import EXAMPLES
from tests.examples.kit import TIMEOUT_S, run
from workers.kafka_clients import (
    Record,
    TopicSpec,
    create_topics,
    make_consumer,
    start_client,
    stop_client,
)

pytestmark = pytest.mark.broker


def read(broker: str, topic: str, count: int) -> list[Record]:
    async def go() -> list[Record]:
        kafka = KafkaSettings(bootstrap_servers=broker)
        consumer = make_consumer(kafka, topic, group=False, auto_offset_reset="earliest")
        await start_client(consumer, kafka)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return [await consumer.getone() for _ in range(count)]
        finally:
            await stop_client(consumer)

    return asyncio.run(go())


def test_the_worker_reads_what_the_producer_sends(
    broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    pixels = picture(24, 16)
    pictures = {"a.JPG": jpeg(pixels), "b.png": png(pixels), "c.webp": webp(pixels)}
    for name, data in pictures.items():
        (tmp_path / name).write_bytes(data)
    topic = unique("frames")
    asyncio.run(create_topics(KafkaSettings(bootstrap_servers=broker), [TopicSpec(topic)]))

    producer = (sys.executable, str(EXAMPLES / "python" / "producer.py"))
    options = ("--bootstrap", broker, "--topic", topic, "--stream", "yard", "--first-seq", "5")
    done = run(producer, tmp_path, *options, "--fps", "50", *pictures)
    assert (done.returncode, done.stdout) == (0, "sent 3 frames of yard\n"), done.stderr

    records = read(broker, topic, 3)
    frames = [
        read_frame(
            RawRecord(r.topic, r.partition, r.offset, r.key, r.value, r.timestamp, ()),
            LimitSettings(),
        )
        for r in records
    ]
    assert [record.key for record in records] == [b"yard"] * 3
    assert [(f.stream_id, f.seq, f.interval_us) for f in frames] == [
        ("yard", seq, 20_000) for seq in (5, 6, 7)
    ]
    assert [f.encoding for f in frames] == [Encoding.JPEG, Encoding.PNG, Encoding.WEBP]
    assert [bytes(f.data) for f in frames] == list(pictures.values())
    assert all(
        abs(f.captured_at_us - r.timestamp * 1000) < 3_600e6
        for f, r in zip(frames, records, strict=True)
    )
