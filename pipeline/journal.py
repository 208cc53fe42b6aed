"""The journal: which records are inside a native call right now, for whoever comes after a crash.

One memory-mapped file per process, with one region per stage: a stage runs one call at a time. A
write is a copy into memory: it costs microseconds, and the kernel keeps it when the process dies.
A power cut may lose it; then nothing is suspected, and the first crash after it is the first.

Region: length of the payload (u32), its CRC-32 (u32), hung (u8), 7 unused, then the payload, a
MessagePack array. Length 0 means that nobody is inside. A writer that dies half-way leaves a length
of 0 or a checksum that does not match, and either way its call had not begun.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from pipeline.item import Coordinates

MAGIC = b"flnative"
VERSION = 2
_HEADER = struct.Struct("<8sII")
_REGION = struct.Struct("<IIB7x")
_LENGTH = struct.Struct("<I")
_HUNG_AT = 8
_HEADER_BYTES = 64
REGION_BYTES = 32 * 1024
"""Room for a batch of 1,024, the largest there is: one topic, 15 bytes per record."""


class Stage(StrEnum):
    """The stages that make native calls. The order is the order of the regions in the file."""

    DECODE = "decode"
    INFER = "infer"
    POST = "post"
    RETURN = "return"
    """Waiting for a GPU to be done with a batch, and fetching what it found."""
    SEGMENT = "segment"
    """A segment of video is demuxed and decoded into frames."""


class Located(Protocol):
    """What may be inside a native call: an item, or a segment that is being read."""

    @property
    def coordinates(self) -> Coordinates: ...
    @property
    def solo(self) -> bool:
        """Nothing else may be inside native code with it."""
        ...


_STAGES = tuple(Stage)
_AT = {stage: _HEADER_BYTES + number * REGION_BYTES for number, stage in enumerate(_STAGES)}
_SIZE = _HEADER_BYTES + len(_STAGES) * REGION_BYTES


class _Inside(msgspec.Struct, array_like=True, frozen=True):
    since_us: int
    topic: str
    records: list[tuple[int, int]]
    """Partition and offset."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Inside)


@dataclass(frozen=True, slots=True)
class Entry:
    """A native call that had not returned when its process died.

    Attributes:
        stage: where.
        hung: it was past its deadline, and the process ended itself.
        since_us: when it began, Unix microseconds.
        records: what was inside, at least one.
    """

    stage: Stage
    hung: bool
    since_us: int
    records: tuple[Coordinates, ...]


class Journal:
    """The file of this process. Each stage's region is written by that stage's thread alone;
    `mark_hung` may be called from any.

    Args:
        path: made anew; must not exist.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Written, not a hole: on a full disk that is an error here, where touching a page that
            # the disk cannot give would be a SIGBUS.
            with open(descriptor, "wb", closefd=False) as file:
                file.write(bytes(_SIZE))
            self._map = mmap.mmap(descriptor, _SIZE)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._map[: _HEADER.size] = _HEADER.pack(MAGIC, VERSION, os.getpid())

    def enter(self, stage: Stage, items: Sequence[Located]) -> None:
        """These items, of one route and therefore one topic, are about to enter native code.

        Raises:
            ValueError: they do not fit: more than a batch.
        """
        places = [item.coordinates for item in items]
        # Frames of one segment share their record, and it is inside once.
        records = list(dict.fromkeys([(place.partition, place.offset) for place in places]))
        payload = _ENCODER.encode(_Inside(time.time_ns() // 1000, places[0].topic, records))
        if len(payload) > REGION_BYTES - _REGION.size:
            raise ValueError(f"{len(records)} records do not fit the journal")
        at = _AT[stage]
        begin = at + _REGION.size
        _REGION.pack_into(self._map, at, 0, zlib.crc32(payload), 0)
        self._map[begin : begin + len(payload)] = payload
        # Last, and in one store: from here on the entry counts.
        _LENGTH.pack_into(self._map, at, len(payload))

    def leave(self, stage: Stage) -> None:
        """The call has returned."""
        _LENGTH.pack_into(self._map, _AT[stage], 0)

    def mark_hung(self, stage: Stage) -> None:
        """The call is past its deadline; the process ends because of it."""
        self._map[_AT[stage] + _HUNG_AT] = 1

    def close(self) -> None:
        """Nobody is inside any more: the file has served. Safe to call twice."""
        self.path.unlink(missing_ok=True)


def read_journal(path: Path) -> list[Entry]:
    """The calls that had not returned when the file's process died. A file that is not a journal,
    or is of a later version, says nothing.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    if len(content) != _SIZE:
        return []
    magic, version, _ = _HEADER.unpack_from(content)
    if (magic, version) != (MAGIC, VERSION):
        return []
    found = (_entry(content, stage) for stage in _STAGES)
    return [entry for entry in found if entry is not None]


def _entry(content: bytes, stage: Stage) -> Entry | None:
    at = _AT[stage]
    length, checksum, hung = _REGION.unpack_from(content, at)
    begin = at + _REGION.size
    payload = content[begin : begin + length]
    if not 0 < length <= REGION_BYTES - _REGION.size or zlib.crc32(payload) != checksum:
        return None
    try:
        inside = _DECODER.decode(payload)
    except msgspec.MsgspecError:
        return None
    records = tuple(Coordinates(inside.topic, *record) for record in inside.records)
    return Entry(stage, bool(hung), inside.since_us, records) if records else None
