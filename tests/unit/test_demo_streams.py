"""The demo's cast, its broken records and the pace it chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.demo_broken import BROKEN_STREAM, broken_records
from frameloom.demo_footage import draw_footage
from frameloom.demo_streams import KINDS, StreamKind, StreamPlan, plan_streams
from frameloom.demo_traffic import interval_of
from pipeline.probe import ProbeLimits, probe
from schemas.codec import RawRecord, read_frame
from schemas.errors import PoisonError
from schemas.frame import Form
from schemas.settings import LimitSettings
from tests.builders_pictures import jpeg, picture


def test_six_streams_are_one_of_each_kind() -> None:
    plans = plan_streams(6, seed=1)
    assert [plan.kind for plan in plans] == list(KINDS)
    assert {plan.kind.form for plan in plans} == {Form.ENVELOPE, Form.BARE, Form.JSON}
    assert any(plan.kind.ttl_ms for plan in plans)


def test_more_streams_have_names_of_their_own_and_share_pictures() -> None:
    plans = plan_streams(30, seed=1)
    assert len({plan.stream for plan in plans}) == 30
    loops = {(plan.kind, plan.footage): plan.seed for plan in plans}
    assert len(loops) == 2 * len(KINDS)
    assert all(loops[plan.kind, plan.footage] == plan.seed for plan in plans)


def test_fewer_streams_than_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 6"):
        plan_streams(5, seed=1)


def test_footage_has_the_plan_s_size_and_ticks_once_per_picture() -> None:
    kind = StreamKind("tiny", 96, 64, 5.0, 3)
    stills = StreamKind("tiny-stills", 64, 96, 1.0, 2, stills=True)
    plans = [
        StreamPlan("a", kind, 1, 0),
        StreamPlan("b", kind, 1, 0),
        StreamPlan("c", stills, 2, 0),
    ]
    ticks: list[None] = []
    footage = draw_footage(plans, lambda: ticks.append(None))
    assert len(ticks) == 5
    assert footage["a"] is footage["b"]
    assert [len(footage[plan.stream].shots) for plan in plans] == [3, 3, 2]
    record = RawRecord("t", 0, 0, b"c", footage["c"].shots[1].jpeg, 0)
    header = probe(read_frame(record, LimitSettings()), ProbeLimits(10_000, 100))
    assert (header.width, header.height) == (64, 96)


def test_every_broken_record_is_refused_with_its_reason() -> None:
    limits = LimitSettings()
    records = broken_records(jpeg(picture(64, 48)))
    assert len({record.reason for record in records}) == len(records)
    for broken in records:
        record = RawRecord("t", 0, 0, BROKEN_STREAM.encode(), broken.value, 0)
        with pytest.raises(PoisonError) as refused:
            probe(read_frame(record, limits), ProbeLimits(limits.max_pixels, limits.max_scans))
        assert refused.value.code is broken.reason, broken.name


@given(st.floats(0.001, 100.0), st.floats(2.0, 600.0))
def test_every_stream_shows_a_few_frames_however_slow(fps: float, seconds: float) -> None:
    interval_s = interval_of(fps, seconds)
    assert interval_s <= 1.0 / fps
    assert interval_s * 3 <= seconds * (1 + 1e-9)
