"""What became of every frame that `frameloom produce` read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

_NAMED_FAILURES = 20


class Drop(StrEnum):
    """Why a frame was left out on purpose. Frames that should have been sent and were not are
    failures instead."""

    SLOW_BROKER = "slow_broker"
    """A live source had newer ones, and the buffer was full."""
    BROKER_AWAY = "broker_away"
    """A live source's, handed to the broker, which did not acknowledge it."""
    ADAPTIVE = "adaptive"
    """Left out by `--adaptive`, at its last levels."""
    FPS = "fps"
    """Left out by `--fps`, which thins a live source."""
    DAMAGED = "damaged"
    """A live source's, lost on the way to us: it cannot be decoded."""
    NO_KEY_FRAME = "no_key_frame"
    """A segment cannot begin with it."""
    STOPPED = "stopped"
    """Read, and not sent yet when the command was stopped."""


@dataclass(slots=True)
class StreamTally:
    """What became of one stream's frames: `read` = `sent_frames` + `failed_frames` + all `dropped`,
    once nothing is in flight.

    Attributes:
        read: frames from the source.
        sent: records that the broker acknowledged.
        sent_frames: frames in them; the same, unless they are segments.
        sent_bytes: of those records' values.
        failed_frames: frames (or records of several) that should have been sent.
        dropped: why → how many frames.
        reconnects: how often a live source was connected to again.
        state: of a live source now: `connecting`, `live`, `waiting`, `ended`; empty for files.
        quality: of the JPEGs made now, or 0 where none are made.
    """

    read: int = 0
    sent: int = 0
    sent_frames: int = 0
    sent_bytes: int = 0
    failed_frames: int = 0
    dropped: dict[Drop, int] = field(default_factory=dict[Drop, int])
    reconnects: int = 0
    state: str = ""
    quality: int = 0


@dataclass(slots=True)
class Tally:
    """What became of a run's frames. `failures` names the first ones: which → why."""

    sent: int = 0
    sent_frames: int = 0
    sent_bytes: int = 0
    failed: int = 0
    failures: dict[str, str] = field(default_factory=dict[str, str])
    dropped: dict[Drop, int] = field(default_factory=dict[Drop, int])
    reconnects: int = 0
    streams: dict[str, StreamTally] = field(default_factory=dict[str, StreamTally])

    def of(self, stream: str) -> StreamTally:
        """The tally of one stream."""
        return self.streams.setdefault(stream, StreamTally())

    def read(self, stream: str, frames: int = 1) -> None:
        """Count frames that a source gave."""
        self.of(stream).read += frames

    def land(self, stream: str, nbytes: int, frames: int = 1) -> None:
        """Count a record that the broker acknowledged."""
        for each in (self, self.of(stream)):
            each.sent += 1
            each.sent_frames += frames
            each.sent_bytes += nbytes

    def drop(self, stream: str, why: Drop, frames: int = 1) -> None:
        """Count frames that were left out on purpose."""
        if frames:
            for each in (self, self.of(stream)):
                each.dropped[why] = each.dropped.get(why, 0) + frames

    def reconnect(self, stream: str) -> None:
        """Count a connection that was made again."""
        self.reconnects += 1
        self.of(stream).reconnects += 1

    def fail(self, name: str, why: str, *, stream: str | None = None, frames: int = 0) -> None:
        """Count something that should have been sent and was not; the first ones are named.

        Args:
            name: which file, frame or camera.
            why: in one line.
            stream: whose.
            frames: how many frames of those that were read it cost; 0 for a file or a camera that
                gave none.
        """
        self.failed += 1
        if stream is not None:
            self.of(stream).failed_frames += frames
        if len(self.failures) < _NAMED_FAILURES:
            self.failures.setdefault(name, why)
