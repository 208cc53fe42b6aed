"""The worker on the embedded broker: what the demo and quick trials stand on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.settings import KafkaSettings
from tests.assertions import each_once, in_offset_order
from tests.integration.kit import Sent, a_bench, a_jpeg, fake_machinery, running, sources
from workers.worker import Worker

pytestmark = pytest.mark.broker


async def test_every_frame_is_answered_once_in_order_and_committed(
    embedded_broker: str, unique: Callable[[str], str]
) -> None:
    # It holds a group's first member back for half its session.
    kafka = KafkaSettings(
        session_timeout_ms=2_000, heartbeat_interval_ms=400, rebalance_timeout_ms=20_000
    )
    bench = await a_bench(embedded_broker, unique, kafka=kafka)
    sent = await bench.send(
        *(Sent(a_jpeg(), key=f"cam-{n % 3}".encode()) for n in range(30)), Sent(b"no frame")
    )
    async with running(Worker(bench.settings, fake_machinery(bench.settings))):
        results = await bench.results(30)
        await bench.dead_letters(1)
    each_once(sources(results), sent[:-1])
    in_offset_order(results)
    assert await bench.committed() == len(sent)
