"""What the benches are made of: mixed streams, engines on memory, boxes compared."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from bench.ceiling import full_batches
from bench.cpu_rig import items_of, run_engine
from bench.decode import Options as DecodeOptions
from bench.decode import measure as measure_decoders
from bench.frame_steps import STEPS
from bench.frame_steps import measure as measure_steps
from bench.mixed_streams import KINDS, Kind, mixed_loads
from bench.noop_lane import noop_lane
from bench.overhead import Options, loads, picture
from bench.overlap import Options as OverlapOptions
from bench.overlap import measure as measure_overlap
from bench.same_boxes import Box, agree
from bench.switched_lane import Switch, switched
from pipeline.bucket import Bucket
from pipeline.ports import Lane
from schemas.settings import Settings
from tests.builders import SMALL
from tests.fakes.lane import FakeDecoder, FakeModel, FakePostprocessor, pictures

TINY = (Kind("fast", 64, 48, 15.0, 2), Kind("slow", 96, 64, 5.0, 1))
ONE = [Bucket("one", 50_000_000, 32, 32, 4)]
BOX: Box = (0.0, 0.0, 10.0, 10.0, 0.9, 1)


def test_streams_come_in_the_order_and_the_proportions_of_their_rates() -> None:
    counts = Counter(load.key for load in mixed_loads(40, TINY))
    assert counts == {b"fast": 30, b"slow": 10}
    items = items_of(mixed_loads(8, TINY), ONE)
    times = [item.frame.captured_at_us for item in items]
    assert times == sorted(times)
    assert all(item.frame.ttl_ms is None for item in items)


def test_the_mix_is_the_demos() -> None:
    sizes = {(kind.width, kind.height) for kind in KINDS}
    assert {(854, 480), (1920, 1080), (3840, 2160), (1080, 1920)} <= sizes


def test_an_engine_answers_everything_from_memory() -> None:
    items = items_of(mixed_loads(10, TINY), ONE)
    run = run_engine(Settings(), noop_lane(), items, slots=2)
    assert run.spent.frames == 10
    assert run.spent.batches >= 3
    assert run.longest_s <= run.stages_s


def test_a_lane_that_is_switched_off_passes_what_is_inside() -> None:
    lane = Lane(FakeDecoder(), FakeModel(), FakePostprocessor())
    switch = Switch()
    items = pictures(40, 80)
    rows = torch.zeros((2, SMALL.height, SMALL.width, 3), dtype=torch.uint8)
    over = switched(lane, switch)
    assert over.decoder.decode(items, rows) == [None, None]
    seen = rows.clone()
    assert over.model.infer(rows).shape[0] == 2
    switch.off()
    assert over.decoder.decode(items, rows.zero_()) == [None, None]
    assert not rows.any()
    assert seen.any()
    found = over.model.infer(rows)
    assert found.shape == (2, 4 + len(lane.model.labels), 1)
    assert not found.any()


def test_every_step_of_a_frames_way_is_measured() -> None:
    found = measure_steps(kib=2, count=256, rounds=1)
    assert found.keys() == STEPS.keys()
    assert min(found.values()) > 0.0


def test_batches_are_full_where_there_is_enough() -> None:
    items = items_of(mixed_loads(10, TINY), ONE)
    assert [len(batch) for batch in full_batches(items)] == [4, 4, 2]


def test_overlap_is_measured_with_one_slot_and_with_two() -> None:
    """Not how much it is: that is the bench's own business."""
    document = measure_overlap(OverlapOptions(frames=8, repeats=1, real=False, scripted=32))
    rows = {str(row["case"]): row for row in document.rows}
    for slots in (1, 2):
        ratio = rows[f"scripted, slots {slots}"]["sum/makespan"]
        assert isinstance(ratio, float)
        assert ratio > 0


def test_decoders_are_measured_by_format() -> None:
    options = DecodeOptions(rounds=1, formats=("jpeg", "bmp"), widths=(854,))
    jpeg, bmp = measure_decoders(options).rows
    assert (jpeg["format"], bmp["format"]) == ("jpeg", "bmp")
    assert isinstance(jpeg["opencv"], float)
    assert bmp["dali"] is None, "it is left to OpenCV"


@pytest.mark.parametrize("kib", [20, 100])
def test_records_have_about_the_size_asked_for(kib: int) -> None:
    assert 0.9 * kib < len(picture(kib)) / 1024 < 1.1 * kib


def test_rounds_of_large_records_are_shorter() -> None:
    options = Options("b", frames=4_000)
    assert options.count(20) == 4_000
    assert options.count(1_000) == 307
    assert len(loads(20, 3)) == 3


def test_boxes_agree_one_to_one() -> None:
    moved: Box = (0.1, 0.0, 10.0, 10.0, 0.8, 1)
    other_class: Box = (0.0, 0.0, 10.0, 10.0, 0.9, 2)
    frame = ("cam", 1)
    found, both, least = agree({frame: [BOX]}, {frame: [moved]}, 0.25)
    assert (found, both) == (1, 1)
    assert 0.98 < least < 1.0
    assert agree({frame: [BOX]}, {frame: [other_class]}, 0.25)[:2] == (2, 0)
    assert agree({frame: [BOX]}, {}, 0.25)[:2] == (1, 0)
    assert agree({frame: [BOX]}, {frame: [BOX, BOX]}, 0.25)[:2] == (2, 1)
    assert agree({}, {}, 0.25) == (0, 0, 1.0)


def test_a_box_that_only_rounding_decides_about_counts_for_neither() -> None:
    faint: Box = (0.0, 0.0, 10.0, 10.0, 0.2505, 1)
    assert agree({("cam", 1): [faint]}, {}, 0.25)[:2] == (0, 0)
