"""A few hundred inputs of the fuzzer in every test run, and what it found before (the long runs:
`make fuzz`, docs/security.md). Time is not judged here, memory and verdicts are."""

from __future__ import annotations

import importlib.util
import math
from random import Random

import pytest

from schemas.record import RawRecord
from tests.builders_pictures import jpeg, picture
from tests.fuzz.executor import load, save
from tests.fuzz.mutate import damage
from tests.fuzz.records import TOPIC, make_record, seeds
from tests.fuzz.target import FindingError, Target

INPUTS = 250

needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="the fuzzer runs both decoders, and DALI is not installed",
)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(max_cpu_s=math.inf)


def a_record(value: bytes, timestamp_ms: int = 0) -> RawRecord:
    return RawRecord(TOPIC, 0, 0, None, value, timestamp_ms)


@needs_dali
def test_every_seed_takes_its_way(target: Target) -> None:
    verdicts = [target.run(a_record(value)) for value in seeds()]
    assert sum(verdict.decoded for verdict in verdicts) >= len(verdicts) - 8


@needs_dali
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_records_are_answered_or_refused(target: Target, seed: int) -> None:
    rng, pictures = Random(seed), seeds()
    for _ in range(INPUTS):
        target.run(make_record(pictures, rng))


@needs_dali
@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63)])
def test_found_a_timestamp_beyond_a_result(target: Target, timestamp_ms: int) -> None:
    assert target.run(a_record(jpeg(picture(20, 10)), timestamp_ms)).decoded


@needs_dali
def test_found_a_scan_without_a_header(target: Target) -> None:
    whole = jpeg(picture(20, 10))
    cut = whole[: whole.index(b"\xff\xda")] + b"\xff\xda\0\2"
    assert target.run(a_record(cut)).signature.startswith("bad_header")


@needs_dali
def test_a_finding_is_one(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fuzzer must not sleep through."""
    monkeypatch.setattr("tests.fuzz.target.MAX_GROWTH_BYTES", -1)
    with pytest.raises(FindingError, match="memory"):
        target.run(a_record(jpeg(picture(20, 10))))
    with pytest.raises(FindingError, match="slow"):
        Target(max_cpu_s=0.0).run(a_record(jpeg(picture(20, 10))))


def test_a_saved_record_is_the_same_again() -> None:
    record = RawRecord(
        TOPIC, 1, 2, b"\xff", damage(jpeg(picture(9, 9)), Random(1)), 3, (("a", b"b"),)
    )
    assert load(save(record)) == record
