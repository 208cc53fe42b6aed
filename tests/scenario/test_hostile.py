"""Pictures that crash or hang native code end as dead letters, and their neighbours do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.errors import Reason
from schemas.frame import Encoding
from schemas.settings import Guarantee
from tests.assertions import none_lost
from tests.builders_video import a_segment
from tests.fakes.hostile_worker import CRASH, HANG, STUCK, supervised
from tests.integration.kit import (
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    envelope,
    mortal,
    reader,
    sources,
)
from tests.rig.choice import BrokerKind, broker_kind
from tests.scenario.hostile import hostile
from tests.scenario.worker_process import worker_process
from workers.kafka_clients import Record

pytestmark = pytest.mark.broker


FRAMES = 48
STAGE_TIMEOUT_MS = 8_000


async def a_hostile_bench(broker: str, unique: Unique, folder: Path, guarantee: Guarantee) -> Bench:
    bench = await a_bench(broker, unique, partitions=2, kafka=mortal())
    settings = bench.settings
    return replace(
        bench,
        settings=msgspec.structs.replace(
            settings,
            delivery=msgspec.structs.replace(settings.delivery, guarantee=guarantee),
            device=msgspec.structs.replace(settings.device, stage_timeout_ms=STAGE_TIMEOUT_MS),
            lifecycle=msgspec.structs.replace(
                settings.lifecycle, journal_dir=str(folder / "journal")
            ),
        ),
    )


async def answers(bench: Bench, count: int) -> tuple[list[Coordinates], dict[Coordinates, Record]]:
    """Sources of the results, and the dead letters by source, once `count` records have one."""
    results: list[Coordinates] = []
    dead: dict[Coordinates, Record] = {}
    async with (
        reader(bench.kafka, bench.route.output) as output,
        reader(bench.kafka, bench.route.dead_letter) as letters,
    ):
        while len({*results, *dead}) < count:
            for records in (await output.getmany(timeout_ms=200)).values():
                results += sources([read_result(record.value) for record in records])
            for records in (await letters.getmany(timeout_ms=200)).values():
                dead |= {source_of(record): record for record in records}
    return results, dead


def source_of(letter: Record) -> Coordinates:
    topic, partition, offset = dict(letter.headers)["fl-source"].decode().rsplit("/", 2)
    return Coordinates(topic, int(partition), int(offset))


@pytest.mark.parametrize(
    ("marks", "reasons", "guarantee"),
    [
        (
            {20: CRASH, 22: HANG},
            {20: Reason.CRASH, 22: Reason.TIMEOUT},
            Guarantee.AT_LEAST_ONCE,
        ),
        ({20: STUCK}, {20: Reason.TIMEOUT}, Guarantee.EXACTLY_ONCE),
    ],
    ids=["one crashes and one hangs", "one hangs and keeps the interpreter"],
)
async def test_hostile_pictures_end_as_dead_letters_and_their_neighbours_are_answered(
    broker: str,
    unique: Unique,
    tmp_path: Path,
    marks: dict[int, bytes],
    reasons: dict[int, Reason],
    guarantee: Guarantee,
) -> None:
    if broker_kind() is BrokerKind.EMBEDDED:
        guarantee = Guarantee.AT_LEAST_ONCE  # it has no transactions
    bench = await a_hostile_bench(broker, unique, tmp_path, guarantee)
    sent = await bench.send(
        *(
            Sent(
                hostile(marks[n]) if n in marks else a_jpeg(),
                key=f"cam-{n % 6}".encode(),
                partition=n % 2,
            )
            for n in range(FRAMES)
        )
    )
    async with worker_process(bench.settings, tmp_path, supervised) as worker:
        results, dead = await answers(bench, FRAMES)
        await worker.drained()
    none_lost([*results, *dead], sent)
    by_number = {sent.index(at): record for at, record in dead.items()}
    assert {n: dict(r.headers)["fl-reason"].decode() for n, r in by_number.items()} == {
        n: reason.value for n, reason in reasons.items()
    }
    for n, record in by_number.items():
        headers = dict(record.headers)
        assert record.value == hostile(marks[n])
        assert headers["fl-stage"] == b"decode"
        assert int(headers["fl-attempts"]) == 2
    assert not list((tmp_path / "journal").glob("*/*.journal")), "an orderly end leaves none"


async def test_a_segment_that_crashes_its_reader_ends_as_a_dead_letter_and_its_neighbours_do_not(
    broker: str, unique: Unique, tmp_path: Path
) -> None:
    bench = await a_hostile_bench(broker, unique, tmp_path, Guarantee.AT_LEAST_ONCE)
    video = a_segment("mp4", 6)

    def a_record(number: int) -> Sent:
        if number % 4:
            return Sent(a_jpeg(), key=b"cam-%d" % (number % 3), partition=number % 2)
        # What stands behind a file's end hurts no reader but this one.
        data = video + CRASH if number == 8 else video
        value = envelope("cam", 100 * number, encoding=Encoding.MP4, data=memoryview(data))
        return Sent(value, key=b"cam", partition=number % 2)

    sent = await bench.send(*map(a_record, range(24)))
    async with worker_process(bench.settings, tmp_path, supervised) as worker:
        results, dead = await answers(bench, 24)
        await worker.drained()
    none_lost([*results, *dead], sent)
    assert set(dead) == {sent[8]}
    headers = dict(dead[sent[8]].headers)
    assert (headers["fl-reason"], headers["fl-stage"]) == (b"crash", b"segment")
    assert int(headers["fl-attempts"]) == 2
    assert {sent[n] for n in (0, 4, 12, 16, 20)} <= set(results)
