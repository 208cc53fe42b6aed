"""Pictures of every kind that the worker must read, made in memory, and items that carry them.

`picture` makes content, `PICTURES` encodes it by kind, the rest damages and decorates the bytes.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import cv2
import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from PIL import Image

from pipeline.bucket import Bucket
from pipeline.item import Coordinates, Header, Item
from pipeline.letterbox import letterbox
from pipeline.probe import ProbeLimits, probe
from schemas.frame import Encoding, FrameMessage

Pixels = npt.NDArray[np.uint8]
"""uint8, shape (height, width, 3), channels BGR."""

LIMITS = ProbeLimits(max_pixels=50_000_000, max_scans=100)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
EXIF_PREFIX = b"Exif\0\0"


def picture(width: int, height: int, seed: int = 0) -> Pixels:
    """Smooth gradients, some hard-edged shapes and a little noise: no symmetry, no flat area."""
    rng = np.random.default_rng([seed, width, height])
    x = np.linspace(0.0, 1.0, width)[None, :]
    y = np.linspace(0.0, 1.0, height)[:, None]
    planes = [40 + 150 * x + 40 * y, 200 - 120 * y + 0 * x, 90 + 80 * np.sin(3 * x + 5 * y)]
    image = np.stack(planes, axis=-1) + rng.normal(0.0, 3.0, (height, width, 3))
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    for _ in range(6):
        corner = rng.integers(0, [width, height])
        size = rng.integers(1, [max(width // 3, 2), max(height // 3, 2)])
        colour = tuple(int(level) for level in rng.integers(0, 256, 3))
        cv2.rectangle(pixels, corner.tolist(), (corner + size).tolist(), colour, -1)
    return pixels


# --- encoders ---------------------------------------------------------------------------------


def save(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def rgb_image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[..., ::-1]))


def with_alpha(image: Image.Image) -> Image.Image:
    ramp = np.linspace(0, 255, image.width).astype(np.uint8)
    image = image.copy()
    image.putalpha(Image.fromarray(np.tile(ramp, (image.height, 1))))
    return image


def sixteen_bit(pixels: Pixels) -> npt.NDArray[np.uint16]:
    fine = np.random.default_rng(1).integers(-128, 128, pixels.shape)
    return np.clip(pixels.astype(np.int64) * 257 + fine, 0, 65535).astype(np.uint16)


def _cv_png(pixels: npt.NDArray[np.uint16]) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


def jpeg(pixels: Pixels, **options: object) -> bytes:
    return save(rgb_image(pixels), "JPEG", **{"quality": 90, **options})


def png(pixels: Pixels, **options: object) -> bytes:
    return save(rgb_image(pixels), "PNG", **options)


def webp(pixels: Pixels, **options: object) -> bytes:
    return save(rgb_image(pixels), "WEBP", **{"quality": 85, **options})


def cmyk(pixels: Pixels, *, marked: bool = True) -> bytes:
    """Four colours, with or without Adobe's marker (Pillow writes it)."""
    data = save(rgb_image(pixels).convert("CMYK"), "JPEG")
    at = data.index(b"\xff\xee")
    return data if marked else data[:at] + data[at + 16 :]


_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
"""Pass → first column, first row, step in columns, step in rows (PNG specification, 8.1)."""


def interlaced_png(pixels: Pixels) -> bytes:
    """An Adam7 PNG, which neither Pillow nor OpenCV writes."""
    height, width = pixels.shape[:2]
    rows = bytearray()
    for x, y, step_x, step_y in _ADAM7:
        part = pixels[y::step_y, x::step_x, ::-1]
        if part.shape[1]:
            for row in part:
                rows += b"\0" + row.tobytes()
    ihdr = struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 1)
    chunks = chunk(b"IHDR", ihdr), chunk(b"IDAT", zlib.compress(bytes(rows))), chunk(b"IEND", b"")
    return PNG_SIGNATURE + b"".join(chunks)


def without_tables(jpeg_bytes: bytes) -> bytes:
    """A JPEG whose Huffman tables were left out, as in the frames of Motion JPEG."""
    kept, at = jpeg_bytes[:2], 2
    while True:
        marker, length = struct.unpack_from(">xBH", jpeg_bytes, at)
        if marker != 0xC4:
            kept += jpeg_bytes[at : at + 2 + length]
        at += 2 + length
        if marker == 0xDA:
            return kept + jpeg_bytes[at:]


PICTURES: dict[str, tuple[Encoding, Callable[[Pixels], bytes]]] = {
    "jpeg-420": (Encoding.JPEG, jpeg),
    "jpeg-422": (Encoding.JPEG, lambda p: jpeg(p, subsampling=1)),
    "jpeg-444": (Encoding.JPEG, lambda p: jpeg(p, subsampling=0)),
    "jpeg-progressive": (Encoding.JPEG, lambda p: jpeg(p, progressive=True)),
    "jpeg-gray": (Encoding.JPEG, lambda p: save(rgb_image(p).convert("L"), "JPEG")),
    "jpeg-cmyk": (Encoding.JPEG, cmyk),
    "jpeg-cmyk-unmarked": (Encoding.JPEG, lambda p: cmyk(p, marked=False)),
    "jpeg-rgb": (Encoding.JPEG, lambda p: jpeg(p, keep_rgb=True)),
    "jpeg-restarts": (Encoding.JPEG, lambda p: jpeg(p, restart_marker_rows=1)),
    "jpeg-no-end": (Encoding.JPEG, lambda p: jpeg(p)[:-2]),
    "jpeg-no-end-progressive": (Encoding.JPEG, lambda p: jpeg(p, progressive=True)[:-2]),
    "jpeg-no-tables": (Encoding.JPEG, lambda p: without_tables(jpeg(p))),
    "jpeg-no-tables-no-end": (Encoding.JPEG, lambda p: without_tables(jpeg(p))[:-2]),
    "jpeg-padded": (Encoding.JPEG, lambda p: jpeg(p) + bytes(512)),
    "png-rgb": (Encoding.PNG, png),
    "png-alpha": (Encoding.PNG, lambda p: save(with_alpha(rgb_image(p)), "PNG")),
    "png-gray": (Encoding.PNG, lambda p: save(rgb_image(p).convert("L"), "PNG")),
    "png-gray-alpha": (
        Encoding.PNG,
        lambda p: save(with_alpha(rgb_image(p)).convert("LA"), "PNG"),
    ),
    "png-palette": (Encoding.PNG, lambda p: save(rgb_image(p).quantize(200), "PNG")),
    "png-palette-4": (Encoding.PNG, lambda p: save(rgb_image(p).quantize(16), "PNG", bits=4)),
    "png-palette-alpha": (
        Encoding.PNG,
        lambda p: save(rgb_image(p).quantize(32), "PNG", transparency=bytes(range(0, 256, 8))),
    ),
    "png-1": (Encoding.PNG, lambda p: save(rgb_image(p).convert("1"), "PNG")),
    "png-16": (Encoding.PNG, lambda p: _cv_png(sixteen_bit(p))),
    "png-16-gray": (Encoding.PNG, lambda p: _cv_png(sixteen_bit(p)[..., 0])),
    "png-16-alpha": (
        Encoding.PNG,
        lambda p: _cv_png(np.dstack([sixteen_bit(p), sixteen_bit(p)[..., 0]])),
    ),
    "png-interlaced": (Encoding.PNG, interlaced_png),
    "webp-lossy": (Encoding.WEBP, webp),
    "webp-lossless": (Encoding.WEBP, lambda p: webp(p, lossless=True)),
    "webp-alpha": (Encoding.WEBP, lambda p: save(with_alpha(rgb_image(p)), "WEBP", quality=85)),
    "webp-lossless-alpha": (
        Encoding.WEBP,
        lambda p: save(with_alpha(rgb_image(p)), "WEBP", lossless=True, exact=True),
    ),
}
"""Kind → encoding and encoder. Every one must be decoded."""


def animated(pixels: Pixels, form: str) -> bytes:
    """Two frames; `form` is `PNG` or `WEBP`."""
    other = rgb_image(np.ascontiguousarray(pixels[::-1]))
    return save(rgb_image(pixels), form, save_all=True, append_images=[other], duration=40)


# --- raw frames ---------------------------------------------------------------------------------


def raw(pixels: Pixels, encoding: Encoding) -> bytes:
    """The picture (or its grey levels) in a raw encoding; NV12 needs even sides."""
    if encoding is Encoding.BGR24:
        return pixels.tobytes()
    if encoding is Encoding.RGB24:
        return pixels[..., ::-1].tobytes()
    if encoding is Encoding.GRAY8:
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY).tobytes()
    height = pixels.shape[0]
    planar = cv2.cvtColor(pixels, cv2.COLOR_BGR2YUV_I420)
    chroma = planar[height:].reshape(2, -1)
    return planar[:height].tobytes() + np.ascontiguousarray(chroma.T).tobytes()


def raw_pixels(message: FrameMessage) -> Pixels:
    """What a raw frame shows, BGR."""
    flat, height, width = np.frombuffer(message.data, np.uint8), message.height, message.width
    assert height is not None
    assert width is not None
    match message.encoding:
        case Encoding.BGR24:
            return flat.reshape(height, width, 3)
        case Encoding.RGB24:
            return np.ascontiguousarray(flat.reshape(height, width, 3)[..., ::-1])
        case Encoding.GRAY8:
            return np.repeat(flat.reshape(height, width, 1), 3, axis=2)
        case _:
            planes = flat.reshape(height * 3 // 2, width)
            return np.asarray(cv2.cvtColor(planes, cv2.COLOR_YUV2BGR_NV12), np.uint8)


def raw_frame(pixels: Pixels, encoding: Encoding) -> FrameMessage:
    height, width = pixels.shape[:2]
    data = memoryview(raw(pixels, encoding))
    return msgspec.structs.replace(frame(b"", encoding), data=data, width=width, height=height)


def raw_item(pixels: Pixels, encoding: Encoding, into: Bucket) -> Item:
    """A raw frame's item as admission would make it."""
    return item_of(raw_frame(pixels, encoding), into)


# --- parts of files -----------------------------------------------------------------------------


def exif(orientation: int, order: str = "<") -> bytes:
    """A TIFF block with the orientation as its one tag; `order` is `<` (II) or `>` (MM)."""
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HLHHHLHHL", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def segment(marker: int, payload: bytes) -> bytes:
    """A JPEG marker segment."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(payload) + 2) + payload


def with_segments(jpeg_bytes: bytes, *segments: bytes) -> bytes:
    """A JPEG with segments put in right after its start marker."""
    return jpeg_bytes[:2] + b"".join(segments) + jpeg_bytes[2:]


def chunk(name: bytes, payload: bytes, length: int | None = None) -> bytes:
    """A PNG chunk; `length` overrides the true one."""
    size = len(payload) if length is None else length
    return struct.pack(">L", size) + name + payload + struct.pack(">L", zlib.crc32(name + payload))


def with_chunks(png_bytes: bytes, *chunks: bytes) -> bytes:
    """A PNG with chunks put in right after IHDR."""
    return png_bytes[:33] + b"".join(chunks) + png_bytes[33:]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A WebP file of (name, payload) chunks."""
    body = b"WEBP"
    for name, payload in chunks:
        body += name + struct.pack("<L", len(payload)) + payload + bytes(len(payload) % 2)
    return b"RIFF" + struct.pack("<L", len(body)) + body


def vp8x(width: int, height: int, flags: int = 0) -> tuple[bytes, bytes]:
    """The chunk that gives a WebP's canvas."""
    sides = [(side - 1).to_bytes(3, "little") for side in (width, height)]
    return b"VP8X", struct.pack("<L", flags) + b"".join(sides)


def oriented(pixels: Pixels, encoding: Encoding, orientation: int) -> bytes:
    """A picture of the encoding that carries an EXIF orientation."""
    block = exif(orientation)
    if encoding is Encoding.JPEG:
        return with_segments(jpeg(pixels), segment(0xE1, EXIF_PREFIX + block))
    if encoding is Encoding.PNG:
        return with_chunks(png(pixels), chunk(b"eXIf", block))
    height, width = pixels.shape[:2]
    plain = webp(pixels, lossless=True)
    return riff(vp8x(width, height, flags=8), (b"VP8L", plain[20:]), (b"EXIF", block))


def scan_start(jpeg_bytes: bytes) -> int:
    """Where the entropy-coded data of the first scan begins."""
    marker = jpeg_bytes.index(b"\xff\xda")
    return marker + 2 + int.from_bytes(jpeg_bytes[marker + 2 : marker + 4], "big")


# --- messages -----------------------------------------------------------------------------------


def frame(data: bytes, encoding: Encoding) -> FrameMessage:
    return FrameMessage(
        stream_id="camera", seq=0, captured_at_us=0, encoding=encoding, data=memoryview(data)
    )


def bucket(height: int, width: int, max_batch: int = 32) -> Bucket:
    return Bucket(f"{height}x{width}", 1 << 40, height, width, max_batch)


def item(data: bytes, encoding: Encoding, into: Bucket, header: Header | None = None) -> Item:
    """An item as admission would make it; `header` stands in for the probe's reading."""
    return item_of(frame(data, encoding), into, header)


def item_of(message: FrameMessage, into: Bucket, header: Header | None = None) -> Item:
    """An item of a message; see `item`."""
    header = probe(message, LIMITS) if header is None else header
    return Item(
        attempt_id=0,
        coordinates=Coordinates("frames", 0, 0),
        epoch=1,
        route="default",
        frame=message,
        header=header,
        bucket=into,
        geometry=letterbox(header.width, header.height, into.width, into.height),
        received_at=0.0,
    )


def sized_png(width: int, height: int) -> bytes:
    ihdr = struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG_SIGNATURE + chunk(b"IHDR", ihdr) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def many_scans(count: int, components: int = 1, frame_marker: int = 0xC2) -> bytes:
    body = struct.pack(">BHHB", 8, 16, 16, components)
    body += b"".join(bytes((c, 0x11, 0)) for c in range(1, components + 1))
    scan = segment(0xDA, b"\x01\x01\x00\x00\x3f\x00") + b"data\xff\x00more\xff\xd3rest"
    return b"\xff\xd8" + segment(frame_marker, body) + scan * count + b"\xff\xd9"


Edits = list[tuple[int, int, int]]
"""Where, with which value, and what is done there."""


def edits(within: int, most: int) -> st.SearchStrategy[Edits]:
    """Up to `most` edits of the first `within` + 1 bytes."""
    spot = st.tuples(st.integers(0, within), st.integers(0, 255), st.integers(0, 3))
    return st.lists(spot, max_size=most)


def damage(data: bytes, edits: Edits, saturated: Callable[[int], bytes]) -> bytes:
    """Flip, insert and delete bytes, and write `saturated(value)` over others."""
    damaged = bytearray(data)
    for at, value, deed in edits:
        spot = at % len(damaged)
        if deed == 0:
            damaged[spot] ^= value
        elif deed == 1:
            damaged.insert(spot, value)
        elif deed == 2:
            del damaged[spot : spot + value % 8]
        else:
            over = saturated(value)
            damaged[spot : spot + len(over)] = over
    return bytes(damaged)
