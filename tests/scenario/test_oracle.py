"""The oracle finds every fault that it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.result import Status
from tests.integration.answers import Answered, answer
from tests.integration.kit import Bench
from tests.rig.kafka import KafkaCluster
from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Rig, Stage

KEPT = Verdict(
    frames=10, lost=0, duplicated=0, allowed=0, out_of_order=0, statuses={"ok": 9, "bad_header": 1},
    dead_letters=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"frames": 0}, ["nothing was sent"]),
        ({"lost": 2}, ["2 of 10 records were lost"]),
        ({"duplicated": 1}, ["1 duplicates, at most 0 may be"]),
        ({"duplicated": 1, "allowed": 1}, []),
        ({"duplicated": 99, "allowed": None}, []),
        ({"out_of_order": 1}, ["1 answers out of order"]),
        ({"dead_letters": 0}, ["1 dead letters, not 0"]),
        ({"strange": 3}, ["3 answers to nothing"]),
    ],
)
def test_a_verdict_names_what_breaks_the_promise(
    change: dict[str, int | None], said: list[str]
) -> None:
    values = {name: getattr(KEPT, name) for name in KEPT.__dataclass_fields__}
    assert Verdict(**(values | change)).faults() == said


@pytest.mark.broker
async def test_lost_doubled_and_overtaken_answers_are_seen(
    kafka_rig: KafkaCluster, tmp_path: Path
) -> None:
    stage = await Stage.build(Rig(kafka_rig, tmp_path))
    oracle, bench = Oracle(stage), Bench(stage.settings)
    async with feed(stage) as feeding:
        for _ in range(6):
            # One stream, so one partition: the one whose answers are written by hand.
            await feeding.put(b"cam", b"whatever")
    assert await oracle.look()
    (partition,) = [number for number, end in oracle.ends.items() if end]
    assert (oracle.sent, oracle.answered) == (6, 0)

    def answered(offset: int, status: Status | None = Status.OK) -> Answered:
        return Answered(offset, status, partition)

    await answer(bench, answered(0), answered(2), answered(1), answered(1), answered(3, None))
    assert await oracle.look()
    assert oracle.answered == 4
    assert oracle.above({partition: 2}) == 2
    verdict = await oracle.verdict(allowed=0, dead_letters=1)
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (2, 1, 1)
    assert verdict.statuses["ok"] == 3

    await answer(bench, answered(4), answered(5), answered(77))
    assert await oracle.look()
    verdict = await oracle.verdict(dead_letters=1)
    assert (verdict.lost, verdict.strange) == (0, 1)
