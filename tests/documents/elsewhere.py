"""Commands of the documents that cannot run in this folder, why, and what runs instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.documents.blocks import Command


@dataclass(frozen=True)
class Elsewhere:
    """A kind of command.

    Attributes:
        pattern: found in its text.
        why: it is not run here.
        instead: the test or target that runs it, or does what can be done.
        document: of these documents only (a prefix).
    """

    pattern: str
    why: str
    instead: str
    document: str = ""

    def covers(self, command: Command) -> bool:
        return command.document.startswith(self.document) and bool(
            re.search(self.pattern, command.text)
        )


LIST = [
    Elsewhere(r"", "needs its own toolchain or packages", "tests/examples", "examples/"),
    Elsewhere(r"\bdocker\b", "needs Docker", "tests/deploy"),
    Elsewhere(r"^make demo$", "a minute on two cores", "tests/scenario/test_demo.py"),
    Elsewhere(r"^make (test|check|fmt)\b", "is what runs this", "Makefile"),
    Elsewhere(r"^make drill\b", "a quarter of an hour", "tests/scenario/test_scenarios.py"),
    Elsewhere(r"\bbench\.gpu_check\b", "needs a GPU", "tests/unit/test_gpu_check.py"),
    Elsewhere(r"\bframeloom bench (ceiling|overlap|overhead|decode|peers|backends)\b",
              "measures for minutes", "tests/unit/test_cli_bench.py"),
    Elsewhere(r"^pip ", "fetches packages", "Makefile"),
    Elsewhere(r"\bbench\.(train|calibrate|eval)_demo_model\b", "trains, or measures, for minutes",
              "tests/contract/test_demo_model.py"),
    Elsewhere(r"\bfrom webcam\b|\bproduce webcam:", "needs a webcam", "tests/unit/test_sources.py"),
    Elsewhere(r"\bframeloom export\b", "takes half a minute", "tests/contract/test_cli_export.py"),
    Elsewhere(r"\bworker\b.*--devices\b", "starts a worker per device",
              "tests/integration/test_fleet.py"),
    Elsewhere(r"\bframeloom bench\b", "measures, and its figures want an idle machine",
              "tests/unit/test_bench_surface.py"),
    Elsewhere(r"^kafka-consumer-groups\.sh\b", "Apache Kafka's own tool, which moves offsets",
              "docs/operating.md"),
]  # fmt: skip


def elsewhere(command: Command) -> Elsewhere | None:
    """Why the command is not run here; None for one that is."""
    return next((entry for entry in LIST if entry.covers(command)), None)
