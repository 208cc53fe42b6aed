"""`frameloom produce`: frames from files into a topic, paced, bounded, and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

from frameloom.reader import require_topics
from frameloom.sender import ProduceOptions, Sender, Tally
from frameloom.sources import FrameSource, SourceFrame, Unreadable
from schemas.errors import ConfigError, TransientError
from schemas.frame import MAX_STREAM_ID_BYTES
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    make_producer,
    start_client,
    stop_client,
)

_SETTLE_S = 15.0


async def produce(
    kafka: KafkaSettings,
    streams: dict[str, list[FrameSource]],
    options: ProduceOptions,
    tally: Tally,
    on_progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Send the streams side by side, the sources of one stream one after the other.

    Args:
        kafka: the connection.
        streams: stream id → its sources.
        options: how.
        tally: counted as frames are acknowledged or fail, and complete also when this is
            cancelled: what was sent by then is waited for.
        on_progress: told the stream's id after each frame read.

    Raises:
        ConfigError: the topic does not exist.
        TransientError: the broker went away.
    """
    await require_topics(kafka, options.topic)
    producer = make_producer(kafka, max_record_bytes=options.max_record_bytes)
    await start_client(producer, kafka)
    sender = Sender(producer, options, tally)
    try:
        async with asyncio.TaskGroup() as group:
            for stream, sources in streams.items():
                group.create_task(_play(stream, sources, sender, on_progress))
    except* TransientError as errors:
        raise errors.exceptions[0] from None
    finally:
        # On Ctrl-C too: what the broker has by now is told apart from what it has not.
        await sender.settle(_SETTLE_S)
        await stop_client(producer)


async def _play(
    stream: str,
    sources: list[FrameSource],
    sender: Sender,
    on_progress: Callable[[str], None],
) -> None:
    options = sender.options
    pace = _Pace(options.fps)
    broken: set[str] = set()
    seq = 0
    while True:
        before = seq
        for source in sources:
            pace.next_source()
            async for found in _walk(source):
                if isinstance(found, Unreadable):
                    # In a loop, a broken file is broken every time: it counts once.
                    if found.name not in broken:
                        broken.add(found.name)
                        sender.tally.fail(found.name, found.why)
                    continue
                if options.count is not None and seq >= options.count:
                    return
                captured_at_us = await pace.wait(found)
                await sender.send(stream, seq, found, captured_at_us)
                seq += 1
                on_progress(stream)
        # A pass without a single frame would spin for ever.
        if not options.loop or seq == before:
            return


async def _walk(source: FrameSource) -> AsyncIterator[SourceFrame | Unreadable]:
    """The source's frames, read and decoded off the event loop."""
    frames: Iterator[SourceFrame | Unreadable] = await asyncio.to_thread(source.frames)
    while True:
        found = await asyncio.to_thread(next, frames, None)
        if found is None:
            return
        yield found


class _Pace:
    """When a frame is due, and the capture time it gets (Unix microseconds).

    One wall-clock anchor is taken at the start; everything after it runs on the monotonic clock.
    """

    def __init__(self, fps: float | None) -> None:
        self._fps = fps
        self._began_at = time.monotonic()
        self._began_at_us = time.time_ns() // 1000
        self._sent = 0
        self._offset_s = 0.0
        self._last_s = 0.0

    def next_source(self) -> None:
        """A source (or a loop) begins: its times go on where the last one ended."""
        self._offset_s = self._last_s

    async def wait(self, frame: SourceFrame) -> int:
        """Sleep until the frame is due; its capture time, microseconds."""
        due_s = self._due_s(frame)
        now_s = time.monotonic() - self._began_at
        if due_s is None:
            return self._began_at_us + round(now_s * 1e6)
        if due_s > now_s:
            await asyncio.sleep(due_s - now_s)
        return self._began_at_us + round(due_s * 1e6)

    def _due_s(self, frame: SourceFrame) -> float | None:
        """Seconds after the start, or None for at once."""
        if self._fps:
            due_s = self._sent / self._fps
            self._sent += 1
            return due_s
        if self._fps == 0 or frame.at_s is None:
            return None
        due_s = self._offset_s + frame.at_s
        self._last_s = due_s + (frame.interval_us or 0) / 1e6
        return due_s


def name_streams(sources: list[FrameSource], stream: str | None) -> dict[str, list[FrameSource]]:
    """Stream id → its sources: one stream of all where `stream` is given, else one per source,
    numbered where names are shared.

    Raises:
        ConfigError: an empty stream id, or one that no worker would take for its length.
    """
    if stream is not None:
        if not stream:
            raise ConfigError("--stream: a stream id cannot be empty")
        if len(stream.encode(errors="replace")) > MAX_STREAM_ID_BYTES:
            raise ConfigError(f"--stream: a stream id has at most {MAX_STREAM_ID_BYTES} bytes")
        return {stream: sources}
    streams: dict[str, list[FrameSource]] = {}
    for source in sources:
        name, number = source.name, 2
        while name in streams:
            name, number = f"{source.name}-{number}", number + 1
        streams[name] = [source]
    return streams
