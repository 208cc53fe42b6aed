"""A stage: the topics, the group, the settings and the worker processes of one scenario."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from frameloom.scan import Isolation
from schemas import settings as keys
from schemas.settings import (
    BucketSettings,
    DeliverySettings,
    DeviceSettings,
    FlowSettings,
    HttpSettings,
    KafkaSettings,
    LifecycleSettings,
    LimitSettings,
    RouteSettings,
    Settings,
)
from tests.fakes.pace import Pace
from tests.fakes.paced_worker import paced
from tests.rig.kafka import KafkaCluster
from tests.scenario.worker_main import ForkedProcess
from tests.scenario.worker_process import (
    Command,
    WorkerProcess,
    new_files,
    watched,
    worker_process,
)
from workers.kafka_clients import TopicSpec, create_topics

SESSION_MS = 6_000
"""Kafka's own floor, because scenarios wait for the end of dead workers' sessions."""
PATIENT_MS = 60_000
"""Where nobody dies, and who leaves the group has failed."""
HELD_MS = 600_000
"""No worker ends because its model is held at the gate for a while."""
BUDGET_MS = 100_000
"""For what ends early when nothing is wrong. Scenarios about budgets have their own."""
PARTITIONS = 4

BUCKETS = [
    BucketSettings(name="small", max_source_pixels=5_000, height=32, width=64, max_batch=8),
    BucketSettings(name="large", max_source_pixels=50_000_000, height=64, width=96, max_batch=8),
]


@dataclass(frozen=True)
class Guarantee:
    """What a worker promises, and how its answers are to be read.

    Attributes:
        name: in the table.
        delivery: the settings that make it.
        isolation: of a reader of its answers.
        duplicates: whether an answer may come twice after a failure.
    """

    name: str
    delivery: DeliverySettings
    isolation: Isolation
    duplicates: bool


AT_LEAST_ONCE = Guarantee(
    "at least once",
    DeliverySettings(commit_interval_ms=500),
    Isolation.UNCOMMITTED,
    duplicates=True,
)

EXACTLY_ONCE = Guarantee(
    "exactly once",
    DeliverySettings(guarantee=keys.Guarantee.EXACTLY_ONCE),
    Isolation.COMMITTED,
    duplicates=False,
)


@dataclass(frozen=True)
class Rig:
    """What a scenario is given.

    Attributes:
        cluster: a real Kafka that the scenario may stop, kill and start again.
        folder: its own, empty.
        guarantee: what its workers promise.
    """

    cluster: KafkaCluster
    folder: Path
    guarantee: Guarantee = AT_LEAST_ONCE


@dataclass(frozen=True)
class Plan:
    """What is special about a stage. `kafka` and `lifecycle` replace single settings.

    Attributes:
        address: where workers find the broker; the cluster's own address when None.
        pace_ms: how long a batch takes on the scenarios' lane.
        replicas: of every topic.
        output: settings of the output topic.
        output_partitions: how many it has.
        dead_letters: whether the dead-letter topic exists at the start.
        real_model: whether workers run the real lane.
    """

    address: str | None = None
    pace_ms: float = 15.0
    replicas: int = 1
    output: Mapping[str, str] = field(default_factory=dict[str, str])
    output_partitions: int = PARTITIONS
    dead_letters: bool = True
    real_model: bool = False
    kafka: Mapping[str, int] = field(default_factory=dict[str, int])
    lifecycle: Mapping[str, int] = field(default_factory=dict[str, int])
    flow: FlowSettings = field(default_factory=FlowSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)


class Stage:
    """Made by `Stage.build`.

    Attributes:
        settings: the workers'.
        direct: the connection for those who watch: never through a proxy.
    """

    def __init__(self, rig: Rig, plan: Plan, settings: Settings) -> None:
        self.rig = rig
        self.plan = plan
        self.settings = settings
        self.direct = msgspec.structs.replace(
            settings.kafka, bootstrap_servers=rig.cluster.bootstrap_servers
        )
        self._pace_file = rig.folder / "pace"
        self._pace = Pace(0.0 if plan.real_model else plan.pace_ms)
        self._pace.write(self._pace_file)

    @classmethod
    async def build(cls, rig: Rig, plan: Plan | None = None) -> Stage:
        """New topics and a new group."""
        plan = plan or Plan()
        stage = cls(rig, plan, _settings(rig, plan))
        await create_topics(stage.direct, stage.topics())
        return stage

    @property
    def route(self) -> RouteSettings:
        return self.settings.routes[0]

    @property
    def answer_topics(self) -> dict[str, int]:
        """Topic → number of its partitions."""
        return {self.route.output: self.plan.output_partitions, self.route.dead_letter: 1}

    def topics(self) -> list[TopicSpec]:
        replicas = self.plan.replicas
        specs = [
            TopicSpec(self.route.input, PARTITIONS, replicas),
            TopicSpec(
                self.route.output, self.plan.output_partitions, replicas, dict(self.plan.output)
            ),
        ]
        return [*specs, self.dead_letter_topic()] if self.plan.dead_letters else specs

    def dead_letter_topic(self) -> TopicSpec:
        return TopicSpec(self.route.dead_letter, 1, self.plan.replicas)

    def pace(self, batch_ms: float) -> None:
        """How long each batch takes from now on."""
        self._set(replace(self._pace, batch_ms=batch_ms))

    def gate(self, frames: int) -> None:
        """How many frames each process may infer in all, from now on."""
        self._set(replace(self._pace, gate=frames))

    def no_gate(self) -> None:
        """As many as come."""
        self._set(replace(self._pace, gate=math.inf))

    def _set(self, pace: Pace) -> None:
        self._pace = pace
        pace.write(self._pace_file)

    @asynccontextmanager
    async def worker(
        self,
        settings: Settings | None = None,
        *,
        assigned: bool = True,
        command: Command | None = None,
    ) -> AsyncIterator[WorkerProcess]:
        """One worker process more, with partitions unless `assigned` is False. `command` starts
        another program than the scenarios' worker."""
        chosen, folder = settings or self.settings, self.rig.folder
        if self.plan.real_model:
            command = paced(self._pace_file)
        if command is not None:
            async with worker_process(chosen, folder, command) as worker:
                yield worker
            return
        config, log = new_files(chosen, folder)
        async with watched(ForkedProcess(config, self._pace_file, log), log) as worker:
            if assigned:
                await worker.until_said("partitions_assigned")
            yield worker


def _settings(rig: Rig, plan: Plan) -> Settings:
    def name(stem: str) -> str:
        return f"{stem}-{uuid.uuid4().hex[:10]}"

    kafka = KafkaSettings(
        bootstrap_servers=plan.address or rig.cluster.bootstrap_servers,
        group_id=name("group"),
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 4,
        rebalance_timeout_ms=BUDGET_MS + 20_000,
    )
    lifecycle = LifecycleSettings(
        drain_timeout_ms=BUDGET_MS,
        revoke_timeout_ms=BUDGET_MS,
        stall_timeout_ms=HELD_MS,
        journal_dir=str(rig.folder / "journal"),
    )
    route = RouteSettings(
        input=name("in"), output=name("out"), dead_letter=name("dlq"), buckets=BUCKETS
    )
    return Settings(
        kafka=msgspec.structs.replace(kafka, **plan.kafka),
        routes=[route],
        limits=plan.limits,
        flow=plan.flow,
        delivery=rig.guarantee.delivery,
        device=DeviceSettings(stage_timeout_ms=HELD_MS),
        lifecycle=msgspec.structs.replace(lifecycle, **plan.lifecycle),
        http=HttpSettings(port=0),
    )
