"""The process that runs inputs, one after another, until its time is up or one of them ends it.

Each input is written down before it is run, so that the driver knows what killed us. What took a
way that was not seen before joins the pictures to mutate.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from random import Random

import msgspec

from schemas.record import RawRecord
from tests.fuzz.records import make_record, seeds
from tests.fuzz.target import FindingError, Target

CURRENT = "current"
CORPUS = "corpus"
FINDINGS = "findings"
PER_KIND = 3
"""Inputs kept of one kind of finding."""
REPORT_EVERY = 200


def save(record: RawRecord) -> bytes:
    """A record as MessagePack, for `load`."""
    return msgspec.msgpack.encode(record)


def load(saved: bytes) -> RawRecord:
    return msgspec.msgpack.decode(saved, type=RawRecord)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of processor time")
    options = parser.parse_args()
    _Loop(options.folder, options.seed).run(options.seconds)


class _Loop:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = Random(seed)
        self._seeds = seeds()
        self._grown = [path.read_bytes() for path in sorted((folder / CORPUS).iterdir())]
        self._seen: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._counts = {"executions": 0, "decoded": 0, "findings": 0}

    def run(self, seconds: float) -> None:
        target = Target()
        target.limit_memory()
        while time.process_time() < seconds:
            self._once(target)
            if self._counts["executions"] % REPORT_EVERY == 0:
                self._report()
        self._report()

    def _once(self, target: Target) -> None:
        grown = self._grown and self._rng.random() < 0.5
        record = make_record(self._grown if grown else self._seeds, self._rng)
        (self._folder / CURRENT).write_bytes(save(record))
        self._counts["executions"] += 1
        try:
            verdict = target.run(record)
        except FindingError as finding:
            self._keep(record, finding)
            return
        self._counts["decoded"] += verdict.decoded
        if verdict.signature not in self._seen:
            self._seen.add(verdict.signature)
            if verdict.probed:
                self._grow(record)

    def _grow(self, record: RawRecord) -> None:
        value = record.value or b""
        if not value or value[0] in b"{\x80\x81\xde\xdf":
            return
        self._grown.append(value)
        name = hashlib.sha256(value).hexdigest()[:16]
        (self._folder / CORPUS / name).write_bytes(value)

    def _keep(self, record: RawRecord, finding: FindingError) -> None:
        self._counts["findings"] += 1
        kind = str(finding.args[0])[:200]
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        if self._kinds[kind] > PER_KIND:
            return
        name = hashlib.sha256(kind.encode()).hexdigest()[:8] + f"-{self._kinds[kind]}"
        (self._folder / FINDINGS / name).write_bytes(save(record))
        (self._folder / FINDINGS / f"{name}.txt").write_text(
            f"{finding.args}\n{finding.__cause__!r}"
        )

    def _report(self) -> None:
        counts = self._counts | {
            "cpu_s": round(time.process_time(), 2),
            "ways": len(self._seen),
            "kinds": len(self._kinds),
        }
        sys.stdout.write(json.dumps(counts) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
