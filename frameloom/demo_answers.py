"""Collecting the worker's answers from its output and dead-letter topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from frameloom.demo_tally import DEAD_LETTER, Answer
from frameloom.dlq import key_text, parse_coordinates, read_dead_letter
from frameloom.reader import TopicReader
from pipeline.item import Coordinates
from schemas.codec import RawRecord, read_result
from schemas.errors import ConfigError, WireError

_READ_S = 0.25


@dataclass(slots=True)
class Answers:
    """What came back so far.

    Attributes:
        all: every answer in the order of arrival, duplicates included.
        first: coordinates answered so far → status of the first answer.
        unreadable: records of the two topics that are neither result nor dead letter.
    """

    all: list[Answer] = field(default_factory=list[Answer])
    first: dict[Coordinates, str] = field(default_factory=dict[Coordinates, str])
    unreadable: int = 0

    def add(self, answer: Answer) -> None:
        """Note one answer."""
        self.all.append(answer)
        self.first.setdefault(answer.source, answer.status)

    def missing(self, sent: Mapping[Coordinates, object]) -> int:
        """How many of the records sent have no answer yet."""
        return sum(coordinates not in self.first for coordinates in sent)


async def collect(reader: TopicReader, dead_letter_topic: str, answers: Answers) -> None:
    """Read until cancelled.

    Args:
        reader: of the output and the dead-letter topic, entered, from the start.
        dead_letter_topic: which of the two holds dead letters.
        answers: filled as they arrive.
    """
    while True:
        for record in await reader.read(_READ_S):
            try:
                answers.add(read_answer(record, is_dead_letter=record.topic == dead_letter_topic))
            except (WireError, ConfigError):
                answers.unreadable += 1
        # Megabytes of results must not keep the producers from their beat.
        await asyncio.sleep(0)


def read_answer(record: RawRecord, *, is_dead_letter: bool) -> Answer:
    """One answer.

    Raises:
        WireError: not a result.
        ConfigError: a dead letter without a readable `fl-source`.
    """
    at_us = record.timestamp_ms * 1000
    if is_dead_letter:
        letter = read_dead_letter(record)
        source = parse_coordinates(letter.source)
        return Answer(source, letter.key, DEAD_LETTER, at_us, reason=letter.reason)
    result = read_result(record.value or b"")
    source = Coordinates(result.source.topic, result.source.partition, result.source.offset)
    return Answer(source, key_text(record.key), result.status.value, at_us, result=result)
