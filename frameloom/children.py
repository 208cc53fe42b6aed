"""Child processes that do not outlive their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
# Run in the child before the real program: asks the kernel for SIGTERM when the parent goes, and
# looks once whether it went already. `preexec_fn` would do the same, but not safely in a process
# with threads. The request survives exec.
_TIE = f"""\
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGTERM, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def spawn(
    command: Sequence[str],
    *,
    log: IO[bytes],
    env: Mapping[str, str] | None = None,
    files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to `log`.

    On Linux the child gets SIGTERM when the thread that called this ends, whatever ended it, so
    call it from the main thread. Elsewhere it must be ended by `end`. The child is put in a
    session of its own: Ctrl-C in the terminal reaches the parent only, which then decides.

    Args:
        command: absolute path of the program, then its arguments.
        log: open binary file for stdout and stderr.
        env: the whole environment; the parent's where None.
        files: numbers of open files that the child gets, too, under the same numbers.

    Raises:
        OSError: the program cannot be started.
    """
    tied = list(command)
    if sys.platform == "linux":
        tied = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]
    return subprocess.Popen(
        tied,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=env,
        pass_fds=files,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], *, grace_s: float) -> int:
    """SIGTERM, up to `grace_s` seconds, then SIGKILL. Returns the exit code; safe to repeat."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log file, for an error message; empty where there is none."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
