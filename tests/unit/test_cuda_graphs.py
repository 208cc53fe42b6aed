"""Graphs per shape and padded size, and what becomes of those that cannot be recorded."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bucket import Bucket
from pipeline.cuda_graphs import GraphedModel, padded_sizes
from pipeline.devices import with_graphs, with_preferred
from pipeline.latency import Table
from schemas.errors import FatalError
from tests.builders import LARGE, SMALL
from tests.fakes.cuda import FakeGraphs
from tests.fakes.lane import FakeModel

SHAPE = (SMALL.height, SMALL.width)


def frames(*levels: int, bucket: Bucket = SMALL) -> torch.Tensor:
    rows = torch.zeros((len(levels), bucket.height, bucket.width, 3), dtype=torch.uint8)
    for row, level in zip(rows, levels, strict=True):
        row.fill_(level)
    return rows


def levels_of(raw: torch.Tensor) -> list[int]:
    return [int(level) for level in raw[:, 0, 0]]


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs()


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


def warmed(model: FakeModel, graphs: FakeGraphs, *buckets: Bucket) -> GraphedModel:
    graphed = GraphedModel(model, graphs)
    graphed.warm_up(buckets)
    for bucket in buckets:
        graphed.prefer(bucket, 3)
    return graphed


@given(st.integers(1, 1024))
def test_sizes_rise_to_the_largest_and_at_most_double(largest: int) -> None:
    sizes = padded_sizes(largest)
    assert sizes[0] == 1
    assert sizes[-1] == largest
    assert all(a < b <= 2 * a for a, b in itertools.pairwise(sizes))


def test_every_shape_is_recorded_once_in_every_size(model: FakeModel, graphs: FakeGraphs) -> None:
    same_shape = Bucket("twin", 1, SMALL.height, SMALL.width, 2)
    graphed = warmed(model, graphs, SMALL, same_shape, LARGE)
    assert graphed.sizes == {SHAPE: (1, 2, 3, 4), (LARGE.height, LARGE.width): (1, 2, 3, 4)}
    assert graphs.captures == 8
    assert (graphed.info, graphed.labels) == (model.info, model.labels)
    assert (graphed.stride, graphed.device) == (model.stride, model.device)


def test_a_batch_is_padded_to_the_next_size_and_gets_its_own_rows(
    model: FakeModel, graphs: FakeGraphs
) -> None:
    graphed = GraphedModel(model, graphs)
    graphed.warm_up([SMALL])
    model.batch_sizes.clear()
    assert levels_of(graphed.infer(frames(1, 2, 3, 4))) == [1, 2, 3, 4]
    assert levels_of(graphed.infer(frames(7, 8, 9))) == [7, 8, 9]
    assert levels_of(graphed.infer(frames(5))) == [5]
    assert model.batch_sizes == [4, 4, 1]
    assert graphs.replays == 3


def test_a_shape_that_was_never_warmed_up_runs_without(
    model: FakeModel, graphs: FakeGraphs
) -> None:
    graphed = warmed(model, graphs, SMALL)
    assert levels_of(graphed.infer(frames(1, 2, bucket=LARGE))) == [1, 2]
    assert levels_of(graphed.infer(frames(1, 2, 3, 4, 5))) == [1, 2, 3, 4, 5]  # beyond its largest
    assert graphs.replays == 0


def test_a_size_that_finds_no_memory_runs_without_and_the_others_keep_their_graphs(
    model: FakeModel, graphs: FakeGraphs, caplog: pytest.LogCaptureFixture
) -> None:
    graphs.broken = {4: torch.OutOfMemoryError("no room")}
    graphed = GraphedModel(model, graphs)
    with caplog.at_level(logging.WARNING):
        graphed.warm_up([SMALL])
    assert graphed.sizes == {SHAPE: (1, 2)}
    graphed.prefer(SMALL, 3)
    assert graphed.sizes == {SHAPE: (1, 2)}, "no memory of a larger one to record it in"
    assert "no CUDA graph for 4 frames of 96x64" in caplog.text
    assert "no room" in caplog.text
    assert graphs.recoveries == 1
    assert levels_of(graphed.infer(frames(1, 2, 3, 4))) == [1, 2, 3, 4]
    assert graphs.replays == 0
    assert levels_of(graphed.infer(frames(1, 2))) == [1, 2]
    assert graphs.replays == 1


def test_a_device_that_is_lost_while_recording_is_fatal(
    model: FakeModel, graphs: FakeGraphs
) -> None:
    graphs.broken = {2: torch.AcceleratorError("illegal address")}
    graphs.dead = FatalError("the device failed")
    with pytest.raises(FatalError, match="the device failed"):
        warmed(model, graphs, SMALL)


def test_what_a_run_keeps_lives_as_long_as_its_graph(model: FakeModel, graphs: FakeGraphs) -> None:
    made: list[torch.Tensor] = []

    def anchors() -> object:
        made.append(torch.zeros(len(made) + 1))
        return made[-1]

    model.kept = anchors
    graphed = warmed(model, graphs, SMALL)
    held = [graph.kept for graph in graphed._graphs[SHAPE].values()]
    assert len(held) == len(made) == 4
    assert all(any(each is one for one in made) for each in held)


def test_two_calls_at_once_are_refused(model: FakeModel, graphs: FakeGraphs) -> None:
    graphed = warmed(model, graphs, SMALL)

    def again(levels: list[int]) -> None:
        model.before = lambda levels: None
        graphed.infer(frames(1))

    model.before = again
    with pytest.raises(RuntimeError, match="two threads"):
        graphed.infer(frames(1))
    assert levels_of(graphed.infer(frames(2))) == [2]


def test_the_sizes_at_which_the_batcher_ends_batches_are_recorded_for_them(
    model: FakeModel, graphs: FakeGraphs
) -> None:
    graphed = GraphedModel(model, graphs)
    graphed.warm_up([SMALL])
    # From three on every frame costs the same: the smallest size whose double brings no more.
    surface = {1: 1.0, 2: 1.0, 3: 1.0, 4: 4 / 3, 6: 2.0}
    assert Table(surface).plateau() == 3
    with_preferred(graphed, SMALL, surface)
    assert graphed.sizes == {SHAPE: (1, 2, 3, 4)}
    model.batch_sizes.clear()
    assert levels_of(graphed.infer(frames(7, 8, 9))) == [7, 8, 9]
    assert model.batch_sizes == [3], "not padded"
    with_preferred(graphed, SMALL, {})
    with_preferred(model, SMALL, surface)
    assert graphs.captures == 4


def test_without_a_gpu_there_are_no_graphs(model: FakeModel) -> None:
    assert with_graphs(model, wanted=True) is model
    assert with_graphs(model, wanted=False) is model
