"""The alerts, judged by Prometheus' own tool, where Debian's package `prometheus` is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ALERTS = Path(__file__).parents[2] / "deploy" / "alerts.yml"
PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

# a: two devices, of which one answers. b: a worker by itself that has never answered anything, and
# so has no series of answers. c: one whose answers are all dead letters.
SERIES = """\
rule_files: [alerts.yml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - series: 'frameloom_device_up{instance="a",device="cuda:0"}'
        values: '1x20'
      - series: 'frameloom_device_up{instance="a",device="cuda:1"}'
        values: '0x20'
      - series: 'frameloom_in_flight_items{instance="a",device="cuda:0"}'
        values: '5x20'
      - series: 'frameloom_in_flight_items{instance="a",device="cuda:1"}'
        values: '7x20'
      - series: 'frameloom_answered_total{instance="a",device="cuda:0",route="default",status="ok"}'
        values: '0+10x20'
      - series: 'frameloom_answered_total{instance="a",device="cuda:1",route="default",status="ok"}'
        values: '4x20'
      - series: 'frameloom_in_flight_items{instance="b"}'
        values: '3x20'
      - series: 'frameloom_in_flight_items{instance="c"}'
        values: '3x20'
      - series: 'frameloom_dead_lettered_total{instance="c",route="default",reason="crash"}'
        values: '0+1x20'
    alert_rule_test:
      - eval_time: 8m
        alertname: FrameloomDeviceDown
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, device: "cuda:1"}
            exp_annotations: {summary: "a: no worker on cuda:1"}
      - eval_time: 8m
        alertname: FrameloomNothingSettles
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, device: "cuda:1"}
            exp_annotations: {summary: "a (cuda:1) holds 7 frames and answers none"}
          - exp_labels: {severity: critical, instance: b}
            exp_annotations: {summary: "b holds 3 frames and answers none"}
"""

# A single event of each kind after four minutes, and none before: its series begins with it.
FIRST_EVENTS = """\
rule_files: [alerts.yml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - series: 'frameloom_dead_lettered_total{instance="a",route="default",reason="crash"}'
        values: '_x7 1x60'
      - series: 'frameloom_dead_lettered_total{instance="a",route="default",reason="bad_header"}'
        values: '_x7 1x60'
      - series: 'frameloom_out_of_memory_total{instance="a",route="default",bucket="4k"}'
        values: '_x7 1x60'
      - series: 'frameloom_clock_skews_total{instance="a",route="default"}'
        values: '_x7 1x60'
    alert_rule_test:
      - eval_time: 8m
        alertname: FrameloomNativeCodeFails
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, route: default, reason: crash}
            exp_annotations: {summary: "route default: dead letters of reason crash"}
      - eval_time: 8m
        alertname: FrameloomOutOfMemory
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, route: default, bucket: 4k}
            exp_annotations: {summary: "route default: batches of 4k found no memory"}
      - eval_time: 8m
        alertname: FrameloomClockSkew
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, route: default}
            exp_annotations: {summary: "route default: frames claim to be captured in the future"}
      - eval_time: 25m
        alertname: FrameloomNativeCodeFails
      - eval_time: 25m
        alertname: FrameloomOutOfMemory
      - eval_time: 25m
        alertname: FrameloomClockSkew
"""


def promtool(*arguments: str, folder: Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", ALERTS.name, folder=ALERTS.parent)


def test_a_device_that_is_down_or_answers_nothing_is_found_and_its_neighbour_is_not(
    tmp_path: Path,
) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    (tmp_path / "test.yml").write_text(SERIES)
    promtool("test", "rules", "test.yml", folder=tmp_path)


def test_the_first_event_of_its_kind_is_told_and_not_for_ever(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    (tmp_path / "test.yml").write_text(FIRST_EVENTS)
    promtool("test", "rules", "test.yml", folder=tmp_path)
