"""The processor time of a model's run, apart from that of other threads."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from pipeline.processor_time import NoMeter, ProcessorMeter

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's accounts")
BURNT_S = 0.2
DEADLINE_S = 180.0


def burn(seconds: float) -> None:
    """Use so much of this thread's processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))


@LINUX
def test_what_other_threads_do_meanwhile_does_not_count() -> None:
    """A bound on processor time, whatever else the machine does."""
    process_s = time.process_time()
    running = ProcessorMeter(1).begin()
    assert running is not None
    burnt, done = threading.Event(), threading.Event()

    def work() -> None:
        burn(BURNT_S)
        burnt.set()
        done.wait(DEADLINE_S)

    other = threading.Thread(target=work)
    other.start()
    assert burnt.wait(DEADLINE_S)
    spent_s = running.seconds()
    done.set()
    other.join(DEADLINE_S)
    assert 0.0 <= spent_s <= time.process_time() - process_s - BURNT_S


@LINUX
def test_a_thread_that_has_ended_does_no_harm() -> None:
    running = ProcessorMeter(1).begin()
    other = threading.Thread(target=burn, args=(0.01,))
    other.start()
    inside = ProcessorMeter(1).begin()
    other.join(DEADLINE_S)
    assert running is not None
    assert inside is not None
    assert running.seconds() >= 0.0
    assert inside.seconds() >= 0.0


@LINUX
def test_a_run_takes_its_own_time_over_the_models_threads() -> None:
    alone, shared = ProcessorMeter(1).begin(), ProcessorMeter(2).begin()
    assert alone is not None
    assert shared is not None
    burn(BURNT_S)
    halved, whole = shared.seconds(), alone.seconds()
    # What the process uses between the two readings counts for one of them only.
    assert whole >= BURNT_S * 0.99
    assert BURNT_S * 0.99 / 2 <= halved <= whole / 2


def test_where_it_cannot_be_told_there_is_nothing_to_measure() -> None:
    assert NoMeter().begin() is None
