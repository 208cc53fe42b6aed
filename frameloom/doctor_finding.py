"""What one check of the doctor found, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class State(StrEnum):
    """How a check ended; later ones are worse, `skipped` aside."""

    SKIPPED = "skipped"
    """It does not apply, or what it needs is not there."""
    OK = "ok"
    WARNING = "warning"
    """It works, and will cost something or surprise somebody."""
    PROBLEM = "problem"
    """The worker will not start, or will lose its way."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the table.

    Attributes:
        check: which check, a stable word with dots: `limits`, `model.default`.
        state: how it ended.
        found: what is so, one sentence.
        remedy: the command or setting that mends it; empty when nothing has to be.
    """

    check: str
    state: State
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, State.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, State.WARNING, found, remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, State.PROBLEM, found, remedy)


def skipped(check: str, why: str, remedy: str = "") -> Finding:
    return Finding(check, State.SKIPPED, why, remedy)


_RANK = {state: rank for rank, state in enumerate(State)}


def worst(findings: Iterable[Finding]) -> State:
    """The worst state among them; `ok` when all were skipped or there is none."""
    found = max((each.state for each in findings), key=_RANK.__getitem__, default=State.OK)
    return State.OK if found is State.SKIPPED else found
