"""The values behind the metrics: counted, copied, and refused where labels do not fit."""

from __future__ import annotations

import math

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import metrics as m
from pipeline.metrics import Metrics
from pipeline.series import Distributions, Numbers


def test_numbers_add_up_and_are_forgotten() -> None:
    numbers = Numbers(["route"])
    numbers.add(("a",), 2)
    numbers.add(("a",), 3)
    numbers.set(("b",), 7)
    assert dict(numbers.all()) == {("a",): 5, ("b",): 7}
    numbers.forget(("a",))
    numbers.forget(("never",))
    assert dict(numbers.all()) == {("b",): 7}


def test_a_number_without_labels_is_there_from_the_start() -> None:
    assert Numbers([]).all() == [((), 0.0)]


def test_a_number_may_follow_something_that_changes() -> None:
    inside = [1]
    numbers = Numbers([])
    numbers.follow(lambda: len(inside))
    inside.append(2)
    assert numbers.all() == [((), 2.0)]


@pytest.mark.parametrize("labels", [(), ("a", "b")])
def test_labels_must_be_as_many_as_declared(labels: tuple[str, ...]) -> None:
    for change in (Numbers(["route"]).add, Numbers(["route"]).set):
        with pytest.raises(ValueError, match="label"):
            change(labels, 1.0)
    with pytest.raises(ValueError, match="label"):
        Distributions(["route"], (1.0,)).observe(labels, 1.0)
    with pytest.raises(ValueError, match="label"):
        Numbers(["route"]).follow(lambda: 1.0)


def test_a_bucket_counts_what_is_at_or_below_its_bound() -> None:
    seen = Distributions(["route"], (1.0, 2.0))
    seen.observe(("a",), 0.5)
    seen.observe(("a",), 1.0, 1.5, 2.0, 9.0, math.inf)
    [(labels, buckets, total)] = seen.all()
    assert labels == ("a",)
    assert buckets == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 6.0)]
    assert total == math.inf


def test_a_scraped_histogram_has_its_sum_and_count() -> None:
    metrics = Metrics()
    for size in (1, 4, 400):
        metrics.observe(m.BATCH_SIZE, size, "a", "480p")
    text = generate_latest(metrics.registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (s.name.removeprefix(m.BATCH_SIZE.name), s.labels.get("le")): s.value
        for s in families[m.BATCH_SIZE.name].samples
    }
    assert samples["_sum", None] == 405
    assert samples["_count", None] == 3
    assert samples["_bucket", "4.0"] == 2
    assert samples["_bucket", "+Inf"] == 3
