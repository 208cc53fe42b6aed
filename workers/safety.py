"""What stands between one bad picture and a worker that crashes for ever."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.guard import HungCall, NativeGuard
from schemas.settings import Settings
from workers.exits import EXIT_HUNG
from workers.logs import Log
from workers.suspects import SuspectFolder, Suspects, journal_folder


class Safety:
    """The journal, the guard that writes it, and the suspects that earlier workers left; for the
    one worker of a process.

    Args:
        settings: where the journal is, and how long a native call may take.
        log: for suspects found and calls that hang.
        exit_now: ends the process at once with a code.
        device: of this process, where several share the folder; for its files' names.

    Raises:
        ConfigError: `lifecycle.journal_dir` cannot be used.
    """

    def __init__(
        self, settings: Settings, log: Log, exit_now: Callable[[int], None], device: str = ""
    ) -> None:
        folder = SuspectFolder(journal_folder(settings), log)
        self._log = log
        self._exit_now = exit_now
        self._files = folder.open_journal(device)
        self._files.catch_crashes()
        self.suspects = Suspects(folder)
        self.guard = NativeGuard(
            self._files.journal,
            settings.device.stage_timeout_ms / 1e3,
            hung=self._end,
            keep_alive=self._files.exit_when_stuck,
        )

    def close(self) -> None:
        """The process ends in order, and nobody is inside a native call."""
        self.guard.stop()
        self._files.close()

    def _end(self, call: HungCall) -> None:
        """On the guard's thread, with the call marked in the journal."""
        self._log.critical(
            "native_call_hangs",
            stage=call.stage.value,
            records=call.records,
            seconds=round(call.seconds, 1),
            code=EXIT_HUNG,
        )
        self._exit_now(EXIT_HUNG)
