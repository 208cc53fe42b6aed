"""Mutations that know BMP headers, TIFF directories, GIF blocks, AVIF boxes and AV1 units.

As in `mutate.py`: pure, and plain bytes where a picture does not parse.
"""

from __future__ import annotations

import struct
from random import Random

from tests.fuzz.mutate_plain import LARGE, NUMBERS, SIDES, plain

# --- BMP ----------------------------------------------------------------------------------------


def bmp(data: bytes, rng: Random) -> bytes:
    """Another size, depth, compression, offset or number of colours; codes of run lengths."""
    fields = bytearray(data)
    if len(fields) < 54:
        return plain(data, rng)
    match rng.randrange(7):
        case 0:
            sides = (rng.choice(SIDES) * rng.choice((1, -1)), rng.choice(SIDES))
            struct.pack_into("<ll", fields, 18, *sides)
        case 1:
            struct.pack_into("<H", fields, 28, rng.choice((0, 1, 2, 4, 8, 16, 24, 32, 48)))
        case 2:
            struct.pack_into("<L", fields, 30, rng.choice((0, 1, 2, 3, 4, 5, 6)))
        case 3:
            struct.pack_into("<L", fields, rng.choice((10, 14, 46)), rng.choice(LARGE))
        case 4:
            struct.pack_into("<L", fields, 14, rng.choice((12, 16, 40, 52, 56, 64, 108, 124)))
        case 5:  # jumps, ends and literal stretches of the run-length codes
            codes = [
                rng.choice((b"\0\0", b"\0\1", b"\0\2", b"\0\xff", b"\xff\3", b"\1\1"))
                + rng.randbytes(rng.choice((0, 0, 2)))
                for _ in range(rng.randrange(1, 40))
            ]
            at = rng.randrange(54, len(fields) + 1)
            return bytes(fields[:at]) + b"".join(codes) + bytes(fields[at:])
        case _:
            at = rng.randrange(54, len(fields) + 1)
            return bytes(fields[:at]) + plain(bytes(fields[at:]), rng)
    return bytes(fields)


# --- TIFF ---------------------------------------------------------------------------------------

_TAGS = (
    254, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 282, 284, 292, 317, 320, 322, 323,
    324, 325, 330, 338, 339, 347, 512, 513, 530, 532, 32997, 34665, 34675, 60000,
)  # fmt: skip
_VALUES = (*NUMBERS, *LARGE, 4, 5, 6, 9, 10, 32773, 32946, 34712, 50000, 50001)


def tiff(data: bytes, rng: Random) -> bytes:
    """Entries given other tags, types, counts and values, or doubled; the chain of pages bent."""
    if len(data) < 10:
        return plain(data, rng)
    order = "<" if data[:1] == b"I" else ">"
    fields = bytearray(data)
    (at,) = struct.unpack_from(order + "L", data, 4)
    if at + 2 > len(data):
        return plain(data, rng)
    (count,) = struct.unpack_from(order + "H", data, at)
    if count == 0 or at + 6 + 12 * count > len(data):
        return plain(data, rng)
    entry = at + 2 + 12 * rng.randrange(count)
    match rng.randrange(9):
        case 0:
            struct.pack_into(order + "H", fields, entry, rng.choice(_TAGS))
        case 1:
            struct.pack_into(order + "H", fields, entry + 2, rng.randrange(20))
        case 2:
            struct.pack_into(order + "L", fields, entry + 4, rng.choice(_VALUES))
        case 3:
            struct.pack_into(order + "L", fields, entry + 8, rng.choice(_VALUES) & 0xFFFFFFFF)
        case 4:
            struct.pack_into(order + "H", fields, entry + 8, rng.choice(SIDES))
        case 5:
            other = at + 2 + 12 * rng.randrange(count)
            fields[entry : entry + 12] = fields[other : other + 12]
        case 6:
            struct.pack_into(order + "H", fields, at, rng.choice((count - 1, count + 1, 65535)))
        case 7:
            struct.pack_into(
                order + "L", fields, at + 2 + 12 * count, rng.choice((at, 8, 60, 2**31))
            )
        case _:
            body = rng.randrange(len(fields))
            return bytes(fields[:body]) + plain(bytes(fields[body:]), rng)
    return bytes(fields)


# --- GIF ----------------------------------------------------------------------------------------


def gif(data: bytes, rng: Random) -> bytes:
    """Another screen, frame, table or control; codes that clear, end or repeat."""
    fields = bytearray(data)
    if len(fields) < 14:
        return plain(data, rng)
    frame = data.find(b",", 13 + 3 * (2 << (data[10] & 7)) if data[10] & 0x80 else 13)
    match rng.randrange(7):
        case 0:
            struct.pack_into("<HH", fields, 6, rng.choice(SIDES), rng.choice(SIDES))
        case 1:
            fields[10:13] = rng.randbytes(3)
        case 2 if 0 <= frame < len(fields) - 11:
            struct.pack_into("<H", fields, frame + 1 + 2 * rng.randrange(4), rng.choice(SIDES))
        case 3 if 0 <= frame < len(fields) - 11:
            fields[frame + 9 : frame + 11] = rng.randbytes(2)
        case 4 if frame >= 0:
            control = b"!\xf9\4" + rng.randbytes(4) + b"\0"
            other = b"!" + rng.randbytes(1) + b"\3abc\0"
            extra = rng.choice((control, other, control[:5])) * rng.choice((1, 2, 900))
            return data[:frame] + extra + data[frame:]
        case 5 if 0 <= frame < len(fields) - 11:
            codes = rng.choice((b"\x24\x49\x92", b"\xff", b"\0", rng.randbytes(9))) * 80
            return data[: frame + 11] + bytes([len(codes) % 256]) + codes[:255] + data[frame + 11 :]
        case _:
            at = rng.randrange(13, len(fields) + 1)
            return data[:at] + plain(data[at:], rng)
    return bytes(fields)


# --- AVIF ---------------------------------------------------------------------------------------

_CONTAINERS = {b"meta": 4, b"iprp": 0, b"ipco": 0, b"iinf": 6, b"moov": 0}
_NAMES = (
    b"ftyp", b"meta", b"hdlr", b"pitm", b"iloc", b"iinf", b"infe", b"iprp", b"ipco", b"ipma",
    b"ispe", b"irot", b"imir", b"clap", b"pixi", b"av1C", b"colr", b"auxC", b"iref", b"idat",
    b"mdat", b"free", b"moov", b"grid", b"a1op", b"lsel", b"uuid",
)  # fmt: skip
Node = tuple[bytes, bytes]


def avif(data: bytes, rng: Random) -> bytes:
    """A box somewhere in the tree dropped, doubled, renamed or damaged, with true lengths mostly;
    or AV1 units changed."""
    if rng.random() < 0.25:
        return _av1(data, rng)
    return _inside(data, rng)


def _inside(data: bytes, rng: Random) -> bytes:
    nodes = _boxes(data)
    if not nodes:
        return plain(data, rng)
    at = rng.randrange(len(nodes))
    name, payload = nodes[at]
    skip = _CONTAINERS.get(name)
    if skip is not None and len(payload) > skip and rng.random() < 0.85:
        nodes[at] = (name, payload[:skip] + _inside(payload[skip:], rng))
        return _join(nodes)
    match rng.randrange(7):
        case 0:
            del nodes[at]
        case 1:
            nodes.insert(rng.randrange(len(nodes) + 1), nodes[at])
        case 2:
            nodes[at] = (rng.choice(_NAMES), payload)
        case 3 if len(payload) >= 4:
            changed = bytearray(payload)
            struct.pack_into(">L", changed, rng.randrange(len(payload) - 3), rng.choice(LARGE))
            nodes[at] = (name, bytes(changed))
        case 4:
            size = struct.pack(">LLL", 0, rng.choice(SIDES), rng.choice(SIDES))
            nodes.insert(
                at,
                rng.choice(
                    ((b"ispe", size), (b"irot", rng.randbytes(1)), (b"imir", rng.randbytes(1)))
                ),
            )
        case 5:
            whole = bytearray(_join(nodes))
            struct.pack_into(">L", whole, 0, rng.choice(LARGE))
            return bytes(whole)
        case _:
            nodes[at] = (name, plain(payload, rng))
    return _join(nodes)


def _boxes(data: bytes) -> list[Node]:
    nodes: list[Node] = []
    at = 0
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if length < 8 or at + length > len(data):
            return []
        nodes.append((data[at + 4 : at + 8], data[at + 8 : at + length]))
        at += length
    return nodes


def _join(nodes: list[Node]) -> bytes:
    return b"".join(struct.pack(">L", len(part) + 8) + name + part for name, part in nodes)


def _av1(data: bytes, rng: Random) -> bytes:
    """The sequence header, or what follows it, changed in place: no length around it changes."""
    start = data.find(b"\x0a", data.find(b"mdat") + 4)
    if start < 0 or start + 12 >= len(data):
        return plain(data, rng)
    changed = bytearray(data)
    spot = start + (rng.randrange(12) if rng.random() < 0.6 else rng.randrange(len(data) - start))
    changed[spot] ^= 1 << rng.randrange(8)
    return bytes(changed)
