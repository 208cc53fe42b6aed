"""Every scenario, with how much of it `make test` and `make drill` run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.scenario import (
    brokers,
    clocks,
    crashes,
    dead_letters,
    groups,
    hostile,
    memory,
    records,
    segments,
    slow_device,
    transactions,
)
from tests.scenario.oracle import Verdict
from tests.scenario.stage import AT_LEAST_ONCE, EXACTLY_ONCE, Guarantee

Scene = Callable[..., Awaitable[Verdict]]


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: in the table.
        scene: what happens, given a `Rig` and the arguments below.
        short: arguments in `make test`.
        long: arguments in `make drill`.
        tested: whether `make test` runs it; the others are too long even when short.
        guarantee: what its workers promise.
    """

    name: str
    scene: Scene
    short: Mapping[str, Any] = field(default_factory=dict[str, Any])
    long: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tested: bool = True
    guarantee: Guarantee = AT_LEAST_ONCE


def _same(name: str, scene: Scene, **arguments: object) -> Scenario:
    """The same in both."""
    return Scenario(name, scene, arguments, arguments)


SCENARIOS = (
    Scenario("kill -9 mid-batch, over and over", crashes.kill_nine, {"times": 2}, {"times": 20}),
    Scenario(
        "kill -9 with the real model",
        crashes.kill_nine,
        {"times": 1, "per_second": 60.0, "real_model": True},
        {"times": 3, "per_second": 60.0, "real_model": True},
        tested=False,  # test_kill.py has it
    ),
    Scenario("SIGTERM under load", crashes.sigterm, {"times": 1}, {"times": 5}),
    _same("zombie: stopped past its session", crashes.zombie, group_is_empty=False),
    _same("zombie that wakes up alone", crashes.zombie, group_is_empty=True),
    Scenario("broker killed and restarted", brokers.broker_restarts, {"times": 1}, {"times": 3}),
    Scenario("leader of the output killed (3 nodes)", brokers.lose_leader),
    Scenario("network cut, 5 s", brokers.network_cut, {"seconds": 5.0}, {"seconds": 5.0}),
    Scenario(
        "network cut, 30 s", brokers.network_cut, {"seconds": 30.0}, {"seconds": 30.0}, tested=False
    ),
    Scenario(
        "network delay, 0.5 s each way",
        brokers.network_delay,
        {"seconds": 5.0, "delay_s": 0.5},
        {"seconds": 30.0, "delay_s": 0.5},
    ),
    Scenario(
        "rebalance storm, a change every 2 s", groups.storm, {"seconds": 10.0}, {"seconds": 120.0}
    ),
    _same("revoke longer than its budget", groups.long_drain, group_waits=True),
    _same("drain longer than the rebalance timeout", groups.long_drain, group_waits=False),
    Scenario("1 % poison of every kind", records.poisoned, {"per_kind": 3}, {"per_kind": 100}),
    Scenario(
        "oversized results",
        records.oversized,
        {"every": 10, "count": 10},
        {"every": 10, "count": 200},
    ),
    Scenario("duplicate input records", records.sent_twice, {"count": 60}, {"count": 1_000}),
    _same("dead-letter topic missing at start", dead_letters.missing_at_start),
    Scenario(
        "dead-letter topic deleted", dead_letters.deleted_later, {"away_s": 0.0}, {"away_s": 30.0}
    ),
    Scenario(
        "device ten times slower", slow_device.slow_device, {"seconds": 25.0}, {"seconds": 300.0}
    ),
    Scenario(
        "pictures that crash or hang the decoder",
        hostile.hostile_pictures,
        tested=False,  # test_hostile.py has it
    ),
    Scenario(
        "out of memory, in decoder and model",
        memory.out_of_memory,
        {"seconds": 0.0},
        {"seconds": 15.0},
        tested=False,  # integration/test_memory.py has it
    ),
    Scenario("wall clock steps of ±10 minutes", clocks.clock_steps, {"count": 50}, {"count": 500}),
    Scenario(
        "kill -9 in mid-segment",
        segments.killed_in_mid_segment,
        {"times": 1, "segments": 2},
        {"times": 2, "segments": 12},
    ),
    Scenario(
        "exactly once: kill -9 in mid-segment",
        segments.killed_in_mid_segment,
        {"times": 1, "segments": 2},
        {"times": 2, "segments": 12},
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: kill -9 mid-batch",
        crashes.kill_nine,
        {"times": 2},
        {"times": 20},
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: kill -9 inside a transaction",
        transactions.killed_inside,
        {"times": 1},
        {"times": 2},
        tested=False,  # test_exactly_once.py has it
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: zombie inside a transaction",
        transactions.zombie_inside,
        {"frames": 200},
        {"frames": 1_000},
        tested=False,  # test_exactly_once.py has it
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: SIGTERM under load",
        crashes.sigterm,
        {"times": 1},
        {"times": 3},
        tested=False,
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: broker killed and restarted",
        brokers.broker_restarts,
        {"times": 1},
        {"times": 3},
        tested=False,
        guarantee=EXACTLY_ONCE,
    ),
    Scenario(
        "exactly once: rebalance storm",
        groups.storm,
        {"seconds": 10.0},
        {"seconds": 60.0},
        tested=False,
        guarantee=EXACTLY_ONCE,
    ),
)
"""In the order of the table."""
