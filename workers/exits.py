"""The exit codes of a worker process."""

from __future__ import annotations

EXIT_DONE = 0
"""Drained: everything taken in was answered and committed."""
EXIT_FAILED = 1
"""Something failed; what was unsettled is uncommitted."""
EXIT_CONFIG = 2
"""A setting or a topic is wrong."""
EXIT_HUNG = 3
"""A native call hung: the process ended where it stood, with nothing more committed."""
