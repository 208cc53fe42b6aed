"""Reads the items of an AVIF (or another HEIF) file: which there are, their properties and bytes.

Source: ISO/IEC 14496-12 (boxes, `meta`, `pitm`, `iloc`, `iinf`), ISO/IEC 23008-12 (`iprp`, `ipco`,
`ipma`). Only what the probe needs is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import Reason

MAX_BOXES = 512
"""Most boxes side by side. A picture has ten."""

MAX_ITEMS = 256
"""Most items: pictures, tiles, alpha planes, metadata."""

MAX_EXTENTS = 64
"""Most pieces that the bytes of an item lie in."""

_NUMBER_BYTES = frozenset({0, 4, 8})


@dataclass(slots=True)
class AvifItem:
    """One item.

    Attributes:
        kind: `av01`, `grid`, `Exif`, ...
        properties: (name, payload) in the order in which they are applied.
        data: its bytes: a view where they lie in one piece.
    """

    kind: bytes = b""
    properties: list[tuple[bytes, memoryview]] = field(default_factory=list)
    data: memoryview = field(default_factory=lambda: memoryview(b""))

    def property(self, name: bytes, length: int) -> memoryview | None:
        """The payload of the item's one property of that name, at least `length` bytes.

        Raises:
            PoisonError: BAD_HEADER: it has several, or a shorter one.
        """
        found = [payload for known, payload in self.properties if known == name]
        if not found:
            return None
        if len(found) > 1 or len(found[0]) < length:
            raise bad_header(f"the AVIF's {name!r} properties contradict the format")
        return found[0]


def boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Name and payload of each box, in place.

    Raises:
        PoisonError: TRUNCATED_HEADER or BAD_HEADER.
    """
    at = 0
    for _ in range(MAX_BOXES):
        if at == len(data):
            return
        if at + 8 > len(data):
            raise truncated("the head of an AVIF box")
        length, head = int.from_bytes(data[at : at + 4], "big"), 8
        name = bytes(data[at + 4 : at + 8])
        if length == 1:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        elif length == 0:
            length = len(data) - at
        if length < head:
            raise bad_header(f"a box of the AVIF claims a length of {length}")
        if at + length > len(data):
            raise truncated(f"the end of the AVIF's {name!r} box")
        yield name, data[at + head : at + length]
        at += length
    raise bad_header(f"more than {MAX_BOXES} boxes side by side in the AVIF")


class _Reader:
    """Big-endian numbers, one after the other, out of a full box (version and flags first)."""

    def __init__(self, payload: memoryview) -> None:
        self._data = payload
        self._at = 0
        self.version = self.take(1)
        self.flags = self.take(3)

    def take(self, nbytes: int) -> int:
        end = self._at + nbytes
        if end > len(self._data):
            raise bad_header("a box of the AVIF is too short for what it holds")
        value = int.from_bytes(self._data[self._at : end], "big")
        self._at = end
        return value

    def count(self, nbytes: int, most: int) -> int:
        value = self.take(nbytes)
        if value > most:
            raise bad_header(f"a box of the AVIF claims {value} entries")
        return value

    def rest(self) -> memoryview:
        return self._data[self._at :]


def read_items(data: memoryview) -> tuple[int, dict[int, AvifItem]]:
    """The number of the primary item, and all items by their numbers.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, or UNSUPPORTED_ENCODING for an animation.
    """
    meta: memoryview | None = None
    for name, payload in boxes(data):
        if name == b"moov":
            raise refusal(Reason.UNSUPPORTED_ENCODING, "animated AVIF (a record holds one frame)")
        if name == b"meta":
            if meta is not None:
                raise bad_header("the AVIF describes itself twice")
            meta = payload
    if meta is None:
        raise truncated("what the AVIF says of its items")
    parts = _parts(_Reader(meta).rest())
    items = _named(parts.get(b"iinf"))
    _give_properties(items, parts.get(b"iprp"))
    _give_data(items, parts.get(b"iloc"), data, parts.get(b"idat", memoryview(b"")))
    primary = _Reader(_needed(parts, b"pitm"))
    number = primary.take(2 if primary.version == 0 else 4)
    if number not in items:
        raise bad_header("the AVIF's primary item does not exist")
    return number, items


def _parts(payload: memoryview) -> dict[bytes, memoryview]:
    """The boxes of a box, each at most once (`free` and `skip` mean nothing)."""
    found: dict[bytes, memoryview] = {}
    for name, part in boxes(payload):
        if name in found and name not in (b"free", b"skip"):
            raise bad_header(f"two {name!r} boxes in the AVIF")
        found[name] = part
    return found


def _needed(parts: dict[bytes, memoryview], name: bytes) -> memoryview:
    if name not in parts:
        raise bad_header(f"the AVIF has no {name!r} box")
    return parts[name]


def _named(payload: memoryview | None) -> dict[int, AvifItem]:
    """The items by number, with their kinds."""
    if payload is None:
        raise bad_header("the AVIF lists no items")
    info = _Reader(payload)
    count = info.count(2 if info.version == 0 else 4, MAX_ITEMS)
    items: dict[int, AvifItem] = {}
    for name, entry in boxes(info.rest()):
        if name != b"infe":
            continue
        reader = _Reader(entry)
        if reader.version not in (2, 3):
            continue  # an older form, without a kind: no picture
        number = reader.take(2 if reader.version == 2 else 4)
        reader.take(2)
        if number in items or len(items) == count:
            raise bad_header("the AVIF's list of items contradicts itself")
        items[number] = AvifItem(kind=reader.take(4).to_bytes(4, "big"))
    return items


def _give_properties(items: dict[int, AvifItem], payload: memoryview | None) -> None:
    if payload is None:
        return
    known = list[tuple[bytes, memoryview]]()
    seen = set[int]()
    for name, part in boxes(payload):
        if name == b"ipco":
            if known:
                raise bad_header("the AVIF lists its properties twice")
            known = list(boxes(part))
        elif name == b"ipma":
            for number, index in _associations(part, seen):
                if index > len(known):
                    raise bad_header("an item of the AVIF has a property that does not exist")
                if number in items and index:
                    items[number].properties.append(known[index - 1])


def _associations(payload: memoryview, seen: set[int]) -> Iterator[tuple[int, int]]:
    """(item, index of a property from 1) of an `ipma` box; `seen` holds the items so far."""
    reader = _Reader(payload)
    for _ in range(reader.count(4, MAX_ITEMS)):
        number = reader.take(2 if reader.version == 0 else 4)
        if number in seen:
            raise bad_header("an item of the AVIF is given its properties twice")
        seen.add(number)
        for _ in range(reader.take(1)):
            index = reader.take(2) & 0x7FFF if reader.flags & 1 else reader.take(1) & 0x7F
            yield number, index


def _give_data(
    items: dict[int, AvifItem], payload: memoryview | None, file: memoryview, inner: memoryview
) -> None:
    if payload is None:
        raise bad_header("the AVIF does not say where its items lie")
    reader = _Reader(payload)
    sizes = reader.take(2)
    offset, length, base, index = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    if reader.version == 0:
        index = 0
    if not {offset, length, base, index} <= _NUMBER_BYTES or reader.version > 2:
        raise bad_header("the AVIF's places of items have numbers of odd lengths")
    wide = 4 if reader.version == 2 else 2
    placed = set[int]()
    for _ in range(reader.count(wide, MAX_ITEMS)):
        number = reader.take(wide)
        method = reader.take(2) & 15 if reader.version else 0
        reader.take(2)  # which file: always this one, or its bytes are not here
        origin = reader.take(base)
        pieces: list[memoryview] = []
        for _ in range(reader.count(2, MAX_EXTENTS)):
            reader.take(index)
            start, nbytes = origin + reader.take(offset), reader.take(length)
            pieces.append(_piece(file if method == 0 else inner, start, nbytes))
        if method > 1 or number in placed:
            raise bad_header("an item of the AVIF lies elsewhere, or in two places")
        placed.add(number)
        if number in items:
            items[number].data = _joined(pieces, len(file))


def _piece(space: memoryview, start: int, nbytes: int) -> memoryview:
    end = start + nbytes if nbytes else len(space)
    if start > len(space) or end > len(space):
        raise truncated("the end of an item of the AVIF")
    return space[start:end]


def _joined(pieces: list[memoryview], most: int) -> memoryview:
    if len(pieces) == 1:
        return pieces[0]
    if sum(len(piece) for piece in pieces) > most:
        raise bad_header("the pieces of an item of the AVIF lie over each other")
    return memoryview(b"".join(pieces))
