"""The bytes of one claim as they arrive: never more than it says, and in the end what it says."""

from __future__ import annotations

import hashlib

from pipeline.claim_rules import fault
from schemas.errors import Reason
from schemas.frame import Claim

CHUNK_BYTES = 256 * 1024
"""How much is read at once."""


class ClaimBytes:
    """Collects and checks. Holds at most `claim.length` bytes, plus the chunk that is one too many.

    Args:
        claim: what the bytes must be.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._data = bytearray()
        self._digest = hashlib.sha256()

    def expect(self, nbytes: int) -> None:
        """The place says how many there are.

        Raises:
            PoisonError: CLAIM_MISMATCH, if the claim says otherwise.
        """
        if nbytes != self._claim.length:
            raise fault(
                Reason.CLAIM_MISMATCH,
                f"there are {nbytes} bytes, length is {self._claim.length}",
            )

    def add(self, chunk: bytes) -> None:
        """More bytes.

        Raises:
            PoisonError: CLAIM_MISMATCH, if that makes too many.
        """
        if len(self._data) + len(chunk) > self._claim.length:
            raise fault(
                Reason.CLAIM_MISMATCH,
                f"there are more than the {self._claim.length} bytes of length",
            )
        self._data += chunk
        self._digest.update(chunk)

    def whole(self) -> memoryview:
        """All of them, read-only.

        Raises:
            PoisonError: CLAIM_MISMATCH, if they are too few or have another digest.
        """
        self.expect(len(self._data))
        found = self._digest.hexdigest()
        if found != self._claim.sha256:
            raise fault(Reason.CLAIM_MISMATCH, f"their sha256 is {found}, not {self._claim.sha256}")
        return memoryview(self._data).toreadonly()
