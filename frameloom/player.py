"""One stream, from its sources to the broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

from frameloom.adaptive import Adaptive, AdaptiveLimits
from frameloom.dial import Dial
from frameloom.feed import FileFeed
from frameloom.live import LiveSource
from frameloom.live_reader import LiveState
from frameloom.open_sources import AnySource
from frameloom.pace import Pace, Thinner
from frameloom.sender import Sender
from frameloom.sources import FrameSource, SourceFrame, Unreadable
from frameloom.tally import Drop

Note = Callable[[str, str], None]
"""Told something worth saying: of which stream, and what."""


class Clock:
    """One wall-clock anchor taken at the start; everything after it is on the monotonic clock."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._began_at_us = time.time_ns() // 1000

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_at

    def unix_us(self, at_s: float) -> int:
        """Unix microseconds of an instant so many seconds after the start."""
        return self._began_at_us + round(at_s * 1e6)


class Player:
    """Plays the sources of one stream one after the other.

    Args:
        stream: its id.
        sender: how frames go.
        on_progress: told the stream's id after each frame read.
        on_note: told what people want to know.
        live: whether the sources are cameras.
    """

    def __init__(
        self,
        stream: str,
        sender: Sender,
        on_progress: Callable[[str], None],
        on_note: Note,
        *,
        live: bool,
    ) -> None:
        options = sender.options
        self._stream = stream
        self._options = options
        self._tally = sender.tally
        self._outlet = sender.outlet(stream, live=live)
        self._on_progress = on_progress
        self._on_note = on_note
        self._clock = Clock()
        self._pace = Pace(options.fps)
        self._dial = Dial(
            options.quality,
            Thinner(options.fps) if live and options.fps else None,
            None if options.adaptive is None else Adaptive(
                AdaptiveLimits(best=options.quality, worst=options.adaptive), may_skip=live
            ),
        )  # fmt: skip
        self._broken: set[str] = set()
        self._seq = 0
        self._sent_records = 0
        self._was_live = False

    async def play(self, sources: list[AnySource]) -> None:
        """Send everything; again and again with `loop`.

        Raises:
            TransientError: the broker takes no records of files.
            ConfigError: a folder cannot be watched.
        """
        while not self._full():
            before = self._seq
            for source in sources:
                await self._play(source)
            # A pass without a single frame would spin for ever.
            if not self._options.loop or self._seq == before:
                return

    async def _play(self, source: AnySource) -> None:
        if isinstance(source, LiveSource):
            await self._play_live(source)
        elif isinstance(source, FileFeed):
            async with aclosing(source.paths()) as paths:
                async for path in paths:
                    if isinstance(path, Unreadable):
                        self._tell_broken(path)
                        continue
                    self._pace.resume(self._clock.now_s())
                    await self._play_file(source.open_file(path))
                    if self._full():
                        return
        else:
            self._pace.next_source()
            await self._play_file(source)

    async def _play_file(self, source: FrameSource) -> None:
        source.quality = self._dial.quality
        async with aclosing(_walk(source)) as frames:
            async for found in frames:
                if isinstance(found, Unreadable):
                    self._tell_broken(found)
                    continue
                if self._full():
                    return
                self._tally.read(self._stream, found.frames)
                await self._send_paced(found)
                self._dial.observe(self._clock.now_s(), self._outlet.delay_s(), 0)
                source.quality = self._dial.quality

    async def _send_paced(self, frame: SourceFrame) -> None:
        lasts_s = (frame.lasts_us or frame.interval_us or 0) / 1e6
        due = self._pace.due(frame.at_s, lasts_s, segment=frame.lasts_us > 0)
        now_s = self._clock.now_s()
        try:
            if due.at_s is not None and due.at_s > now_s:
                await asyncio.sleep(due.at_s - now_s)
        except asyncio.CancelledError:
            self._tally.drop(self._stream, Drop.STOPPED, frame.frames)
            raise
        captured_s = now_s if due.captured_s is None else due.captured_s
        await self._send(frame, self._clock.unix_us(captured_s))

    async def _play_live(self, source: LiveSource) -> None:
        tally, stream = self._tally, self._stream
        try:
            frames = source.frames(self._dial, self._drop, self._on_state)
            async with aclosing(frames):
                async for found in frames:
                    self._count(source)
                    if isinstance(found, Unreadable):
                        tally.fail(found.name, found.why, stream=stream)
                        return
                    at_us = found.captured_at_us
                    now_us = self._clock.unix_us(self._clock.now_s())
                    await self._send(found, now_us if at_us is None else at_us)
                    if self._full():
                        return
        finally:
            self._count(source)

    async def _send(self, frame: SourceFrame, captured_at_us: int) -> None:
        self._tally.of(self._stream).quality = self._dial.quality
        try:
            await self._outlet.send(self._seq, frame, captured_at_us)
        except asyncio.CancelledError:
            self._drop(Drop.STOPPED, frame.frames)
            raise
        self._seq += frame.frames
        self._sent_records += 1
        self._on_progress(self._stream)

    def _count(self, source: LiveSource) -> None:
        """Take over what the camera's thread counted, and let the dial know."""
        came = source.arrivals()
        self._tally.read(self._stream, came.read)
        for why, frames in came.dropped.items():
            self._drop(why, frames)
        overrun = came.dropped.get(Drop.SLOW_BROKER, 0)
        self._dial.observe(self._clock.now_s(), self._outlet.delay_s(), overrun)

    def _drop(self, why: Drop, frames: int) -> None:
        self._tally.drop(self._stream, why, frames)

    def _on_state(self, state: LiveState, note: str) -> None:
        tally = self._tally.of(self._stream)
        if state is LiveState.LIVE:
            if self._was_live:
                self._tally.reconnect(self._stream)
                self._on_note(self._stream, "connected again")
            self._was_live = True
        elif note and state is LiveState.WAITING:
            self._on_note(self._stream, note)
        tally.state = state.value

    def _tell_broken(self, found: Unreadable) -> None:
        # In a loop, a broken file is broken every time: it counts once.
        if found.name not in self._broken:
            self._broken.add(found.name)
            self._tally.fail(found.name, found.why, stream=self._stream)

    def _full(self) -> bool:
        return self._options.count is not None and self._sent_records >= self._options.count


async def _walk(source: FrameSource) -> AsyncGenerator[SourceFrame | Unreadable, None]:
    """The source's frames, read and decoded off the event loop."""
    frames: Iterator[SourceFrame | Unreadable] = await asyncio.to_thread(source.frames)
    while True:
        found = await asyncio.to_thread(next, frames, None)
        if found is None:
            return
        yield found
