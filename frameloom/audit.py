"""`frameloom audit`: three topics → a report on what became of every record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from frameloom.audit_account import Account
from frameloom.audit_marks import OffsetRange
from frameloom.audit_parts import MAX_FRAMES
from frameloom.audit_report import Report
from frameloom.dlq import source_of
from frameloom.reader import require_topics
from frameloom.scan import Isolation, committed_offsets, log_ranges, scan
from schemas.dead_letter import frame_mark
from schemas.errors import ConfigError, WireError
from schemas.partial import read_result_keys, read_stream_id
from schemas.record import RawRecord
from schemas.settings import KafkaSettings
from workers.kafka_clients import Record

Ranges = Mapping[int, OffsetRange]


class Through(StrEnum):
    """Up to where the input must have been answered."""

    COMMITTED = "committed"
    """Up to what the group has committed: right at any time, also beside running workers, for
    nothing may be committed before it is answered."""
    END = "end"
    """Up to the end of the log: right once the workers have caught up and stopped; it also finds
    what no worker ever took. Beside a running worker, what is in flight counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """What to audit.

    Attributes:
        kafka: the connection; `group_id` is the workers' group.
        input, output, dead_letter: topics of one route.
        begins, ends: partition → first offset, and the one after the last; both optional.
        through: the end where `ends` says nothing.
        isolation: of the answers. The input is read as workers read it, uncommitted.
        ordered: whether the workers promise order within streams.
        max_listed, max_streams: see `Account`.
    """

    kafka: KafkaSettings
    input: str
    output: str
    dead_letter: str
    begins: Mapping[int, int] = field(default_factory=dict[int, int])
    ends: Mapping[int, int] = field(default_factory=dict[int, int])
    through: Through = Through.COMMITTED
    isolation: Isolation = Isolation.COMMITTED
    ordered: bool = True
    max_listed: int = 20
    max_streams: int = 100_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading of one topic is: `done` of `total` offsets."""

    topic: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is read: of the input the range under audit, of the answers all that there is."""

    input: Ranges
    answers: Mapping[str, Ranges]
    notes: list[str]


async def audit(plan: AuditPlan, progress: Callable[[Progress], None]) -> Report:
    """Read everything and settle the account.

    Raises:
        ConfigError: a topic is missing, a partition or range is impossible, or the group has
            committed nothing.
        TransientError: the broker does not answer.
    """
    scope = await _scope(plan)
    account = Account(
        plan.input,
        scope.input,
        ordered=plan.ordered,
        max_streams=plan.max_streams,
        max_listed=plan.max_listed,
    )

    def enter_result(record: Record) -> None:
        try:
            keys = read_result_keys(record.value or b"")
        except WireError as error:
            account.unreadable(_name(record), str(error))
            return
        if max(keys.source.frame, keys.source.frames or 0) > MAX_FRAMES:
            account.unreadable(_name(record), f"no record has more than {MAX_FRAMES} frames")
        else:
            account.result(keys, record.partition)

    def enter_dead_letter(record: Record) -> None:
        source, mark = source_of(record.headers), frame_mark(record.headers)
        if source is None:
            account.unreadable(_name(record), "no dead letter: fl-source is missing or unreadable")
        elif max(mark.frame or 0, mark.frames or 0) > MAX_FRAMES:
            account.unreadable(_name(record), f"no record has more than {MAX_FRAMES} frames")
        else:
            account.dead_letter(source, mark)

    def enter_record(record: Record) -> None:
        account.record(record.partition, record.offset, read_stream_id(_raw(record)))

    await _read(plan, plan.output, scope.answers[plan.output], enter_result, progress)
    await _read(
        plan, plan.dead_letter, scope.answers[plan.dead_letter], enter_dead_letter, progress
    )
    await _read(plan, plan.input, scope.input, enter_record, progress)
    return account.close(scope.notes)


async def _read(
    plan: AuditPlan,
    topic: str,
    ranges: Ranges,
    enter: Callable[[Record], None],
    progress: Callable[[Progress], None],
) -> None:
    isolation = Isolation.UNCOMMITTED if topic == plan.input else plan.isolation
    total = sum(map(len, ranges.values()))

    def tell(done: int) -> None:
        progress(Progress(topic, done, total))

    tell(0)
    async for records in scan(plan.kafka, topic, ranges, isolation=isolation, progress=tell):
        for record in records:
            enter(record)


async def _scope(plan: AuditPlan) -> _Scope:
    """Ranges first of the input and then of the answers: what was committed when the input's were
    taken has its answers below the ends of theirs."""
    if len({plan.input, plan.output, plan.dead_letter}) < 3:
        raise ConfigError("input, output and dead-letter topic must be three different topics")
    await require_topics(plan.kafka, plan.input, plan.output, plan.dead_letter)
    logs = (await log_ranges(plan.kafka, [plan.input]))[plan.input]
    _check_partitions(plan, logs)
    notes: list[str] = []
    ends = await _ends(plan, logs, notes)
    spans: dict[int, OffsetRange] = {}
    for partition, log in logs.items():
        begin, end = plan.begins.get(partition, log.begin), ends[partition]
        if partition in plan.begins and begin > end:
            raise ConfigError(f"partition {partition}: --from {begin} is beyond the end {end}")
        spans[partition] = OffsetRange(min(begin, end), end)
    answers = await log_ranges(plan.kafka, [plan.output, plan.dead_letter])
    notes += [
        f"{topic}/{partition} begins at offset {log.begin}: answers before it were removed, and "
        "what they answered counts as lost"
        for topic, ranges in answers.items()
        for partition, log in ranges.items()
        if log.begin > 0
    ]
    return _Scope(spans, answers, notes)


async def _ends(plan: AuditPlan, logs: Ranges, notes: list[str]) -> dict[int, int]:
    open_ends = [partition for partition in logs if partition not in plan.ends]
    if plan.through is Through.END or not open_ends:
        return {partition: plan.ends.get(partition, log.end) for partition, log in logs.items()}
    group = plan.kafka.group_id
    committed = await committed_offsets(plan.kafka, plan.input, open_ends)
    if not committed and not plan.ends:
        raise ConfigError(
            f"group {group!r} has committed nothing of {plan.input}: name the workers' group, or "
            "audit the whole log with --through end"
        )
    missing = [p for p in open_ends if p not in committed and len(logs[p])]
    notes += [
        f"{plan.input}/{p} was left out: group {group!r} has committed nothing there"
        for p in missing
    ]
    # Clipped: a group may have committed offsets of a topic that was deleted and made anew.
    known = {p: min(offset, logs[p].end) for p, offset in committed.items()} | dict(plan.ends)
    return {partition: known.get(partition, log.begin) for partition, log in logs.items()}


def _check_partitions(plan: AuditPlan, logs: Ranges) -> None:
    strange = sorted({*plan.begins, *plan.ends} - set(logs))
    if strange:
        raise ConfigError(f"{plan.input} has no partition {strange[0]}: it has {len(logs)}")
    for partition, end in plan.ends.items():
        if end > logs[partition].end:
            raise ConfigError(
                f"partition {partition}: --to {end} is beyond the log's end {logs[partition].end}"
            )


def _name(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def _raw(record: Record) -> RawRecord:
    return RawRecord(
        record.topic, record.partition, record.offset, record.key, record.value, record.timestamp
    )
