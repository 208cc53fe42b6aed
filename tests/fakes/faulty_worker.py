"""A real worker that delivers exactly once, and sends itself a signal in a transaction.

Arguments: CONFIG POINT SIGNAL. POINT is `produced` (the answers are in, the offset is not),
`offsets` (both are in, the commit is not asked for) or `committed` (the commit is done, and the
worker has not noticed). The transaction is the third of the process: there is something before it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.ports import Lane
from schemas.settings import Settings, load_settings
from tests.fakes.lane import a_lane
from workers.detect import Loaded, run_worker
from workers.kafka_clients import AIOKafkaProducer

POINTS = ("produced", "offsets", "committed")
FATAL_ONE = 3


def faulty(point: str, number: signal.Signals) -> Callable[[Path], list[str]]:
    """What makes the command for this worker from its configuration file."""
    module = "tests.fakes.faulty_worker"
    return lambda config: [sys.executable, "-m", module, str(config), point, number.name]


class Faulty:
    """Counts commits and offsets of all producers, and strikes at the third."""

    def __init__(self, point: str, number: signal.Signals) -> None:
        self._point, self._signal = point, number
        self._passed = 0

    def at(self, point: str) -> None:
        if point != self._point:
            return
        self._passed += 1
        if self._passed == FATAL_ONE:
            os.kill(os.getpid(), self._signal)


def install(faulty: Faulty) -> None:
    producer: Any = AIOKafkaProducer
    send_offsets, commit = producer.send_offsets_to_transaction, producer.commit_transaction

    async def watched_offsets(self: Any, *args: Any) -> None:
        faulty.at("produced")
        await send_offsets(self, *args)

    async def watched_commit(self: Any) -> None:
        faulty.at("offsets")
        await commit(self)
        faulty.at("committed")

    producer.send_offsets_to_transaction = watched_offsets
    producer.commit_transaction = watched_commit


def load(settings: Settings) -> Loaded:
    """A lane per route without weights."""
    lanes: dict[str, Lane] = {route.name: a_lane() for route in settings.routes}
    return Loaded(lanes, "cpu")


if __name__ == "__main__":
    install(Faulty(sys.argv[2], signal.Signals[sys.argv[3]]))
    sys.exit(run_worker(load_settings(sys.argv[1]), load))
