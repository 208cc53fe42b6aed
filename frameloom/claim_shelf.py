"""A folder in which a producer leaves pictures for workers to fetch: the other half of a claim."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from schemas.claim_uri import parse_prefix
from schemas.frame import Claim, Encoding


@dataclass(frozen=True, slots=True)
class ClaimShelf:
    """Files are named by the digest of what they hold: a claim's bytes never change, and what is
    there already is not written again. Nothing is ever removed: how long workers may need a file
    (retention of the topic, replays) is not known here.

    Attributes:
        folder: where files are written; made where it is not there.
        prefix: the URI under which workers see the folder, without a slash at its end.
    """

    folder: Path
    prefix: str

    @classmethod
    def at(cls, folder: Path, prefix: str | None) -> ClaimShelf:
        """Without a prefix, workers see the folder under the same path.

        Raises:
            UriError: the prefix is none that a worker could allow.
        """
        chosen = folder.absolute().as_uri() if prefix is None else prefix
        parse_prefix(chosen)
        return cls(folder, chosen.rstrip("/"))

    def put(self, data: bytes, encoding: Encoding) -> Claim:
        """Keep the bytes, whole or not at all. Blocks.

        Raises:
            OSError: they cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        name = f"{digest[:2]}/{digest}.{encoding.value}"
        file = self.folder / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as draft:
                try:
                    draft.write(data)
                    draft.flush()
                    # Workers may run as another user.
                    os.fchmod(draft.fileno(), 0o644)
                    Path(draft.name).replace(file)
                except BaseException:
                    Path(draft.name).unlink(missing_ok=True)
                    raise
        return Claim(uri=f"{self.prefix}/{name}", sha256=digest, length=len(data))
