"""The oracle: what became of every record, from the topics and the committed offsets alone.

It remembers every answer that it has seen, so it also knows those whose topic is gone by the end.
The verdict is that of `frameloom audit`: the same account, given the same answers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from frameloom.audit_account import Account
from frameloom.audit_marks import OffsetRange
from frameloom.audit_report import Report
from frameloom.dlq import source_of
from frameloom.scan import Isolation, committed_offsets, scan
from pipeline.item import Coordinates
from schemas.dead_letter import FrameMark, frame_mark
from schemas.errors import TransientError
from schemas.partial import ResultKeys, read_result_keys, read_stream_id
from schemas.record import RawRecord
from schemas.result import Status
from tests.scenario.stage import PARTITIONS, Stage
from workers.kafka_clients import (
    AIOKafkaConsumer,
    KafkaError,
    Record,
    TopicPartition,
    make_consumer,
    start_client,
    stop_client,
)

DEADLINE_S = 300.0
"""How long anything that must happen may take, on a machine that is busy with other things."""
LOOK_EVERY_S = 0.25
LOOK_S = 120.0


@dataclass(frozen=True)
class Verdict:
    """What a scenario came to.

    Attributes:
        frames: records in the input topic.
        lost: of them, those without an answer.
        duplicated: answers beyond the first of a record.
        allowed: the most duplicates that the guarantee allows here; None: any number.
        out_of_order: first answers that left after a later one of their stream.
        statuses: status or reason → how many records.
        recovery_s: from the fault (or its end) to the first new answer; the longest of several.
        strange: answers to nothing, or unreadable.
        dead_letters: records that had to be dead-lettered; no other may be.
    """

    frames: int
    lost: int
    duplicated: int
    allowed: int | None
    out_of_order: int
    statuses: Mapping[str, int]
    recovery_s: float | None = None
    strange: int = 0
    dead_letters: int = 0

    def faults(self) -> list[str]:
        """What breaks the promise; empty when it was kept."""
        found = []
        if not self.frames:
            found.append("nothing was sent")
        if self.lost:
            found.append(f"{self.lost} of {self.frames} records were lost")
        if self.allowed is not None and self.duplicated > self.allowed:
            found.append(f"{self.duplicated} duplicates, at most {self.allowed} may be")
        if self.out_of_order:
            found.append(f"{self.out_of_order} answers out of order")
        given_up = sum(self.statuses.values()) - sum(self.statuses.get(s, 0) for s in Status)
        if given_up != self.dead_letters:
            found.append(f"{given_up} dead letters, not {self.dead_letters}")
        if self.strange:
            found.append(f"{self.strange} answers to nothing")
        return found


@dataclass
class _Seen:
    """Answers in the order of their topics."""

    results: list[tuple[ResultKeys, int]] = field(default_factory=list)
    dead_letters: list[tuple[Coordinates, FrameMark]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    by_source: Counter[tuple[int, int]] = field(default_factory=Counter)


class Oracle:
    """Watches one stage. `look` before asking what it knows.

    Attributes:
        watched: the answer topics that are there.
        ends: partition of the input → its end.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen = _Seen()
        self._at: dict[TopicPartition, int] = {}
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.watched = set(stage.answer_topics)
        if not stage.plan.dead_letters:
            self.watched.discard(stage.route.dead_letter)

    @property
    def answered(self) -> int:
        """Records with an answer."""
        return len(self._seen.by_source)

    @property
    def sent(self) -> int:
        """Records in the input topic."""
        return sum(self.ends.values())

    @property
    def results(self) -> int:
        """Results, those of a segment's frames each for itself."""
        return len(self._seen.results)

    @property
    def reasons(self) -> int:
        """Records that were dead-lettered."""
        return self._seen.reasons.total()

    def above(self, committed: Mapping[int, int]) -> int:
        """Answered records at or above the committed offsets: the next owner answers them again."""
        return sum(
            offset >= committed.get(partition, 0) for partition, offset in self._seen.by_source
        )

    async def committed(self) -> dict[int, int]:
        """Partition → the group's offset."""
        stage = self._stage
        return await committed_offsets(stage.direct, stage.route.input, range(PARTITIONS))

    async def look(self) -> bool:
        """Read what is new. False when the broker is away."""
        kafka = self._stage.direct
        consumer = make_consumer(
            kafka, group=False, auto_offset_reset="earliest",
            isolation=f"read_{self._stage.rig.guarantee.isolation.value}",
        )  # fmt: skip
        try:
            await start_client(consumer, kafka)
        except TransientError:
            return False
        try:
            async with asyncio.timeout(LOOK_S):
                await self._read(consumer)
        except (TimeoutError, KafkaError):
            return False
        finally:
            await stop_client(consumer)
        return True

    async def until(self, happened: Callable[[], bool], what: str) -> float:
        """Look until it happened. Returns the seconds that it took. Patience begins anew with
        every answer: a long backlog takes its time."""
        begun = moved_at = time.monotonic()
        answered = self.answered
        while not (await self.look() and happened()):
            if self.answered > answered:
                answered, moved_at = self.answered, time.monotonic()
            if time.monotonic() - moved_at > DEADLINE_S:
                raise AssertionError(
                    f"not in {DEADLINE_S:g} s: {what} ({self.answered} of {self.sent} answered)"
                )
            await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - begun

    async def until_more(self, count: int = 1, *, than: int | None = None) -> float:
        """Until so many records more are answered than `than`; than at the last look without it. A
        look may see everything that a worker at its gate will ever answer, and then the next one
        sees nothing more."""
        before = self.answered if than is None else than
        return await self.until(lambda: self.answered >= before + count, f"{count} answers more")

    async def until_all(self) -> float:
        """Until every record that is in the input now is answered."""
        return await self.until(lambda: self.answered >= self.sent > 0, "all answered")

    async def until_committed(self) -> None:
        """Until the group has committed all that there is."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if await self.look() and sum((await self.committed()).values()) >= self.sent:
                    return
                await asyncio.sleep(LOOK_EVERY_S)

    async def verdict(
        self,
        *,
        allowed: int | None = None,
        recovery_s: float | None = None,
        dead_letters: int = 0,
    ) -> Verdict:
        """Settle the account of all that is in the input. Arguments as in `Verdict`."""
        assert await self.look(), "the broker is away"
        report = await self._report()
        total = report.total
        statuses = {"ok": total.ok, "expired": total.expired, "skipped": total.skipped}
        return Verdict(
            frames=total.received,
            lost=total.lost,
            duplicated=report.extra_answers,
            allowed=allowed if self._stage.rig.guarantee.duplicates else 0,
            out_of_order=total.out_of_order,
            statuses={k: n for k, n in statuses.items() if n} | dict(self._seen.reasons),
            recovery_s=recovery_s,
            dead_letters=dead_letters,
            strange=sum(
                (report.unknown.count, report.unreadable.count, report.outside, report.foreign)
            ),
        )

    def forget_positions(self, topic: str) -> None:
        """The topic is a new one of the same name: read it from its beginning."""
        self._at = {each: at for each, at in self._at.items() if each.topic != topic}

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        topics = self._stage.answer_topics
        answers = [TopicPartition(t, n) for t in sorted(self.watched) for n in range(topics[t])]
        inputs = [TopicPartition(self._stage.route.input, n) for n in range(PARTITIONS)]
        consumer.assign(answers)
        for each in answers:
            consumer.seek(each, self._at.setdefault(each, 0))
        ends = await consumer.end_offsets([*inputs, *answers])
        while waiting := [each for each in answers if self._at[each] < ends[each]]:
            found = await consumer.getmany(*waiting, timeout_ms=500)
            for each, records in found.items():
                for record in records:
                    self._enter(record)
                self._at[each] = records[-1].offset + 1
            for each in waiting:
                # Past the last record, too: a log may end in the markers of transactions.
                self._at[each] = max(self._at[each], await consumer.position(each))
        # Last, so that `answered` is never ahead of `sent` by what came in between.
        self.ends = {each.partition: ends[each] for each in inputs}

    def _enter(self, record: Record) -> None:
        if record.topic == self._stage.route.output:
            keys = read_result_keys(record.value or b"")
            self._seen.results.append((keys, record.partition))
            self._seen.by_source[keys.source.partition, keys.source.offset] += 1
            return
        source = source_of(record.headers)
        assert source is not None, "a dead letter without its source"
        if not self._seen.by_source[source.partition, source.offset]:
            self._seen.reasons[_reason(record)] += 1
        self._seen.dead_letters.append((source, frame_mark(record.headers)))
        self._seen.by_source[source.partition, source.offset] += 1

    async def _report(self) -> Report:
        topic = self._stage.route.input
        ranges = {n: OffsetRange(0, end) for n, end in self.ends.items()}
        account = Account(topic, ranges)
        for keys, partition in self._seen.results:
            account.result(keys, partition)
        for source, mark in self._seen.dead_letters:
            account.dead_letter(source, mark)
        reading = scan(
            self._stage.direct, topic, ranges,
            isolation=Isolation.UNCOMMITTED, progress=lambda _: None,
        )  # fmt: skip
        async for records in reading:
            for record in records:
                raw = RawRecord(
                    record.topic, record.partition, record.offset, record.key, record.value, 0
                )
                account.record(record.partition, record.offset, read_stream_id(raw))
        return account.close()


def _reason(record: Record) -> str:
    return dict(record.headers).get("fl-reason", b"none").decode()
