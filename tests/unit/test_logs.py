"""Logs are one JSON object a line, and a flood of bad records cannot flood them."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from structlog.testing import capture_logs

from schemas.settings import LogSettings
from tests.fakes.clock import VirtualClock
from workers.logs import BURST, PERIOD_S, RecordLog, configure, get_log


def test_events_and_library_records_are_json_lines_on_standard_error(
    unconfigured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(level="info", format="json"))
    get_log("frameloom.test").info("worker_state", state="running")
    logging.getLogger("library").warning("slow %s", "disk")
    get_log("frameloom.test").debug("unseen")
    out, err = capsys.readouterr()
    assert out == ""
    ours, theirs = (json.loads(line) for line in err.splitlines())
    assert (ours["event"], ours["state"], ours["level"]) == ("worker_state", "running", "info")
    assert (theirs["event"], theirs["logger"]) == ("slow disk", "library")


def test_console_lines_are_for_people(
    unconfigured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(level="warning", format="console"))
    get_log("frameloom.test").warning("dead_letter", reason="bad_envelope")
    err = capsys.readouterr().err
    assert "dead_letter" in err
    assert "reason=bad_envelope" in err


def test_a_library_that_repeats_itself_is_cut_and_counted_and_we_are_not(
    unconfigured: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    monkeypatch.setattr("workers.logs.time.monotonic", clock)
    configure(LogSettings(level="info", format="json"))
    library = logging.getLogger("library.client")
    for node in range(BURST + 20):
        library.warning("Unable to reach node %s", node)
        get_log("frameloom.test").info("worker_state")
    library.warning("another message")
    clock.advance(PERIOD_S)
    library.warning("Unable to reach node %s", 99)
    library.warning("Unable to reach node %s", 100)

    said = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert said.count("worker_state") == BURST + 20
    assert [event for event in said if event != "worker_state"] == [
        *(f"Unable to reach node {node}" for node in range(BURST)),
        "another message",
        "Unable to reach node 99 (20 more like it)",
        "Unable to reach node 100",
    ]


def test_a_flood_of_one_event_is_cut_and_counted() -> None:
    with capture_logs() as lines:
        log = RecordLog(get_log("test"))
        for n in range(BURST + 100):
            log.warn("dead_letter", now=float(n) / 1_000, reason="x")
        log.warn("other", now=1.0)
        assert [line["event"] for line in lines] == ["dead_letter"] * BURST + ["other"]

        log.warn("dead_letter", now=PERIOD_S, reason="x")
        assert lines[-1]["suppressed"] == 100
        log.warn("dead_letter", now=PERIOD_S, reason="x")
        assert "suppressed" not in lines[-1]


def test_in_a_fleet_every_line_names_its_device(
    unconfigured: None, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogSettings(), "cuda:1")
    get_log("frameloom.test").info("worker_state", state="running")
    logging.getLogger("library").warning("slow disk")
    thread = threading.Thread(target=lambda: get_log("frameloom.test").info("from_a_thread"))
    thread.start()
    thread.join()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["device"] for line in lines] == ["cuda:1"] * 3
