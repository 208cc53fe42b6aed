"""The parts of one record: a segment of video has an answer per frame, and is settled once.

How many there are is known only when its reader has reached the end. Then a last part says so,
and the record is settled as soon as every part is: not before, or its offset could be committed
with frames unanswered.
"""

from __future__ import annotations


class Parts:
    """The account of one record's answers. Used by one thread.

    Attributes:
        taken: parts so far; they are numbered from 0.
        answered: parts whose answer is made.
        settled: parts whose answer was acknowledged, or given up with the record's epoch.
        ended: no part comes any more.
    """

    __slots__ = ("answered", "ended", "settled", "taken")

    def __init__(self) -> None:
        self.taken = self.answered = self.settled = 0
        self.ended = False

    @property
    def inside(self) -> int:
        """Parts that have no answer yet."""
        return self.taken - self.answered

    @property
    def done(self) -> bool:
        """Whether everything that there is of the record is settled."""
        return self.ended and self.settled == self.taken

    def take(self) -> int:
        """One more part; its number.

        Raises:
            ValueError: the end was reached before.
        """
        if self.ended:
            raise ValueError(f"a part after the end, which came after {self.taken}")
        self.taken += 1
        return self.taken - 1

    def end(self) -> None:
        """No part comes any more. Safe to call twice."""
        self.ended = True

    def answer(self) -> None:
        """A part's answer was made.

        Raises:
            ValueError: there is none that lacks it.
        """
        if not self.inside:
            raise ValueError(f"all {self.taken} parts are answered")
        self.answered += 1

    def settle(self) -> None:
        """A part's answer was acknowledged, or given up.

        Raises:
            ValueError: there is none to settle.
        """
        if self.settled == self.answered:
            raise ValueError(f"{self.settled} of {self.answered} answers are settled")
        self.settled += 1
