"""`frameloom worker --restart`: the worker as a child process, started again when it dies."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from frameloom.children import spawn
from schemas.settings import LogSettings
from workers.logs import configure, get_log
from workers.supervisor import Supervisor


def supervise_worker(
    log: LogSettings, config: Path | None, bootstrap: str | None, overrides: Sequence[str]
) -> int:
    """Run `frameloom worker` with these options, again and again. Returns the exit code of
    `Supervisor.run`."""
    command = [sys.executable, "-m", "frameloom", "worker"]
    if config is not None:
        command += ["--config", str(config)]
    if bootstrap is not None:
        command += ["--bootstrap", bootstrap]
    for override in overrides:
        command += ["--set", override]
    return supervise(command, log)


def supervise(command: Sequence[str], log: LogSettings) -> int:
    """Run a worker's command, again and again, its output on this process's standard error."""
    configure(log)
    supervisor = Supervisor(
        lambda: spawn(command, log=sys.stderr.buffer),
        get_log("frameloom.supervisor"),
        time.monotonic,
    )
    return supervisor.run()
