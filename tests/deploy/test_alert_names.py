"""deploy/alerts.yml names metrics and labels that exist."""

from __future__ import annotations

import re

import pytest
import yaml

from pipeline.metrics import DEVICE_TABLE, TABLE
from tests.documents.blocks import ROOT

FILE = ROOT / "deploy" / "alerts.yml"
ALERTS = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
METRICS = {metric.name: metric for metric in (*TABLE, *DEVICE_TABLE)}
# Prometheus gives these to every series.
ANYWHERE = {"instance", "job"}
_USE = re.compile(r"\b(frameloom_[a-z_]+?)(?:_total|_bucket)?\b(?:\{([^}]*)\})?")

each = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


@each
def test_metrics_and_labels_exist(alert: dict[str, str]) -> None:
    for name, matchers in _USE.findall(alert["expr"]):
        labels = set(METRICS[name].labels) | ANYWHERE
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels, name


@each
def test_what_the_summary_names_is_left_by_the_expression(alert: dict[str, dict[str, str]]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    expression = str(alert["expr"])
    kept = {label for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(", ")}
    own = {label for name, _ in _USE.findall(expression) for label in METRICS[name].labels}
    assert named <= ((kept | ANYWHERE) if kept and "and on" not in expression else own | ANYWHERE)


@each
def test_each_says_how_bad_it_is(alert: dict[str, dict[str, str]]) -> None:
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["annotations"]["summary"]
