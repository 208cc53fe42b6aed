"""Which claims are fetched at all: the rules of `claim_check`, before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urljoin

from schemas.claim_uri import Location, UriError, parse_prefix, parse_uri
from schemas.errors import PoisonError, Reason
from schemas.frame import Claim

STAGE = "claim"
"""`fl-stage` of everything that goes wrong with a claim."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What producers may claim. Without prefixes, nothing.

    Attributes:
        prefixes: places that hold all that is fetched.
        max_bytes: most bytes of one claim.
    """

    prefixes: tuple[Location, ...] = ()
    max_bytes: int = 0

    @classmethod
    def of(cls, prefixes: Sequence[str], max_bytes: int) -> ClaimRules:
        """From settings.

        Raises:
            UriError: a prefix is none.
        """
        return cls(tuple(map(parse_prefix, prefixes)), max_bytes)

    def check(self, claim: Claim) -> Location:
        """Where the claim's bytes lie.

        Raises:
            PoisonError: CLAIM_REFUSED or CLAIM_TOO_LARGE.
        """
        location = self.locate(claim.uri)
        if claim.length > self.max_bytes:
            raise fault(
                Reason.CLAIM_TOO_LARGE,
                f"length is {claim.length}, claim_check.max_bytes is {self.max_bytes}",
            )
        return location

    def locate(self, uri: str) -> Location:
        """The place of a URI that is allowed.

        Raises:
            PoisonError: CLAIM_REFUSED.
        """
        if not self.prefixes:
            raise fault(Reason.CLAIM_REFUSED, "claims are off here (claim_check.enabled)")
        try:
            location = parse_uri(uri)
        except UriError as error:
            raise fault(Reason.CLAIM_REFUSED, f"the uri {error}") from error
        if not any(prefix.covers(location) for prefix in self.prefixes):
            raise fault(
                Reason.CLAIM_REFUSED,
                f"{location.uri} is below none of claim_check.allowed_prefixes",
            )
        return location

    def follow(self, location: Location, target: str) -> Location:
        """Where a redirect leads: under the same rules as a claim.

        Args:
            target: the answer's `Location` header, absolute or relative.

        Raises:
            PoisonError: CLAIM_REFUSED.
        """
        try:
            absolute = urljoin(f"{location.uri}", target)
        except ValueError as error:
            raise fault(Reason.CLAIM_REFUSED, "a redirect leads to no uri") from error
        return self.locate(absolute)


def fault(code: Reason, detail: str) -> PoisonError:
    """A dead letter of this stage."""
    return PoisonError(code, detail, stage=STAGE)
