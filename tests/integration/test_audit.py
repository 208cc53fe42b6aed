"""`frameloom audit` against a broker: what it finds in three topics, and its exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from frameloom.cli import main
from schemas.result import Status
from schemas.settings import KafkaSettings
from tests.integration.answers import Answered, answer
from tests.integration.kit import Bench, Sent, Unique, a_bench, envelope, fake_machinery, running
from workers.kafka_clients import (
    TopicPartition,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)
from workers.worker import Worker

pytestmark = pytest.mark.broker


async def commit(kafka: KafkaSettings, topic: str, offset: int) -> None:
    consumer = make_consumer(kafka)
    await start_client(consumer, kafka)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.commit({partition: offset})
    finally:
        await stop_client(consumer)


def frames(count: int) -> list[Sent]:
    return [Sent(envelope("cam", seq)) for seq in range(count)]


def command(bench: Bench, *options: str) -> list[str]:
    route = bench.route
    return [
        "audit", "--input", route.input, "--output", route.output,
        "--dead-letter", route.dead_letter, "--bootstrap", bench.kafka.bootstrap_servers,
        "--group", bench.kafka.group_id, *options,
    ]  # fmt: skip


@dataclass(frozen=True)
class Said:
    code: int
    audit: dict[str, object]

    def total(self, *names: str) -> list[object]:
        counts = self.audit["total"]
        assert isinstance(counts, dict)
        return [counts[name] for name in names]

    def sources(self, name: str) -> list[str]:
        found = self.audit[name]
        assert isinstance(found, dict)
        return [each["source"] for each in found["first"]]


Ask = Callable[..., Said]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command. The tests are synchronous because it owns an event loop of its own."""

    def run(bench: Bench, *options: str) -> Said:
        capsys.readouterr()
        code = main(command(bench, "--json", *options))
        (audit,) = json.loads(capsys.readouterr().out)["audits"]
        return Said(code, audit)

    return run


def test_every_kind_of_answer_is_counted_and_nothing_is_wrong(
    broker: str, unique: Unique, ask: Ask
) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(*frames(4))
        kinds = [Status.OK, Status.EXPIRED, Status.SKIPPED, None]
        await answer(bench, *(Answered(offset, kind) for offset, kind in enumerate(kinds)))
        return bench

    said = ask(asyncio.run(scene()), "--through", "end")

    assert said.code == 0
    names = ("received", "ok", "expired", "skipped", "dead_lettered", "lost", "duplicate")
    assert said.total(*names) == [4, 1, 1, 1, 1, 0, 0]
    assert said.audit["streams"] == {"cam": said.audit["total"]}


def test_lost_duplicate_and_out_of_order_are_named_and_fail(
    broker: str, unique: Unique, ask: Ask
) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(*frames(5))
        await answer(bench, *(Answered(offset) for offset in (0, 3, 1, 3)), Answered(4, None))
        return bench

    bench = asyncio.run(scene())
    said = ask(bench, "--through", "end")

    topic = bench.route.input
    assert said.code == 1
    assert said.total("received", "lost", "duplicate", "out_of_order") == [5, 1, 1, 1]
    assert said.sources("lost") == [f"{topic}/0/2"]
    assert said.sources("duplicate") == [f"{topic}/0/3"]
    assert said.sources("out_of_order") == [f"{topic}/0/1"]


def test_duplicates_alone_fail_unless_they_are_allowed(
    broker: str, unique: Unique, ask: Ask
) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(*frames(2))
        await answer(bench, *(Answered(offset) for offset in (0, 1, 0, 1)))
        return bench

    bench = asyncio.run(scene())

    assert ask(bench, "--through", "end").code == 1
    said = ask(bench, "--through", "end", "--allow-duplicates")
    assert (said.code, said.total("duplicate")) == (0, [2])


def test_without_more_it_audits_up_to_what_the_group_committed(
    broker: str, unique: Unique, ask: Ask
) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(*frames(4))
        await answer(bench, Answered(0), Answered(1), Answered(3))
        await commit(bench.kafka, bench.route.input, 2)
        return bench

    bench = asyncio.run(scene())
    committed, end = ask(bench), ask(bench, "--through", "end")

    assert (committed.code, committed.total("received"), committed.audit["outside"]) == (0, [2], 1)
    assert (end.code, end.total("received", "lost")) == (1, [4, 1])


def test_offsets_bound_the_range(broker: str, unique: Unique, ask: Ask) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(*frames(5))
        await answer(bench, Answered(1), Answered(2))
        return bench

    bench = asyncio.run(scene())

    assert ask(bench, "--from", "0:1", "--to", "0:3").code == 0
    assert ask(bench, "--from", "0:1", "--to", "0:4").sources("lost") == [
        f"{bench.route.input}/0/3"
    ]


def test_records_that_are_no_answers_are_named(broker: str, unique: Unique, ask: Ask) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        producer = make_producer(bench.kafka)
        await start_client(producer, bench.kafka)
        try:
            await producer.send_and_wait(bench.route.output, b"no result")
            await producer.send_and_wait(
                bench.route.dead_letter, b"x", headers=[("fl-source", b"y")]
            )
        finally:
            await stop_client(producer)
        return bench

    bench = asyncio.run(scene())
    said = ask(bench, "--through", "end")

    assert said.code == 0
    assert said.sources("unreadable") == [
        f"{bench.route.output}/0/0",
        f"{bench.route.dead_letter}/0/0",
    ]


def test_what_a_worker_answered_is_conserved(broker: str, unique: Unique, ask: Ask) -> None:
    """A real worker: good frames of two streams, a keyless one and records that are no frames."""

    async def scene() -> Bench:
        bench = await a_bench(broker, unique, partitions=2)
        sent = [
            Sent(envelope(name, seq), name.encode(), partition)
            for seq in range(20)
            for partition, name in enumerate(("gate", "yard"))
        ]
        worker = Worker(bench.settings, fake_machinery(bench.settings))
        async with running(worker):
            await bench.send(*sent, Sent(b"poison", b"gate"), Sent(None, b"yard", 1))
            await bench.results(40)
            await bench.dead_letters(2)
        return bench

    said = ask(asyncio.run(scene()))

    assert said.code == 0
    assert said.total("received", "ok", "dead_lettered", "lost") == [42, 40, 2, 0]
    streams = said.audit["streams"]
    assert isinstance(streams, dict)
    assert [streams[name]["dead_lettered"] for name in ("gate", "yard")] == [1, 1]


def test_the_table_shows_the_faulty_stream_first_and_says_so(
    broker: str, unique: Unique, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene() -> Bench:
        bench = await a_bench(broker, unique)
        await bench.send(Sent(envelope("a[b]", 0)), Sent(envelope("zebra", 0)))
        await answer(bench, Answered(0), stream="a[b]")
        return bench

    bench = asyncio.run(scene())
    assert main(command(bench, "--through", "end", "--max-listed", "1")) == 1

    said = capsys.readouterr()
    assert "zebra" in said.out
    assert "... and 1 more streams" in said.out
    assert f"{bench.route.input}/0/1" in said.out
    assert "not clean" in said.err


def test_the_routes_of_a_configuration_are_audited_all_or_by_name(
    broker: str, unique: Unique, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene() -> list[Bench]:
        benches = [await a_bench(broker, unique) for _ in range(2)]
        for bench in benches:
            await bench.send(*frames(2))
        # The second route's order is broken, which the configuration allows; nothing is lost.
        await answer(benches[0], Answered(0))
        await answer(benches[1], Answered(1), Answered(0))
        return benches

    routes = {
        name: {topic: getattr(bench.route, topic) for topic in ("input", "output", "dead_letter")}
        for name, bench in zip(("gate", "yard"), asyncio.run(scene()), strict=True)
    }
    settings = {
        "kafka": {"bootstrap_servers": broker},
        "delivery": {"order": "none"},
        "routes": [{"name": name, **topics} for name, topics in routes.items()],
    }
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(settings))
    base = ["audit", "--config", str(file), "--through", "end", "--json"]

    capsys.readouterr()
    assert main(base) == 1
    audits = json.loads(capsys.readouterr().out)["audits"]
    assert [each["topic"] for each in audits] == [topics["input"] for topics in routes.values()]
    assert [each["total"]["lost"] for each in audits] == [1, 0]
    assert main([*base, "--route", "yard"]) == 0
    assert main([*base, "--route", "gate"]) == 1
    assert main([*base, "--from", "0:1"]) == 2
    assert main([*base, "--from", "0:1", "--to", "0:2", "--route", "yard"]) == 0


def test_usage_errors_end_with_two(
    broker: str, unique: Unique, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = asyncio.run(a_bench(broker, unique))
    wrong = {
        "has committed nothing": [],
        "takes PARTITION:OFFSET": ["--from", "12"],
        "twice": ["--from", "0:1", "--from", "0:2"],
        "beyond the log's end": ["--to", "0:1"],
        "beyond the end 0": ["--from", "0:1", "--through", "end"],
        "no partition 7": ["--from", "7:0"],
        "exclude each other": ["--route", "default"],
    }
    for words, options in wrong.items():
        assert main(command(bench, *options)) == 2, words
        assert words in " ".join(capsys.readouterr().err.split())
    alone = ["audit", "--bootstrap", broker, "--input", "x"]
    assert main(alone) == 2
    assert main(["audit", "--bootstrap", broker, "--route", "nobody"]) == 2
