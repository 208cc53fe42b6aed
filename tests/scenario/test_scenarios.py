"""Every scenario, short: nothing lost, nothing out of order, no duplicate that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.kafka import KafkaCluster
from tests.scenario.catalogue import SCENARIOS, Scenario
from tests.scenario.stage import Rig

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.tested], ids=lambda each: each.name
)
async def test_the_promise_is_kept(
    scenario: Scenario, kafka_rig: KafkaCluster, tmp_path: Path
) -> None:
    verdict = await scenario.scene(Rig(kafka_rig, tmp_path, scenario.guarantee), **scenario.short)
    assert verdict.faults() == []
