"""`frameloom dlq replay` against a broker, and what a worker makes of replayed records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from frameloom.cli import main
from frameloom.dlq import DeadLetter, read_dead_letter
from frameloom.reader import TopicReader
from schemas.record import RawRecord
from tests.integration.kit import (
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    envelope,
    fake_machinery,
    running,
)
from workers.kafka_clients import (
    Record,
    TopicPartition,
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
)
from workers.kafka_clients import stop_client as stop
from workers.worker import Worker

pytestmark = pytest.mark.broker


@dataclass(frozen=True)
class Letter:
    """A dead letter to put on the topic; of the record at `offset` of the input."""

    offset: int
    key: bytes | None = b"cam"
    value: bytes | None = b"poison"
    reason: str = "decode_failed"
    at_us: int = 1_000_000
    attempts: int = 1
    partition: int = 0
    source: str | None = None
    """Other text for `fl-source`."""


async def put_letters(bench: Bench, *letters: Letter) -> None:
    producer = make_producer(bench.kafka)
    await start_client(producer, bench.kafka)
    try:
        for each in letters:
            source = each.source
            if source is None:
                source = f"{bench.route.input}/{each.partition}/{each.offset}"
            headers = {
                "site": "north", "fl-reason": each.reason, "fl-source": source,
                "fl-attempts": str(each.attempts), "fl-at": str(each.at_us),
            }  # fmt: skip
            await producer.send_and_wait(
                bench.route.dead_letter,
                each.value,
                each.key,
                headers=[(name, text.encode()) for name, text in headers.items()],
            )
    finally:
        await stop(producer)


@dataclass(frozen=True)
class Said:
    code: int
    lines: list[dict[str, object]]
    err: str

    @property
    def letters(self) -> list[int]:
        """Offsets of the letters that were replayed."""
        return [int(str(x["letter"]).rpartition("/")[2]) for x in self.lines if x["target"]]


Ask = Callable[..., Said]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command. The tests are synchronous because it owns an event loop of its own."""

    def run(bench: Bench, *options: str) -> Said:
        capsys.readouterr()
        where = ["--bootstrap", bench.kafka.bootstrap_servers, "--topic", bench.route.dead_letter]
        code = main(["dlq", "replay", "--json", *where, *options])
        said = capsys.readouterr()
        return Said(code, [json.loads(line) for line in said.out.splitlines()], said.err)

    return run


def with_letters(broker: str, unique: Unique, *letters: Letter, partitions: int = 1) -> Bench:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique, partitions=partitions)
        await put_letters(bench, *letters)
        return bench

    return asyncio.run(scene())


def everything(bench: Bench, topic: str, count: int) -> list[Record]:
    return asyncio.run(bench.read(topic, count))


def test_a_letter_goes_back_as_it_was_with_its_attempts(
    broker: str, unique: Unique, ask: Ask
) -> None:
    bench = with_letters(
        broker, unique, Letter(4, key=b"\xff\x00", value=b"bytes" * 1_000, attempts=3)
    )
    said = ask(bench)

    (record,) = everything(bench, bench.route.input, 1)
    assert said.code == 0
    assert said.lines[0]["target"] == f"{bench.route.input}/0/0"
    assert (record.key, record.value) == (b"\xff\x00", b"bytes" * 1_000)
    assert list(record.headers) == [
        ("site", b"north"),
        ("fl-attempts", b"3"),
        ("fl-replayed-from", f"{bench.route.dead_letter}/0/0".encode()),
    ]


def test_a_dry_run_sends_nothing(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(broker, unique, Letter(0), Letter(1))
    said = ask(bench, "--dry-run")

    assert (said.code, said.letters) == (0, [0, 1])
    assert "2 would be replayed, 0 failed" in said.err
    assert ask(bench, "--limit", "1").lines[0]["target"] == f"{bench.route.input}/0/0"


def test_only_what_is_asked_for_is_replayed(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(
        broker,
        unique,
        Letter(0),
        Letter(1, reason="bad_header"),
        Letter(2, key=b"gate"),
        Letter(3, at_us=5_000_000),
        Letter(4, at_us=9_000_000),
    )
    chosen = {
        ("--reason", "bad_header"): [1],
        ("--stream", "gate"): [2],
        ("--since", "1970-01-01T00:00:05"): [3, 4],
        ("--since", "1970-01-01T00:00:05", "--until", "1970-01-01T00:00:09"): [3],
        ("--source", f"{bench.route.input}/0/2"): [2],
        ("--limit", "2"): [0, 1],
        ("--since", "1h"): [],
    }
    for options, letters in chosen.items():
        assert ask(bench, "--dry-run", *options).letters == letters, options


def test_a_record_that_was_dead_lettered_twice_is_replayed_once(
    broker: str, unique: Unique, ask: Ask
) -> None:
    bench = with_letters(broker, unique, Letter(0), Letter(0), Letter(1))

    assert ask(bench).letters == [0, 2]


def test_letters_that_came_back_meanwhile_are_left(
    broker: str, unique: Unique, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = with_letters(broker, unique, Letter(3), Letter(4), Letter(9, attempts=2))

    async def before_the_last(_reader: TopicReader) -> dict[TopicPartition, int]:
        return {TopicPartition(bench.route.dead_letter, 0): 2}

    # The third arrives after the end was looked up, and is read together with the others.
    monkeypatch.setattr(TopicReader, "_ends", before_the_last)
    assert ask(bench).letters == [0, 1]


def test_a_record_goes_back_to_its_partition_with_and_without_a_key(
    broker: str, unique: Unique, ask: Ask
) -> None:
    letters = [Letter(n, key=key, partition=1) for n, key in enumerate([b"cam", b"gate", None])]
    bench = with_letters(broker, unique, *letters, partitions=2)

    said = ask(bench)
    assert [line["target"] for line in said.lines] == [
        f"{bench.route.input}/1/{offset}" for offset in range(3)
    ]


def test_records_can_be_sent_elsewhere(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(broker, unique, Letter(0), Letter(1, value=None))
    other = unique("quarantine")
    asyncio.run(create_topics(bench.kafka, [TopicSpec(other)]))

    assert ask(bench, "--to", other).code == 0
    assert [record.value for record in everything(bench, other, 2)] == [b"poison", None]


def test_what_cannot_be_replayed_is_named_and_fails(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(
        broker, unique, Letter(0, source="nonsense"), Letter(1, source="no-such/0/1"), Letter(2)
    )
    said = ask(bench)

    assert (said.code, said.letters) == (1, [2])
    assert "fl-source" in str(said.lines[0]["failure"])
    assert "no topic 'no-such'" in str(said.lines[1]["failure"])
    assert "1 replayed, 2 failed" in said.err


def test_a_record_over_the_limit_fails_alone(
    broker: str, unique: Unique, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = with_letters(broker, unique, Letter(0, value=b"x" * 200_000), Letter(1))
    monkeypatch.setenv("FRAMELOOM__LIMITS__MAX_RECORD_BYTES", "1000")

    said = ask(bench)
    assert (said.code, said.letters) == (1, [1])
    assert "MessageSizeTooLargeError" in str(said.lines[0]["failure"])


def test_the_one_that_was_asked_for_must_be_there(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(broker, unique, Letter(0))

    said = ask(bench, "--source", f"{bench.route.input}/0/77")
    assert said.code == 1
    assert f"comes from {bench.route.input}/0/77" in said.err


def test_usage_errors_end_with_two(broker: str, unique: Unique, ask: Ask) -> None:
    bench = with_letters(broker, unique)
    for options in (
        ["--reason", "bad_luck"],
        ["--since", "soon"],
        ["--source", "frames"],
        ["--to", bench.route.dead_letter],
        ["--to", unique("nowhere")],
    ):
        assert ask(bench, *options).code == 2, options


def test_a_worker_counts_the_attempts_of_a_replayed_record_on(
    broker: str, unique: Unique, ask: Ask
) -> None:
    """A record fails, is replayed as it is, and fails again."""

    async def play(bench: Bench, letters: int, *records: Sent) -> None:
        worker = Worker(bench.settings, fake_machinery(bench.settings))
        async with running(worker):
            await bench.send(*records)
            await bench.dead_letters(letters)

    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await play(bench, 1, Sent(b"poison", headers=(("site", b"north"),)))
        return bench

    bench = asyncio.run(scene())
    assert ask(bench).code == 0
    asyncio.run(play(bench, 2, Sent(envelope("cam", 1)), Sent(a_jpeg())))

    first, second = asyncio.run(bench.dead_letters(2))
    assert [_letter(record).attempts for record in (first, second)] == ["1", "2"]
    assert (second.key, second.value) == (first.key, first.value)
    assert _letter(second).source == f"{bench.route.input}/0/1"
    assert second.headers[0] == ("site", b"north")


def _letter(record: Record) -> DeadLetter:
    return read_dead_letter(
        RawRecord(
            record.topic, record.partition, record.offset, record.key, record.value,
            record.timestamp, tuple(record.headers),
        )
    )  # fmt: skip
