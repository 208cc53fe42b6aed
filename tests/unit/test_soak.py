"""When the soak says that a worker keeps what it is done with, and what it sends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak import Look, judge
from bench.soak_load import Kind, Load
from pipeline.decode_segment import PyAvSegments
from pipeline.segment import Sampling, SegmentLimits
from schemas.codec import read_frame
from schemas.errors import PoisonError
from schemas.record import RawRecord
from schemas.settings import LimitSettings

NOISE = (0, 900, -700, 300, 0, -400)


def looks(per_look: float, *, rss_per_look: float = 0.0) -> list[Look]:
    return [
        Look(float(n), 100 * n, round(20_000 + NOISE[n % 6] + per_look * n), 900 + rss_per_look * n,
             0, 0.0)
        for n in range(60)
    ]  # fmt: skip


def test_noise_is_no_leak() -> None:
    assert not judge(looks(0.0)).leaks


@pytest.mark.parametrize("per_look", [200.0, 2_000.0])
def test_objects_that_only_become_more_are_one(per_look: float) -> None:
    verdict = judge(looks(per_look))
    assert verdict.leaks
    assert verdict.objects_grew > 0


def test_so_is_memory_that_no_object_shows() -> None:
    verdict = judge(looks(0.0, rss_per_look=2.0))
    assert (verdict.objects_grew, verdict.leaks) == (0, True)


def test_what_grows_during_warm_up_only_is_none() -> None:
    rising = looks(500.0)[:20]
    assert not judge(rising + [rising[-1]] * 40).leaks


def test_more_records_in_flight_are_more_objects_and_no_leak() -> None:
    few = [replace(look, in_flight=100) for look in looks(0.0)[:40]]
    many = [replace(look, in_flight=300, objects=look.objects + 5_000) for look in looks(0.0)[40:]]
    assert not judge(few + many).leaks
    assert judge(few + [replace(look, in_flight=100) for look in many]).leaks


def test_a_few_looks_say_nothing() -> None:
    with pytest.raises(ValueError, match="more seconds"):
        judge(looks(0.0)[:5])


@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_sent_can_be_read(kind: Kind, tmp_path: Path) -> None:
    load, limits = Load(kind, tmp_path), LimitSettings()
    for number in range(1, 10):
        sent = load.record(number)
        record = RawRecord("in", 0, number, sent.key, sent.value, 0)
        frame = read_frame(record, limits)
        assert frame.stream_id.encode() == sent.key
        assert (frame.claim is not None) == (kind is Kind.CLAIMS)


def test_a_segment_has_as_many_answers_as_it_says(tmp_path: Path) -> None:
    sent = Load(Kind.SEGMENTS, tmp_path).record(0)
    frame = read_frame(RawRecord("in", 0, 0, sent.key, sent.value, 0), LimitSettings())
    decoder = PyAvSegments(SegmentLimits(1_000_000, 100, 60_000_000), threads=1)
    reader = decoder.open(frame, Sampling())
    found = 0
    try:
        while True:
            step = reader.step()
            found += step is not None
            if step is not None and step.last:
                break
    except PoisonError as error:
        pytest.fail(str(error))
    finally:
        reader.close()
    assert found == sent.answers
