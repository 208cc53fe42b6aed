"""How fast `frameloom audit` is and what memory it takes:
`python -m bench.audit --bootstrap HOST:PORT [--records N] [--streams S] [--json]`.

Puts N small frames on a new input topic and an answer to each on new output and dead-letter topics
(one in a hundred is a dead letter, the results have 20 detections), then audits them in a process
of its own and takes time and peak memory from the operating system. Needs a broker that keeps them
all; the topics stay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from schemas.codec import write_frame, write_result
from schemas.errors import ConfigError
from schemas.frame import Encoding, FrameMessage
from schemas.result import Detection, ResultMessage, Source, Status, Times
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    AIOKafkaProducer,
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
    stop_client,
)

BATCH_BYTES = 512 * 1024
DEAD_EVERY = 100
DETECTIONS = [Detection((10.5, 20.5, 110.5, 220.5), 0.87, n % 5, "person") for n in range(20)]
NO_TIMES = Times(
    received_us=0, batched_us=0, started_us=0, finished_us=0,
    decode_ms=0.0, infer_ms=0.0, post_ms=0.0,
)  # fmt: skip

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is put on the topics. `streams` and `records` are spread evenly over `partitions`."""

    bootstrap: str
    records: int
    streams: int
    partitions: int

    def stream(self, partition: int, offset: int) -> str:
        return f"cam-{partition + self.partitions * (offset % (self.streams // self.partitions))}"


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one run."""

    input: str
    output: str
    dead_letter: str


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send."""

    key: str
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Cost:
    """What one audit took: wall and CPU seconds, peak resident memory (MiB), exit code."""

    records: int
    answers: int
    streams: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    exit_code: int


async def fill(plan: Plan) -> Topics:
    """Create and fill the topics."""
    kafka = KafkaSettings(bootstrap_servers=plan.bootstrap)
    stem = f"bench-audit-{uuid.uuid4().hex[:8]}"
    topics = Topics(f"{stem}.in", f"{stem}.out", f"{stem}.dlq")
    names = (topics.input, topics.output, topics.dead_letter)
    await create_topics(kafka, [TopicSpec(name, plan.partitions) for name in names])
    producer = make_producer(kafka, max_batch_bytes=2 * BATCH_BYTES)
    await start_client(producer, kafka)
    try:
        for partition in range(plan.partitions):
            await _send(producer, topics.input, partition, _frames(plan, partition))
            await _send(producer, topics.output, partition, _results(plan, topics, partition))
            await _send(producer, topics.dead_letter, partition, _letters(plan, topics, partition))
    finally:
        await stop_client(producer)
    return topics


def audit(plan: Plan, topics: Topics) -> Cost:
    """Run the command and ask the operating system what it took."""
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "frameloom", "audit", "--json", "--through", "end",
            "--bootstrap", plan.bootstrap, "--input", topics.input, "--output", topics.output,
            "--dead-letter", topics.dead_letter,
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    return Cost(
        records=plan.records,
        answers=plan.records,
        streams=plan.streams,
        wall_s=round(time.monotonic() - began, 1),
        cpu_s=round(usage.ru_utime + usage.ru_stime, 1),
        peak_mib=round(usage.ru_maxrss / 1024, 1),
        exit_code=os.waitstatus_to_exitcode(status),
    )


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, messages: Iterator[Message]
) -> None:
    """Batches as large as the broker takes: a record at a time would take a minute more."""
    builder, open_bytes = producer.create_batch(), 0
    for message in messages:
        if open_bytes > BATCH_BYTES:
            builder.close()
            await (await producer.send_batch(builder, topic, partition=partition))
            builder, open_bytes = producer.create_batch(), 0
        added = builder.append(
            timestamp=None, key=message.key.encode(), value=message.value, headers=message.headers
        )
        if added is None:
            raise RuntimeError("a message does not fit its batch")
        open_bytes += len(message.value) + 64
    builder.close()
    await (await producer.send_batch(builder, topic, partition=partition))


def _frames(plan: Plan, partition: int) -> Iterator[Message]:
    for offset in range(plan.records // plan.partitions):
        stream = plan.stream(partition, offset)
        frame = FrameMessage(
            stream_id=stream, seq=offset, captured_at_us=offset, encoding=Encoding.JPEG,
            data=memoryview(b"\xff\xd8\xff" + b"\0" * 61),
        )  # fmt: skip
        yield Message(stream, write_frame(frame), [])


def _results(plan: Plan, topics: Topics, partition: int) -> Iterator[Message]:
    for offset in range(plan.records // plan.partitions):
        if offset % DEAD_EVERY == 0:
            continue
        stream = plan.stream(partition, offset)
        result = ResultMessage(
            stream_id=stream, seq=offset, captured_at_us=offset, status=Status.OK,
            width=640, height=480, detections=DETECTIONS, times=NO_TIMES,
            source=Source(topics.input, partition, offset),
        )  # fmt: skip
        yield Message(stream, write_result(result), [])


def _letters(plan: Plan, topics: Topics, partition: int) -> Iterator[Message]:
    for offset in range(0, plan.records // plan.partitions, DEAD_EVERY):
        source = f"{topics.input}/{partition}/{offset}".encode()
        yield Message(plan.stream(partition, offset), b"x" * 80, [("fl-source", source)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of frameloom audit")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plan = Plan(options.bootstrap, options.records, options.streams, options.partitions)
    if plan.records % plan.partitions or plan.streams % plan.partitions:
        raise ConfigError("--records and --streams must be multiples of --partitions")
    cost = audit(plan, asyncio.run(fill(plan)))
    if options.json:
        print(json.dumps(asdict(cost)))
        return
    print(
        f"{cost.records:,} records, {cost.answers:,} answers, {cost.streams:,} streams: "
        f"{cost.wall_s} s, {cost.cpu_s} s of CPU, peak {cost.peak_mib} MiB, exit {cost.exit_code}"
    )


if __name__ == "__main__":
    main()
