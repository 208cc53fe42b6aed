"""A partition's answers that wait to be committed: always its contiguous beginning."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from workers.tickets import Answer


class Prefix:
    """Answers of one input partition in source-offset order, beginning with the first that is not
    committed. They stay here until they are, so that a transaction that fails can be tried again
    with the same answers. Used by one thread; bounded by the credits that the answers hold.
    """

    def __init__(self) -> None:
        self._answers: deque[Answer] = deque()

    def __len__(self) -> int:
        return len(self._answers)

    def put(self, answer: Answer) -> None:
        """The partition's next answer."""
        self._answers.append(answer)

    def head(self, max_answers: int, max_bytes: int) -> list[Answer]:
        """The answers of the first records, within both limits; of one at least when it has all of
        its answers here, however many and large. A record has one, a segment of video several; part
        of them cannot be committed, because the offset is the record's."""
        chosen: list[Answer] = []
        record: list[Answer] = []
        nbytes = 0
        for answer in self._answers:
            record.append(answer)
            nbytes += answer.nbytes
            if not answer.closes:
                continue
            if chosen and (len(chosen) + len(record) > max_answers or nbytes > max_bytes):
                break
            chosen += record
            record = []
        return chosen

    def replace(self, old: Answer, new: Answer) -> None:
        """Put another answer to the same record in the place of one.

        Raises:
            ValueError: `old` is not here.
        """
        self._answers[self._answers.index(old)] = new

    def committed(self, answers: Sequence[Answer]) -> None:
        """These answers, the first ones, are done with.

        Raises:
            ValueError: they are not the first ones.
        """
        if list(islice(self._answers, len(answers))) != list(answers):
            raise ValueError("committed answers are not the beginning of the prefix")
        for _ in answers:
            self._answers.popleft()

    def prune(self, is_live: Callable[[Answer], bool]) -> list[Answer]:
        """Take out the answers that are not live. Returns them."""
        kept, dropped = deque[Answer](), list[Answer]()
        for answer in self._answers:
            (kept if is_live(answer) else dropped).append(answer)
        if dropped:
            self._answers = kept
        return dropped


def next_offset(answers: Sequence[Answer]) -> int:
    """What the group's offset is once these answers, the beginning of a prefix, are committed:
    one after the last of them. Offsets between them that are none of ours (compacted, transaction
    markers) are passed over."""
    return answers[-1].ticket.record.offset + 1
