"""What a batch of the largest legal pictures costs in memory: `python -m bench.decode_memory`.

Sixteen PNGs of 50 million pixels, 650 KB each, in a fresh process per decoder and number of
threads; prints a Markdown table. Memory is the peak beyond what the process held before.
"""

from __future__ import annotations

import multiprocessing
import struct
import sys
import time
import zlib
from multiprocessing.queues import Queue
from pathlib import Path

import torch

from bench.frame_item import frame_item
from pipeline.bucket import Bucket
from pipeline.decoders import DecoderKind, make_decoder
from schemas.frame import Encoding

WIDTH, HEIGHT = 10_000, 5_000
PICTURES = 16
BUCKET = Bucket("4k", 1 << 40, 384, 640, PICTURES)
CASES: tuple[tuple[DecoderKind, int], ...] = (
    ("opencv", 1), ("opencv", 2), ("opencv", 16), ("dali", 2),
)  # fmt: skip
MIB = 1024 * 1024


def a_bomb() -> bytes:
    """A black RGB picture, which zlib packs 230 times smaller."""
    packer = zlib.compressobj(1)
    row = bytes(1 + 3 * WIDTH)
    packed = b"".join(packer.compress(row) for _ in range(HEIGHT)) + packer.flush()
    header = struct.pack(">LLBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, payload) for name, payload in chunks)


def _chunk(name: bytes, payload: bytes) -> bytes:
    crc = zlib.crc32(name + payload)
    return struct.pack(">L", len(payload)) + name + payload + struct.pack(">L", crc)


def measure(kind: DecoderKind, threads: int, answer: Queue[tuple[int, float]]) -> None:
    """Puts peak bytes and seconds. Runs in a process of its own."""
    decoder = make_decoder(kind, threads=threads, device="cpu")
    items = [frame_item(a_bomb(), Encoding.PNG, BUCKET)] * PICTURES
    out = torch.zeros((PICTURES, BUCKET.height, BUCKET.width, 3), dtype=torch.uint8)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before, began = peak_bytes(), time.perf_counter()
    errors = decoder.decode(items, out)
    spent = time.perf_counter() - began
    if any(errors):
        raise RuntimeError(f"the decoder refused a legal picture: {errors}")
    answer.put((peak_bytes() - before, spent))


def peak_bytes() -> int:
    """The process's peak of resident memory (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell a process's peak of memory")


def main() -> int:
    context = multiprocessing.get_context("spawn")
    print("| Decoder | threads | peak, MiB | seconds |\n|---|---|---|---|")
    for kind, threads in CASES:
        answer: Queue[tuple[int, float]] = context.Queue()
        process = context.Process(target=measure, args=(kind, threads, answer))
        process.start()
        peak, spent = answer.get(timeout=600.0)
        process.join()
        print(f"| {kind} | {threads} | {peak / MIB:.0f} | {spent:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
