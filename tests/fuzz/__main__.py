"""Fuzzes the admission path for some processor time: `python -m tests.fuzz SECONDS [FOLDER]`.

Starts one executor after another. One that dies or hangs leaves its input as a finding. Ends with
exit code 1 when there are findings, and prints where they are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.executor import CORPUS, CURRENT, FINDINGS

SLICE_S = 240.0
"""Processor seconds of one executor: leaks of the libraries end with it."""
HANG_S = 120.0
"""Without a new input for so long, an executor hangs. Wall time; inputs take milliseconds."""
HEAP_CHECKS = "libc_malloc_debug.so.0"
"""glibc's checked allocator: writes behind a buffer end the process when the buffer is freed."""


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "out/fuzz")
    for name in (CORPUS, FINDINGS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    total = {"executions": 0, "decoded": 0, "cpu_s": 0.0, "executors": 0, "ended_by_signal": 0}
    seed = time.time_ns()
    while total["cpu_s"] < seconds:
        seed += 1
        counts, code = _executor(folder, seed, min(SLICE_S, seconds - total["cpu_s"] + 8))
        for key in ("executions", "decoded", "cpu_s"):
            total[key] += counts.get(key, 0)
        total["executors"] += 1
        if code != 0:
            total["ended_by_signal"] += 1
            _keep(folder, f"ended-{code}-{seed}")
        if counts.get("executions", 0) == 0:
            sys.stdout.write("the executor does not start, see out/fuzz/executor.log\n")
            return 2
        sys.stdout.write(json.dumps(total) + "\n")
        sys.stdout.flush()
    findings = sorted(path.name for path in (folder / FINDINGS).iterdir())
    sys.stdout.write(f"{len(findings)} files in {folder / FINDINGS}: {findings}\n")
    return 1 if findings else 0


def _executor(folder: Path, seed: int, seconds: float) -> tuple[dict[str, Any], int]:
    """Run one until it ends; its last counts and its exit code (negative: the signal)."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    if os.environ.get("FUZZ_HEAP_CHECKS") == "1":
        environment |= {"LD_PRELOAD": HEAP_CHECKS, "MALLOC_CHECK_": "3"}
    command = [sys.executable, "-m", "tests.fuzz.executor", "--folder", str(folder)]
    command += ["--seed", str(seed), "--seconds", str(seconds)]
    said = folder / "counts.jsonl"
    with said.open("wb") as out, (folder / "executor.log").open("ab") as log:
        child = subprocess.Popen(command, stdout=out, stderr=log, env=environment)
        try:
            while child.poll() is None:
                time.sleep(1.0)
                current = folder / CURRENT
                if current.exists() and time.time() - current.stat().st_mtime > HANG_S:
                    child.kill()
        finally:
            child.kill()
    lines = said.read_text().splitlines()
    return (json.loads(lines[-1]) if lines else {}), child.returncode


def _keep(folder: Path, name: str) -> None:
    shutil.copy(folder / CURRENT, folder / FINDINGS / name)


if __name__ == "__main__":
    sys.exit(main())
