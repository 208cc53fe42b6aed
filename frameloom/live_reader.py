"""The thread that reads a camera: connects, hands frames over, and connects again.

It never waits for the broker. A camera that is not read piles frames up where nobody can choose
which to lose: in the network's buffers, then in the camera.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from frameloom.address import Address, Kind
from frameloom.capture import Captured, CaptureError, CaptureRefusedError
from frameloom.handover import Handover
from frameloom.network import NetworkConnection, NetworkOptions
from frameloom.segments import Segment, SegmentOptions, encoded, remuxed
from frameloom.source_clock import SourceClock
from frameloom.tally import Drop
from frameloom.webcam import WebcamConnection
from pipeline.retry import Backoff

_STEADY_S = 10.0
"""A connection that lasted so long was a good one: the next failure is the first in a row."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How cameras are read.

    Attributes:
        network: how network cameras are.
        segment: cut into segments; None for single pictures.
        retries: give up after so many failed tries in a row; None for never.
        backoff: pauses between tries.
    """

    network: NetworkOptions = field(default_factory=NetworkOptions)
    segment: SegmentOptions | None = None
    retries: int | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(0.5, 30.0, random.random))


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """What a camera gave, with its time.

    Attributes:
        content: a picture not encoded yet, or a segment.
        captured_at_us: of it, or of a segment's first frame, Unix microseconds.
        interval_us: between frames, as the source declares it, or None.
        frames: in it.
    """

    content: Captured | Segment
    captured_at_us: int
    interval_us: int | None
    frames: int = 1


class LiveState(StrEnum):
    """What a camera is doing."""

    CONNECTING = "connecting"
    LIVE = "live"
    WAITING = "waiting"
    ENDED = "ended"


class Report(Protocol):
    """Told what happens. Called on the reader's thread."""

    def __call__(self, state: LiveState, note: str) -> None:
        """`note` says why, for people, without credentials; empty where there is nothing to say."""
        ...


class LiveReader:
    """Reads one camera until it is stopped. `run` is the thread's whole life.

    Args:
        address: which.
        options: how.
        handover: where frames go; closed at the end.
        report: told of each change of state.
    """

    def __init__(
        self, address: Address, options: LiveOptions, handover: Handover[Arrived], report: Report
    ) -> None:
        self._address = address
        self._options = options
        self._handover = handover
        self._report = report
        self._stopping = threading.Event()
        self._clock = SourceClock()
        self._live_at: float | None = None
        self.failure: str | None = None
        """Why it ended by itself; None while it runs or was stopped."""

    def stop(self) -> None:
        """End soon: at the next frame, or when what is waited for times out."""
        self._stopping.set()

    def run(self) -> None:
        """Connect, read, connect again."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 (the thread's one boundary; told by name)
            self.failure = f"unexpected {type(error).__name__}: {error}"
        finally:
            self._report(LiveState.ENDED, self.failure or "")
            self._handover.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._report(LiveState.CONNECTING, "")
            self._live_at = None
            try:
                self._read()
                why = "it ended"
            except CaptureRefusedError as error:
                self.failure = str(error)
                return
            except CaptureError as error:
                why = str(error)
            if self._stopping.is_set():
                return
            failures = 1 if self._was_steady() else failures + 1
            if self._options.retries is not None and failures > self._options.retries:
                self.failure = f"given up after {failures} tries: {why}"
                return
            pause_s = self._options.backoff.pause_s(failures)
            self._report(LiveState.WAITING, f"{why}; trying again in {pause_s:.1f} s")
            self._stopping.wait(pause_s)

    def _read(self) -> None:
        """One connection, from its opening to its end."""
        self._clock.reconnected()
        with self._connect() as connection:
            for content in self._contents(connection):
                if self._stopping.is_set():
                    return
                if self._live_at is None:
                    self._live_at = time.monotonic()
                    self._report(LiveState.LIVE, "")
                self._hand_over(content, connection.interval_us)

    def _was_steady(self) -> bool:
        return self._live_at is not None and time.monotonic() - self._live_at > _STEADY_S

    def _connect(self) -> AbstractContextManager[NetworkConnection | WebcamConnection]:
        if self._address.kind is Kind.WEBCAM:
            return WebcamConnection(self._address.target)
        return NetworkConnection(self._address.target, self._options.network)

    def _contents(
        self, connection: NetworkConnection | WebcamConnection
    ) -> Iterator[Captured] | Iterator[Segment]:
        cut = self._options.segment
        if cut is None:
            return connection.pictures()
        if isinstance(connection, WebcamConnection):
            return encoded(connection.pictures(), connection.interval_us, cut)
        if connection.remuxed:
            return remuxed(connection.packets(), connection.stream, cut, connection.camera_us)
        return encoded(connection.pictures(decoded=True), connection.interval_us, cut)

    def _hand_over(self, content: Captured | Segment, interval_us: int | None) -> None:
        if isinstance(content, Segment):
            if content.data is None:
                why = Drop.DAMAGED if content.why else Drop.NO_KEY_FRAME
                self._handover.skip(why, content.frames)
                return
            nbytes, frames, lasts_us = len(content.data), content.frames, content.lasts_us
        elif content.picture is None:
            self._handover.skip(Drop.DAMAGED)
            return
        else:
            nbytes, frames, lasts_us = content.nbytes, 1, 0
        # A segment is complete only once its last frame is over.
        end_us = None if content.stamp_us is None else content.stamp_us + lasts_us
        camera_us = None if content.camera_us is None else content.camera_us + lasts_us
        now_us = time.time_ns() // 1000
        at_us = self._clock.captured_at_us(end_us, now_us, camera_us) - lasts_us
        self._handover.put(Arrived(content, at_us, interval_us, frames), nbytes)


def start_reader(reader: LiveReader, name: str) -> Callable[[float], bool]:
    """Run the reader on a thread of its own.

    Returns a function that waits at most so many seconds for its end and says whether it came: a
    call into a dead camera cannot be cut short, and must not hold the whole process up.
    """
    thread = threading.Thread(target=reader.run, name=f"camera-{name}", daemon=True)
    thread.start()

    def ended(timeout_s: float) -> bool:
        thread.join(timeout_s)
        return not thread.is_alive()

    return ended
