"""Answers put on a topic without a worker, as the audit finds them."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.codec import write_result
from schemas.result import ResultMessage, Source, Status, Times
from tests.integration.kit import Bench
from workers.kafka_clients import (
    make_producer,
    start_client,
    stop_client,
)

NO_TIMES = Times(
    received_us=0, batched_us=0, started_us=0, finished_us=0,
    decode_ms=0.0, infer_ms=0.0, post_ms=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class Answered:
    """An answer to put on a topic; a dead letter where `status` is None."""

    offset: int
    status: Status | None = Status.OK
    partition: int = 0


def result_of(bench: Bench, answered: Answered, stream: str = "cam") -> bytes:
    assert answered.status is not None
    source = Source(bench.route.input, answered.partition, answered.offset)
    return write_result(
        ResultMessage(
            stream_id=stream, seq=0, captured_at_us=0, status=answered.status, width=0, height=0,
            times=NO_TIMES, source=source,
        )
    )  # fmt: skip


async def answer(bench: Bench, *answers: Answered, stream: str = "cam") -> None:
    """Answers as a worker writes them, in this order."""
    producer = make_producer(bench.kafka)
    await start_client(producer, bench.kafka)
    try:
        for each in answers:
            if each.status is None:
                source = f"{bench.route.input}/{each.partition}/{each.offset}".encode()
                await producer.send_and_wait(
                    bench.route.dead_letter, b"x", b"cam", headers=[("fl-source", source)]
                )
            else:
                await producer.send_and_wait(
                    bench.route.output, result_of(bench, each, stream), b"cam"
                )
    finally:
        await stop_client(producer)
