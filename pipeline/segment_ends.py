"""Whether a container says that it goes on after its last byte: it was cut short.

Decoders read a container to where its bytes end and call that the end. MP4 and Matroska state the
length of what they hold, so what is missing can be known; a transport stream has whole packets. An
elementary stream, and a transport stream cut between packets, show damage only in their last frame,
where the decoder sees it.

Sources: ISO/IEC 14496-12 (boxes: 32-bit size and type, size 1 means a 64-bit size follows, size 0
means to the end); RFC 8794 (EBML: element ids and sizes are variable-length integers; a size of
all ones is unknown) and RFC 9559 (Matroska: one EBML header, then one Segment); ISO/IEC 13818-1
(packets of 188 bytes that begin with 0x47).
"""

from __future__ import annotations

from schemas.frame import Encoding

_BOXES = frozenset(
    {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"sidx", b"free", b"skip", b"wide", b"meta",
     b"uuid", b"mfra", b"emsg", b"prft", b"udta", b"pdin"}
)  # fmt: skip
"""Top-level boxes. Anything else after a good one is a tail that belongs to no frame."""
_PACKET, _SYNC = 188, 0x47
_EBML, _SEGMENT = 0x1A45DFA3, 0x18538067


def missing_bytes(data: memoryview, encoding: Encoding) -> int:
    """How many bytes a segment lacks by its own word; 0 where it says nothing of it."""
    if encoding is Encoding.MP4:
        return _missing_of_boxes(data)
    if encoding is Encoding.MKV:
        return _missing_of_elements(data)
    if encoding is Encoding.TS:
        return _missing_of_packets(data)
    return 0


def _missing_of_packets(data: memoryview) -> int:
    rest = len(data) % _PACKET
    # What does not begin like a packet is a tail of something else.
    return _PACKET - rest if rest and data[len(data) - rest] == _SYNC else 0


def _missing_of_boxes(data: memoryview) -> int:
    at = 0
    while len(data) - at >= 8:
        size = int.from_bytes(data[at : at + 4], "big")
        if bytes(data[at + 4 : at + 8]) not in _BOXES or size == 0:
            return 0
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8:
            return 0
        at += size
    return max(at - len(data), 0)


def _missing_of_elements(data: memoryview) -> int:
    at = 0
    for wanted in (_EBML, _SEGMENT):
        if int.from_bytes(data[at : at + 4], "big") != wanted or len(data) < at + 5:
            return 0
        width = 9 - data[at + 4].bit_length()
        coded = int.from_bytes(data[at + 4 : at + 4 + width], "big")
        size = coded & ~(1 << 7 * width)
        unknown = size == (1 << 7 * width) - 1
        at += 4 + width
        if wanted == _SEGMENT:
            return 0 if unknown else max(at + size - len(data), 0)
        at += size
    return 0
