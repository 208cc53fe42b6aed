"""Reads the first directory of a TIFF, and puts its orientation right where it stands.

Source: TIFF 6.0, section 2 (image file header, directory, entries); tag 274.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import Reason

MAX_ENTRIES = 1024
"""Most entries of a directory. A picture has a few dozen."""

MAX_PAGES = 64
"""Most directories in a file: OpenCV walks all of them to count them."""

ORIENTATION = 274
_ENTRY_BYTES = 12
_SHORT = 3
_FORMS = {1: "B", _SHORT: "H", 4: "L"}
"""Types of the numbers that are read here: BYTE, SHORT, LONG."""
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
"""Type → bytes of one value."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry: type, count of values, where the values stand, where the entry itself stands."""

    kind: int
    count: int
    values_at: int
    at: int


class TiffDirectory:
    """The entries of a TIFF's first directory, by tag. Every value lies inside the bytes.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, or UNSUPPORTED_ENCODING (BigTIFF, more than
            `MAX_PAGES` pages).
    """

    def __init__(self, data: memoryview) -> None:
        if len(data) < 8:
            raise truncated("the TIFF's first directory")
        self.data = data
        self.order = "<" if data[0] == ord("I") else ">"
        magic, at = struct.unpack_from(self.order + "HL", data, 2)
        if magic != 42:
            raise refusal(Reason.UNSUPPORTED_ENCODING, "BigTIFF")
        self._check_pages(at)
        self._entries = self._read(at)

    def numbers(self, tag: int, default: int | None = None, *, most: int) -> tuple[int, ...]:
        """The values of a tag; `default` alone where the tag is missing.

        Raises:
            PoisonError: BAD_HEADER: it is missing and has no default, holds none or more than
                `most`, or holds something else than whole numbers.
        """
        entry = self._entries.get(tag)
        if entry is None:
            if default is None:
                raise bad_header(f"the TIFF lacks tag {tag}")
            return (default,)
        if entry.kind not in _FORMS or not 1 <= entry.count <= most:
            raise bad_header(f"tag {tag} of the TIFF holds {entry.count} of type {entry.kind}")
        form = f"{self.order}{entry.count}{_FORMS[entry.kind]}"
        return struct.unpack_from(form, self.data, entry.values_at)

    def number(self, tag: int, default: int | None = None) -> int:
        """The first value of a tag; see `numbers`."""
        return self.numbers(tag, default, most=4)[0]

    def has(self, tag: int) -> bool:
        return tag in self._entries

    def upright(self) -> memoryview | bytes:
        """The file with its orientation set to 1: itself where it says so or nothing, else a copy.

        OpenCV turns a TIFF whatever it is told. The probe's reading counts, so it may see none.
        """
        entry = self._entries.get(ORIENTATION)
        if entry is None:
            return self.data
        straight = struct.pack(self.order + "HHLHH", ORIENTATION, _SHORT, 1, 1, 0)
        if bytes(self.data[entry.at : entry.at + _ENTRY_BYTES]) == straight:
            return self.data
        return b"".join((self.data[: entry.at], straight, self.data[entry.at + _ENTRY_BYTES :]))

    def _check_pages(self, at: int) -> None:
        for _ in range(MAX_PAGES):
            if at == 0 or at + 2 > len(self.data):
                return
            (entries,) = struct.unpack_from(self.order + "H", self.data, at)
            end = at + 2 + entries * _ENTRY_BYTES
            if end + 4 > len(self.data):
                return
            (at,) = struct.unpack_from(self.order + "L", self.data, end)
        if at:
            raise refusal(Reason.UNSUPPORTED_ENCODING, f"TIFF with more than {MAX_PAGES} pages")

    def _read(self, at: int) -> dict[int, _Entry]:
        if at < 8:
            raise bad_header(f"the TIFF's first directory stands at {at}")
        if at + 2 > len(self.data):
            raise truncated("the TIFF's first directory")
        (count,) = struct.unpack_from(self.order + "H", self.data, at)
        if count > MAX_ENTRIES:
            raise bad_header(f"the TIFF's first directory claims {count} entries")
        if at + 2 + count * _ENTRY_BYTES > len(self.data):
            raise truncated("the end of the TIFF's first directory")
        entries: dict[int, _Entry] = {}
        nbytes = 0
        for entry_at in range(at + 2, at + 2 + count * _ENTRY_BYTES, _ENTRY_BYTES):
            tag, entry = self._entry(entry_at)
            if tag in entries:
                raise bad_header(f"tag {tag} stands twice in the TIFF")
            entries[tag] = entry
            nbytes += _SIZES.get(entry.kind, 0) * entry.count
        # A reader copies the value of each tag: a thousand may name the same bytes.
        if nbytes > 2 * len(self.data):
            raise bad_header("the values of the TIFF's tags lie over each other")
        return entries

    def _entry(self, at: int) -> tuple[int, _Entry]:
        tag, kind, count = struct.unpack_from(self.order + "HHL", self.data, at)
        nbytes = _SIZES.get(kind, 0) * count
        values_at = at + 8
        if nbytes > 4:
            (values_at,) = struct.unpack_from(self.order + "L", self.data, at + 8)
        if values_at + nbytes > len(self.data):
            raise truncated(f"the end of tag {tag} of the TIFF")
        return tag, _Entry(kind, count, values_at, at)
