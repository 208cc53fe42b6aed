"""`frameloom consume`: results as table rows, JSON lines or annotated pictures."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import msgspec

from frameloom.draw import Picture, annotate, decode_picture
from frameloom.reader import RecordFetcher, RecordGoneError, TopicReader
from frameloom.segment_picture import frame_picture
from pipeline.item import Coordinates
from schemas.codec import RawRecord, read_frame, read_result
from schemas.errors import ConfigError, PoisonError, WireError
from schemas.frame import SEGMENT_ENCODINGS, FrameMessage
from schemas.result import ResultMessage, Status
from schemas.settings import LimitSettings

_READ_S = 0.5


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of the topic that is not a result: where (topic/partition/offset) and why."""

    where: str
    why: str


async def results(
    reader: TopicReader, *, count: int | None, idle_s: float | None
) -> AsyncIterator[ResultMessage | Unreadable]:
    """Results as they arrive.

    Args:
        reader: of the output topics, entered.
        count: end after so many results; None for no end.
        idle_s: end after so many seconds without a record; None waits for ever.
    """
    left = count
    quiet_since = time.monotonic()
    while left is None or left > 0:
        records = await reader.read(_READ_S)
        now = time.monotonic()
        if records:
            quiet_since = now
        elif idle_s is not None and now - quiet_since >= idle_s:
            return
        for record in records:
            yield _read(record)
            if left is not None:
                left -= 1
                if left == 0:
                    return


def _read(record: RawRecord) -> ResultMessage | Unreadable:
    try:
        return read_result(record.value or b"")
    except WireError as error:
        where = f"{record.topic}/{record.partition}/{record.offset}"
        return Unreadable(where, str(error))


class Annotator:
    """Writes each answered frame with its detections drawn, as `STREAM-SEQ.jpg`.

    The frame is fetched by the coordinates in its result. A second frame of the same name (its
    producer began anew at 0, or the ids of two streams look alike as file names) has its
    coordinates in its own: `STREAM-SEQ-TOPIC-PARTITION-OFFSET.jpg`.

    Args:
        fetcher: entered.
        folder: exists; files of earlier runs that have the same name are replaced.
        limits: for reading the frames.
    """

    def __init__(self, fetcher: RecordFetcher, folder: Path, limits: LimitSettings) -> None:
        self._fetcher = fetcher
        self._folder = folder
        self._limits = limits
        # Small beside the files: some hundred bytes for each.
        self._drawn: dict[str, Coordinates] = {}

    async def write(self, result: ResultMessage) -> Path | str:
        """The file written, or in one line why there is none. Only `ok` results have pictures.

        Raises:
            TransientError: the broker does not answer.
            ConfigError: the file cannot be written.
        """
        if result.status is not Status.OK:
            return f"{result.status.value}, nothing to draw"
        source = Coordinates(result.source.topic, result.source.partition, result.source.offset)
        try:
            frame = read_frame(await self._fetcher.fetch(source), self._limits)
            drawn = annotate(self._picture(frame, result), result.detections)
        except RecordGoneError as error:
            return str(error)
        except PoisonError as error:
            return error.detail
        done, data = cv2.imencode(".jpg", drawn, [cv2.IMWRITE_JPEG_QUALITY, 92])
        if not done:
            return "the drawing cannot be encoded"
        path = self._folder / self._name(result, source)
        try:
            path.write_bytes(data.tobytes())
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        return path

    def _name(self, result: ResultMessage, source: Coordinates) -> str:
        stem = f"{file_stem(result.stream_id)}-{result.seq:08d}"
        if self._drawn.setdefault(stem, source) != source:
            stem = f"{stem}-{source.topic}-{source.partition}-{source.offset}"
        return f"{stem}.jpg"

    def _picture(self, frame: FrameMessage, result: ResultMessage) -> Picture:
        if frame.encoding in SEGMENT_ENCODINGS:
            return frame_picture(frame, result.seq - frame.seq, self._limits)
        return decode_picture(frame)


def file_stem(stream_id: str) -> str:
    """The stream's id as part of a file name: what a path could not carry becomes `_`."""
    kept = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in stream_id)
    return kept.lstrip(".")[:100] or "stream"


def row_of(result: ResultMessage) -> tuple[str, ...]:
    """Cells for people: stream, seq, status, size, what was seen, batch, latency."""
    seen: dict[str, int] = {}
    for found in result.detections:
        seen[found.label] = seen.get(found.label, 0) + 1
    objects = ", ".join(f"{n} {label}" for label, n in sorted(seen.items(), key=lambda e: -e[1]))
    batch = result.batch
    batch_text = f"{batch.bucket} {batch.size} ({batch.closed_by.value})" if batch else "-"
    times = result.times
    took = (times.finished_us - times.received_us) / 1000 if times.finished_us else None
    return (
        result.stream_id,
        str(result.seq),
        result.status.value,
        f"{result.width}x{result.height}",
        objects or "-",
        batch_text,
        f"{took:.0f} ms" if took is not None else "-",
    )


COLUMNS = ("stream", "seq", "status", "size", "seen", "batch (closed by)", "in worker")
"""Headings of `row_of`'s cells."""


def json_of(result: ResultMessage) -> object:
    """The result with its wire names, for a JSON line."""
    return msgspec.to_builtins(result)
