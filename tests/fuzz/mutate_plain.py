"""Mutations of plain bytes, and the numbers at which parsers break."""

from __future__ import annotations

import struct
from random import Random

NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 4096, 0x7FFF, 0x8000, 0xFFFF, 0x10000)
LARGE = (*NUMBERS, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3FFFFFFF, 0x00FFFFFF, 1 << 30)
SIDES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 64, 500, 999, 1000, 1001, 4000, 65500, 65535)
"""Numbers at which parsers break."""


def plain(data: bytes, rng: Random) -> bytes:
    """Flip, set, insert, drop, repeat or cut; numbers at which parsers break."""
    if not data:
        return rng.randbytes(rng.randrange(1, 64))
    at = rng.randrange(len(data))
    length = 1 + min(int(rng.expovariate(0.05)), 400)
    before, there, after = data[:at], data[at : at + length], data[at + length :]
    match rng.randrange(8):
        case 0:
            there = bytes([there[0] ^ 1 << rng.randrange(8)]) + there[1:]
        case 1:
            there = rng.randbytes(length)
        case 2:
            there = rng.randbytes(length) + there
        case 3:
            there = b""
        case 4:
            there *= rng.randrange(2, 20)
        case 5:
            there = after = b""
        case 6:
            there = _number(rng)
            after = data[at + len(there) :]
        case _:
            head = rng.randrange(min(len(data), 64))
            before, there, after = data[:head], rng.randbytes(1), data[head + 1 :]
    return before + there + after


def _number(rng: Random) -> bytes:
    form = rng.choice((">H", "<H", ">L", "<L"))
    return struct.pack(form, rng.choice(NUMBERS[:15] if form[1] == "H" else LARGE))
