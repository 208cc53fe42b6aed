"""What was sent and what was answered, compared by coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.item import Coordinates
from schemas.result import ResultMessage

DEAD_LETTER = "dead_letter"
"""The fourth way to be answered, next to the values of `Status`."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that the broker acknowledged.

    Attributes:
        coordinates: where it lies.
        stream: its key.
        shot: which picture of the stream's loop, or None for a broken record.
        captured_at_us: Unix microseconds.
    """

    coordinates: Coordinates
    stream: str
    shot: int | None
    captured_at_us: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A record of an output or dead-letter topic, in the order of arrival.

    Attributes:
        source: coordinates of the record it answers.
        stream: its key.
        status: a value of `Status`, or `dead_letter`.
        answered_at_us: when the worker sent it, Unix microseconds (Kafka's record timestamp).
        result: the message; None for a dead letter.
        reason: reason code of a dead letter, else empty.
    """

    source: Coordinates
    stream: str
    status: str
    answered_at_us: int
    result: ResultMessage | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Conservation:
    """received = ok + expired + skipped + dead-lettered, or where it is broken.

    Attributes:
        received: records acknowledged to their producers.
        answered: of these, how many have at least one answer.
        lost: of these, those without any.
        duplicates: answers beyond the first to a record.
        unknown: answers to records that nobody sent.
        out_of_order: first answers that arrived after one to a later frame of their stream.
    """

    received: int
    answered: int
    lost: tuple[Coordinates, ...]
    duplicates: int
    unknown: int
    out_of_order: int


def first_answers(answers: Iterable[Answer]) -> dict[Coordinates, Answer]:
    """The first answer to each record, in the order of arrival."""
    first: dict[Coordinates, Answer] = {}
    for answer in answers:
        first.setdefault(answer.source, answer)
    return first


def reconcile(sent: Mapping[Coordinates, Sent], answers: Iterable[Answer]) -> Conservation:
    """Compare what was sent with all answers, in the order of their arrival.

    Order is judged among results of one stream and partition: dead letters are on a topic of
    their own, and nothing says which of two topics is read first.
    """
    answers = list(answers)
    first = first_answers(answers)
    latest: dict[tuple[str, str, int], int] = {}
    out_of_order = 0
    for answer in first.values():
        if answer.status == DEAD_LETTER:
            continue
        source = answer.source
        key = (answer.stream, source.topic, source.partition)
        if source.offset < latest.get(key, -1):
            out_of_order += 1
        latest[key] = max(source.offset, latest.get(key, -1))
    return Conservation(
        received=len(sent),
        answered=sum(coordinates in first for coordinates in sent),
        lost=tuple(coordinates for coordinates in sent if coordinates not in first),
        duplicates=len(answers) - len(first),
        unknown=sum(coordinates not in sent for coordinates in first),
        out_of_order=out_of_order,
    )
