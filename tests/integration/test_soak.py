"""The soak at its shortest: it feeds a worker, looks, and has it drain."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from bench.soak import Plan, judge, soak
from bench.soak_load import Kind

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("kind", [Kind.SEGMENTS, Kind.CLAIMS])
async def test_a_soak_says_what_it_saw(embedded_broker: str, kind: Kind, tmp_path: Path) -> None:
    plan = Plan(kind, seconds=1.5, overload=kind is Kind.CLAIMS, look_s=0.2)
    looks = await soak(embedded_broker, plan, tmp_path)
    assert looks[-1].answered >= looks[0].answered > 0
    assert all(look.objects > 0 and look.rss_mib > 0 for look in looks)
    assert all(look.held_mib < 16 for look in looks)
    judge(looks)
    assert gc.get_freeze_count() == 0
