"""The end of a loading that is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable


class LoadingStopped(Exception):  # noqa: N818 (nothing went wrong)
    """The worker was told to stop while it loaded."""


def go_on(stopping: Callable[[], bool]) -> None:
    """Asked between two steps of loading.

    Raises:
        LoadingStopped: `stopping` says yes.
    """
    if stopping():
        raise LoadingStopped
