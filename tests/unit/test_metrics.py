"""The table, the objects made from it, and the page made from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import metrics as table
from pipeline.metrics import DEVICE_TABLE, TABLE, Kind, Metrics, markdown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_names_are_unique_and_say_their_unit() -> None:
    names = [metric.name for metric in (*TABLE, *DEVICE_TABLE)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("frameloom_") for name in names)
    assert not [n for n in names if n.endswith(("_ms", "_total", "_us"))]


def test_every_metric_of_the_module_stands_in_the_table() -> None:
    named = [value for value in vars(table).values() if isinstance(value, table.Metric)]
    assert set(named) == {*TABLE, *DEVICE_TABLE}


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m pipeline.metrics > docs/metrics.md"


def test_every_kind_counts_and_is_scraped() -> None:
    metrics = Metrics()
    metrics.add(table.RECEIVED, 3, "a")
    metrics.add(table.RECEIVED, 2, "b")
    metrics.set(table.IN_FLIGHT, 7)
    metrics.observe(table.BATCH_SIZE, 4, "a", "480p")

    assert metrics.value(table.RECEIVED, route="a") == 3
    assert metrics.total(table.RECEIVED) == 5
    assert metrics.value(table.IN_FLIGHT) == 7
    assert metrics.value(table.BATCH_SIZE, route="a", bucket="480p") == 1
    assert metrics.value(table.ANSWERED, route="a", status="ok") == 0
    text = generate_latest(metrics.registry).decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {metric.name for metric in TABLE} <= families


def test_a_gauge_of_a_partition_that_left_is_forgotten() -> None:
    metrics = Metrics()
    metrics.forget(table.WATERMARK_LAG, "frames", "0")
    metrics.set(table.WATERMARK_LAG, 5, "frames", "0")
    metrics.forget(table.WATERMARK_LAG, "frames", "0")
    assert b'partition="0"' not in generate_latest(metrics.registry)


def test_two_workers_in_one_process_do_not_share_counts() -> None:
    one, other = Metrics(), Metrics()
    one.add(table.RECEIVED, 1, "a")
    assert other.value(table.RECEIVED, route="a") == 0


def test_an_undeclared_label_is_refused() -> None:
    with pytest.raises(ValueError, match="label"):
        Metrics().add(table.RECEIVED, 1, "a", "b")


def test_streams_are_scraped_by_name_up_to_the_limit() -> None:
    metrics = Metrics(top_streams=2)
    for n in range(5):
        metrics.streams.receive(f"cam-{n}", captured_at_us=None, now=1.0)
    text = generate_latest(metrics.registry).decode()
    assert 'frameloom_stream_received_total{stream="cam-1"} 1.0' in text
    assert 'frameloom_stream_received_total{stream="other"} 3.0' in text
    assert "cam-4" not in text


def test_histograms_have_rising_bounds() -> None:
    for metric in TABLE:
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
        assert list(metric.buckets) == sorted(metric.buckets)
