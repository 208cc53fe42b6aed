"""What the probe raises, in one place."""

from __future__ import annotations

from schemas.errors import PoisonError, Reason


def refusal(code: Reason, detail: str) -> PoisonError:
    """The error for a picture that the probe will not let through."""
    return PoisonError(code, detail, stage="probe")


def truncated(what: str) -> PoisonError:
    """The bytes end where `what` should stand."""
    return refusal(Reason.TRUNCATED_HEADER, f"the bytes end before {what}")


def bad_header(detail: str) -> PoisonError:
    """The header contradicts its format."""
    return refusal(Reason.BAD_HEADER, detail)
