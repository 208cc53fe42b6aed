"""Brokers that die, and a network that passes nothing or passes it late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.rig.kafka import KafkaCluster
from tests.rig.proxy import Proxy
from tests.scenario.feed import feed
from tests.scenario.oracle import DEADLINE_S, Oracle, Verdict
from tests.scenario.stage import PATIENT_MS, Plan, Rig, Stage
from workers.kafka_clients import make_admin, start_client, stop_client

WORK = 100


async def broker_restarts(rig: Rig, *, times: int) -> Verdict:
    """The only broker is killed and started again, on the same data; the worker lives on."""
    stage = await Stage.build(rig)
    (node,) = rig.cluster.nodes
    oracle, recovery_s = Oracle(stage), 0.0
    async with stage.worker() as worker:
        async with feed(stage, per_second=100.0):
            for _ in range(times):
                await oracle.until_more(WORK)
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                back_at = time.monotonic()
                await oracle.until_more()
                recovery_s = max(recovery_s, time.monotonic() - back_at)
        await oracle.until_all()
        assert worker.running
        await worker.drained()
    return await oracle.verdict(recovery_s=recovery_s)


async def lose_leader(rig: Rig) -> Verdict:
    """Of three brokers, the one that leads the output partition is killed under load."""
    async with _three_nodes(rig.folder / "three") as cluster:
        stage = await Stage.build(
            Rig(cluster, rig.folder, rig.guarantee), Plan(replicas=3, output_partitions=1)
        )
        oracle = Oracle(stage)
        async with stage.worker() as worker:
            async with feed(stage, per_second=100.0):
                await oracle.until_more(WORK)
                leader = await _leader(stage, stage.route.output)
                (node,) = [node for node in cluster.nodes if node.plan.node_id == leader]
                await asyncio.to_thread(node.kill)
                killed_at = time.monotonic()
                # What it had answered by then, as soon as another one leads.
                await oracle.until(lambda: True, "a new leader")
                await oracle.until_more()
                recovery_s = time.monotonic() - killed_at
                await oracle.until_more(WORK)
                assert await _leader(stage, stage.route.output) != leader
            await oracle.until_all()
            assert worker.running
            await worker.drained()
        return await oracle.verdict(recovery_s=recovery_s)


async def network_cut(rig: Rig, *, seconds: float) -> Verdict:
    """Between worker and broker nothing passes for a while; both live on."""
    async with _proxied(rig) as proxy:
        stage = await Stage.build(rig, Plan(address=proxy.address))
        oracle = Oracle(stage)
        async with stage.worker() as worker:
            async with feed(stage, per_second=100.0):
                await oracle.until_more(WORK)
                proxy.cut()
                await asyncio.sleep(seconds)
                assert await oracle.look()
                proxy.heal()
                recovery_s = await oracle.until_more()
                await oracle.until_more(WORK)
            await oracle.until_all()
            assert worker.running
            await worker.drained()
        return await oracle.verdict(recovery_s=recovery_s)


async def network_delay(rig: Rig, *, seconds: float, delay_s: float) -> Verdict:
    """Every chunk between worker and broker takes `delay_s` longer, both ways, for a while."""
    async with _proxied(rig) as proxy:
        patient = {"session_timeout_ms": PATIENT_MS}
        stage = await Stage.build(rig, Plan(address=proxy.address, kafka=patient))
        oracle = Oracle(stage)
        async with stage.worker() as worker:
            async with feed(stage, per_second=50.0):
                await oracle.until_more(WORK)
                proxy.delay_s = delay_s
                await asyncio.sleep(seconds)
                # Slowly, but they come all along.
                await oracle.until_more()
                proxy.delay_s = 0.0
                recovery_s = await oracle.until_more(WORK)
            await oracle.until_all()
            assert worker.times_said("partitions_assigned") == 1, "a delay is no reason to leave"
            await worker.drained()
        return await oracle.verdict(allowed=0, recovery_s=recovery_s)


@asynccontextmanager
async def _three_nodes(folder: Path) -> AsyncIterator[KafkaCluster]:
    cluster = KafkaCluster(folder, nodes=3, extra={"min.insync.replicas": "2"})
    try:
        await asyncio.to_thread(cluster.start)
        yield cluster
    finally:
        await asyncio.to_thread(cluster.stop)


def _proxied(rig: Rig) -> AbstractAsyncContextManager[Proxy]:
    (node,) = rig.cluster.nodes
    assert node.plan.proxy_port is not None
    assert node.plan.proxied_port is not None
    return Proxy(node.plan.proxy_port, node.plan.proxied_port).listening()


async def _leader(stage: Stage, topic: str) -> int:
    """The node that leads partition 0; asked again while there is none."""
    admin = make_admin(stage.direct)
    await start_client(admin, stage.direct)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                # Untyped in the library.
                described: list[dict[str, Any]] = await admin.describe_topics([topic])
                (partition,) = described[0]["partitions"]
                if partition["leader"] >= 0:
                    return int(partition["leader"])
                await asyncio.sleep(0.1)
    finally:
        await stop_client(admin)
