"""The size that an AV1 bitstream claims, and how many frames it has: what its decoder allocates by.

Source: AV1 Bitstream & Decoding Process Specification (AOMedia, 2019), 5.3 (OBU), 5.5 (sequence
header), 4.10.5 (leb128).
"""

from __future__ import annotations

from pipeline.probe_refusal import bad_header, truncated

MAX_OBUS = 1024
"""Most units of one picture. An encoder writes three; each tile group may be one."""

MAX_FRAMES = 4
"""Most frames of one picture: one, or the layers of a progressive one."""

_SEQUENCE, _FRAME_HEADER, _FRAME = 1, 3, 6
_HAS_EXTENSION, _HAS_SIZE = 0x04, 0x02
_SEQUENCE_BYTES = 512
"""Longer than any sequence header: 32 operating points of 80 bits, and little else."""


def coded_size(data: memoryview) -> tuple[int, int]:
    """Largest width and height that the bitstream's one picture may have, pixels.

    Raises:
        PoisonError: TRUNCATED_HEADER, or BAD_HEADER for units that contradict the format, two
            sizes, none, or more than `MAX_FRAMES` frames.
    """
    size: tuple[int, int] | None = None
    at = frames = 0
    for _ in range(MAX_OBUS):
        if at >= len(data):
            if size is None:
                raise bad_header("the AV1 picture has no sequence header")
            return size
        kind, start, end = _unit(data, at)
        if kind == _SEQUENCE:
            found = _sequence_size(data[start:end])
            if size not in (None, found):
                raise bad_header(f"the AV1 picture claims to be {size} and {found} pixels")
            size = found
        elif kind in (_FRAME, _FRAME_HEADER):
            frames += 1
            if frames > MAX_FRAMES:
                raise bad_header(f"the AV1 picture has more than {MAX_FRAMES} frames")
        at = end
    raise bad_header(f"more than {MAX_OBUS} units in the AV1 picture")


def _unit(data: memoryview, at: int) -> tuple[int, int, int]:
    """Kind, start and end of the payload of the unit at `at`."""
    head = data[at]
    if head & 0x80:
        raise bad_header("a unit of the AV1 picture has a forbidden bit")
    at += 2 if head & _HAS_EXTENSION else 1
    length = len(data) - at
    if head & _HAS_SIZE:
        length, at = _leb128(data, at)
    if length < 0 or at + length > len(data):
        raise truncated("the end of a unit of the AV1 picture")
    return head >> 3 & 15, at, at + length


def _leb128(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        if at + index >= len(data):
            raise truncated("the length of a unit of the AV1 picture")
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value, at + index + 1
    raise bad_header("a unit of the AV1 picture has an endless length")


class _Bits:
    """Reads bits, the highest first."""

    def __init__(self, data: memoryview) -> None:
        self._number = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise truncated("the end of the AV1 sequence header")
        return self._number >> self._left & (1 << count) - 1

    def skip_uvlc(self) -> None:
        zeros = 0
        while not self.take(1):
            zeros += 1
        if zeros < 32:
            self.take(zeros)


def _sequence_size(payload: memoryview) -> tuple[int, int]:
    bits = _Bits(payload[:_SEQUENCE_BYTES])
    bits.take(4)  # profile, still picture
    if bits.take(1):  # reduced header
        bits.take(5)
    else:
        _skip_operating_points(bits)
    width_bits, height_bits = bits.take(4) + 1, bits.take(4) + 1
    return bits.take(width_bits) + 1, bits.take(height_bits) + 1


def _skip_operating_points(bits: _Bits) -> None:
    delay_bits = 0
    if bits.take(1):  # timing
        bits.take(64)
        if bits.take(1):
            bits.skip_uvlc()
        if bits.take(1):  # decoder model
            delay_bits = bits.take(5) + 1
            bits.take(32 + 5 + 5)
    display_delay = bits.take(1)
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > 7:
            bits.take(1)
        if delay_bits and bits.take(1):
            bits.take(2 * delay_bits + 1)
        if display_delay and bits.take(1):
            bits.take(4)
