"""Mutations that know the formats: what random bytes would never reach behind a checksum.

Each takes bytes and a random generator and gives bytes; all are pure, so a seed tells an input.
A picture that does not parse is damaged as plain bytes instead.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from random import Random

from tests.builders_pictures import (
    EXIF_PREFIX,
    PNG_SIGNATURE,
    chunk,
    exif,
    interlaced_png,
    riff,
    segment,
    vp8x,
)
from tests.builders_pictures import picture as make_picture
from tests.fuzz import mutate_formats
from tests.fuzz.mutate_plain import LARGE, NUMBERS, SIDES, plain

Mutation = Callable[[bytes, Random], bytes]

MAX_BYTES = 200_000
"""Longest input: what is small and costs much is what we look for."""


def damage(data: bytes, rng: Random) -> bytes:
    """One to some mutations, by format; plain bytes now and then."""
    for _ in range(1 + min(int(rng.expovariate(0.7)), 8)):
        structured = _structured(data)
        mutate = structured if structured is not None and rng.random() < 0.75 else plain
        data = mutate(data, rng)[:MAX_BYTES]
    return data


# --- JPEG ---------------------------------------------------------------------------------------

_MARKERS = (
    *range(0xC0, 0xD0), *range(0xD0, 0xE0), 0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xFE, 0x01, 0x00,
)  # fmt: skip


def jpeg_segments(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """(marker, payload) up to and with the first scan's header, and what follows."""
    parts: list[tuple[int, bytes]] = []
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        length = struct.unpack_from(">H", data, at + 2)[0]
        parts.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + max(length, 2)
        if parts[-1][0] == 0xDA:
            break
    return parts, data[at:]


def _join(parts: list[tuple[int, bytes]], scan: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segment(m, p[:65_000]) for m, p in parts) + scan


def jpeg(data: bytes, rng: Random) -> bytes:
    """Segments dropped, doubled, swapped, given other markers and fields; scans repeated."""
    parts, scan = jpeg_segments(data)
    if not parts:
        return plain(data, rng)
    at = rng.randrange(len(parts))
    marker, payload = parts[at]
    match rng.randrange(9):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case 2:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts[at] = (rng.choice(_MARKERS), payload)
        case 4:
            parts[at] = (marker, plain(payload, rng))
        case 5:
            return _join(_frame_fields(parts, rng), scan)
        case 6:
            parts.insert(0, (0xE1, EXIF_PREFIX + plain(exif(rng.randrange(10)), rng)))
        case 7:
            again = segment(0xDA, parts[-1][1]) + scan[: rng.randrange(len(scan) + 1)]
            return _join(parts, scan + again * rng.choice((1, 3, 30, 120)) + b"\xff\xd9")
        case _:
            restart = segment(0xDD, struct.pack(">H", rng.choice(NUMBERS[:15])))
            return _join(parts, plain(scan, rng)) if rng.random() < 0.5 else (
                b"\xff\xd8" + restart + data[2:]
            )  # fmt: skip
    return _join(parts, scan)


def _frame_fields(parts: list[tuple[int, bytes]], rng: Random) -> list[tuple[int, bytes]]:
    """Another size, precision, component or sampling factor in the start-of-frame segment."""
    changed = []
    for marker, payload in parts:
        fields = bytearray(payload)
        if marker in (0xC0, 0xC1, 0xC2, 0xC9, 0xCA) and len(fields) >= 9:
            match rng.randrange(4):
                case 0:
                    struct.pack_into(">HH", fields, 1, rng.choice(SIDES), rng.choice(SIDES))
                case 1:
                    fields[5] = rng.choice((0, 1, 2, 3, 4, 5, 255))
                case 2:
                    fields[7] = rng.choice((0x11, 0x12, 0x21, 0x22, 0x41, 0x44, 0x14, 0, 0xFF))
                case _:
                    fields[rng.randrange(len(fields))] = rng.randrange(256)
        changed.append((marker, bytes(fields)))
    return changed


# --- PNG ----------------------------------------------------------------------------------------

_NAMES = (
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT",
    b"bKGD", b"hIST", b"tEXt", b"zTXt", b"iTXt", b"pHYs", b"sPLT", b"tIME", b"eXIf", b"acTL",
    b"fcTL", b"fdAT", b"cICP", b"mDCV", b"cLLI", b"oFFs", b"pCAL", b"sCAL", b"abcd",
)  # fmt: skip


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """(name, payload) of the chunks that are whole."""
    parts: list[tuple[bytes, bytes]] = []
    at = 8
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">L4s", data, at)
        if at + 12 + length > len(data):
            break
        parts.append((name, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return parts


def _ancillary(rng: Random) -> tuple[bytes, bytes]:
    """A chunk that a reader unpacks or believes: compressed texts, profiles, frames, EXIF."""
    name = rng.choice(_NAMES)
    packed = zlib.compress(rng.choice((b"", b"x", bytes(50_000), bytes(5_000_000))), 9)
    text = rng.choice((b"name", b"", b"n" * 79, b"n" * 80)) + b"\0"
    forms = {
        b"iCCP": text + b"\0" + packed,
        b"zTXt": text + b"\0" + packed,
        b"iTXt": text + b"\1\0\0\0" + packed,
        b"eXIf": plain(exif(rng.randrange(10), rng.choice("<>")), rng),
        b"acTL": struct.pack(">LL", rng.choice(LARGE), rng.choice(LARGE)),
        b"fcTL": struct.pack(
            ">LLLLLHHBB", 0, rng.choice(SIDES), rng.choice(SIDES), rng.choice(LARGE),
            rng.choice(LARGE), 1, 0, rng.randrange(4), rng.randrange(3),
        ),
        b"sPLT": text + b"\10" + rng.randbytes(60),
        b"PLTE": rng.randbytes(rng.choice((0, 1, 3, 6, 768, 769, 771))),
        b"tRNS": rng.randbytes(rng.choice((0, 1, 2, 6, 256, 257))),
    }  # fmt: skip
    return name, forms.get(name, rng.randbytes(rng.choice((0, 1, 4, 9, 32, 200))))


def _image_data(parts: list[tuple[bytes, bytes]], rng: Random) -> list[tuple[bytes, bytes]]:
    """The pixels unpacked, damaged or given another length, and packed again."""
    packed = b"".join(payload for name, payload in parts if name == b"IDAT")
    try:
        raw = zlib.decompressobj().decompress(packed, 1 << 20)
    except zlib.error:
        raw = b""
    raw = rng.choice((plain(raw, rng), raw[: len(raw) // 2], raw + bytes(3_000_000), b""))
    packed = zlib.compress(raw, rng.choice((1, 9)))
    if rng.random() < 0.3:
        packed = plain(packed, rng)
    size = rng.choice((len(packed) or 1, 1, 100, 8192))
    pieces = [packed[i : i + size] for i in range(0, min(len(packed), size * 2000), size)]
    rest = [part for part in parts if part[0] != b"IDAT"]
    end = max(len(rest) - 1, 0)
    return [*rest[:end], *((b"IDAT", piece) for piece in pieces), *rest[end:]]


def png(data: bytes, rng: Random) -> bytes:
    """Chunks dropped, doubled, swapped, added and rewritten, with true checksums mostly."""
    parts = png_chunks(data)
    if not parts:
        return plain(data, rng)
    at = rng.randrange(len(parts))
    name, payload = parts[at]
    match rng.randrange(9):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case 2:
            parts[at] = (rng.choice(_NAMES), payload)
        case 3:
            parts[at] = (name, plain(payload, rng))
        case 4 | 5:
            parts.insert(rng.randrange(1, len(parts) + 1), _ancillary(rng))
        case 6 if len(parts[0][1]) == 13:
            ihdr = bytearray(parts[0][1])
            if rng.random() < 0.5:
                struct.pack_into(">LL", ihdr, 0, rng.choice(SIDES), rng.choice(SIDES))
            else:
                ihdr[8:10] = rng.choice(_DEPTHS)
                ihdr[12] = rng.randrange(2)
            parts[0] = (b"IHDR", bytes(ihdr))
        case 7:
            parts = _image_data(parts, rng)
        case _:
            wrong = rng.choice(LARGE)
            whole = [chunk(n, p) for n, p in parts]
            whole[at] = chunk(name, payload, wrong if rng.random() < 0.5 else None)[
                : rng.choice((None, -1, -4))
            ]
            return PNG_SIGNATURE + b"".join(whole)
    return PNG_SIGNATURE + b"".join(chunk(n, p) for n, p in parts)


_DEPTHS = tuple(bytes((depth, colour)) for colour in (0, 2, 3, 4, 6) for depth in (1, 2, 4, 8, 16))


# --- WebP ---------------------------------------------------------------------------------------


def webp_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """(name, payload) of the chunks that are whole."""
    parts: list[tuple[bytes, bytes]] = []
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sL", data, at)
        parts.append((name, data[at + 8 : at + 8 + length]))
        at += 8 + length + length % 2
    return parts


def webp(data: bytes, rng: Random) -> bytes:
    """Chunks dropped, doubled, swapped and added; canvas, flags, alpha and lengths rewritten."""
    parts = webp_chunks(data)
    if not parts:
        return plain(data, rng)
    at = rng.randrange(len(parts))
    name, payload = parts[at]
    match rng.randrange(8):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case 2:
            names = (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"EXIF", b"ICCP", b"XMP ", b"ANIM")
            parts[at] = (rng.choice((*names, b"ANMF", b"abcd")), payload)
        case 3:
            parts[at] = (name, plain(payload, rng))
        case 4:
            sides = [max(rng.choice(SIDES), 1) for _ in range(2)]
            parts.insert(0, vp8x(sides[0], sides[1], rng.choice((0, 2, 8, 0x10, 0x18, 0x3E))))
        case 5:
            parts.append((b"EXIF", plain(exif(rng.randrange(10)), rng)))
        case 6:
            alpha = bytes([rng.randrange(64)]) + rng.randbytes(rng.choice((0, 1, 10, 300)))
            parts.insert(at, (b"ALPH", alpha))
        case _:
            whole = bytearray(riff(*parts))
            places = [4, 16, *range(20, min(len(whole) - 4, 40))]
            struct.pack_into("<L", whole, rng.choice(places), rng.choice(LARGE))
            return bytes(whole)
    return riff(*parts)


_BY_START: dict[bytes, Mutation] = {
    b"\xff\xd8\xff": jpeg,
    PNG_SIGNATURE[:3]: png,
    b"RIF": webp,
    b"BM": mutate_formats.bmp,
    b"II": mutate_formats.tiff,
    b"MM": mutate_formats.tiff,
    b"GIF": mutate_formats.gif,
}


def _structured(data: bytes) -> Mutation | None:
    if data[4:8] == b"ftyp":
        return mutate_formats.avif
    return _BY_START.get(data[:3]) or _BY_START.get(data[:2])


def tiny_png(rng: Random) -> bytes:
    """A small interlaced picture, which no library here writes."""
    return interlaced_png(make_picture(1 + rng.randrange(40), 1 + rng.randrange(40)))
