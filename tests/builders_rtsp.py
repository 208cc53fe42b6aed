"""A camera for tests: an RTSP server that can be broken, stalled and started again.

It speaks what a plain IP camera does: DESCRIBE with a session description, SETUP of one H.264
track interleaved in the connection (RFC 2326 section 10.12), PLAY, then RTP (RFC 6184) with
sender reports (RFC 3550), and Basic authentication where a password is set.
"""

from __future__ import annotations

import base64
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext

from tests.rig.ports import free_ports

_RTP_CLOCK = 90_000
_MAX_PAYLOAD = 1_200
_NTP_EPOCH_S = 2_208_988_800
_SSRC = 0x1234_5678


@dataclass(frozen=True)
class Footage:
    """Encoded access units, each a list of NAL units without start codes."""

    units: list[list[bytes]]
    fps: int

    @property
    def parameter_sets(self) -> str:
        sets = [nal for nal in self.units[0] if nal[0] & 0x1F in (7, 8)]
        return ",".join(base64.b64encode(nal).decode() for nal in sets)


def footage(*, fps: int = 25, frames: int = 50, key_every: int = 10, size: int = 64) -> Footage:
    """Moving greys, H.264, a key frame every `key_every` frames, no frames out of order."""
    codec = av.CodecContext.create("libx264", "w")
    assert isinstance(codec, VideoCodecContext)
    codec.width, codec.height, codec.pix_fmt = size, size, "yuv420p"
    codec.framerate = fps
    codec.gop_size = key_every
    codec.options = {"tune": "zerolatency", "preset": "ultrafast", "x264-params": "scenecut=0"}
    units: list[list[bytes]] = []
    for i in range(frames):
        picture = np.full((size, size, 3), 40 + 4 * (i % 40), np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, format="bgr24")
        units += [_nal_units(bytes(packet)) for packet in codec.encode(frame)]
    units += [_nal_units(bytes(packet)) for packet in codec.encode(None)]
    return Footage(units, fps)


def _nal_units(annex_b: bytes) -> list[bytes]:
    return [nal for nal in re.split(rb"\x00\x00\x00?\x01", annex_b) if nal]


@dataclass
class RtspCamera:
    """Serves the footage, over and over, in real time, to each client from its first frame.

    Attributes:
        credentials: `user:password` that clients must have, or None.
        clock_ahead_s: how far its wall clock (in sender reports) is ahead of ours; None for a
            camera that sends no reports.
        clients: how many came so far and were let in.
        served: frames sent to all of them.
        stalled: set to keep connections open and send nothing.
    """

    footage: Footage
    credentials: str | None = None
    clock_ahead_s: float | None = None
    port: int = 0
    clients: int = 0
    served: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _listener: socket.socket | None = None
    _open: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def url(self) -> str:
        user = f"{self.credentials}@" if self.credentials else ""
        return f"rtsp://{user}127.0.0.1:{self.port}/stream1"

    def start(self) -> None:
        """Listen; on the same port again after `stop`."""
        self._stopping = threading.Event()
        if not self.port:
            (self.port,) = free_ports(1)
        listener = socket.create_server(("127.0.0.1", self.port))
        self._listener = listener
        self._spawn(self._accept, listener)

    def stop(self) -> None:
        """As a camera that loses power: connections end, the port is closed."""
        self._stopping.set()
        if self._listener is not None:
            # A thread in accept() is not woken by close() alone.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self.break_connections()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
        self._threads.clear()
        self._open.clear()

    def break_connections(self) -> None:
        """Cut all clients off; they may come again."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as requests:
            while request := _read_request(requests):
                method, url, headers = request
                reply = self._reply(method, url, headers)
                connection.sendall(reply)
                if method == "PLAY" and b"200 OK" in reply:
                    self.clients += 1
                    self._play(connection)
                    return

    def _reply(self, method: str, url: str, headers: dict[str, str]) -> bytes:
        sequence = f"CSeq: {headers.get('cseq', '0')}"
        wanted = self.credentials and base64.b64encode(self.credentials.encode()).decode()
        if wanted and headers.get("authorization") != f"Basic {wanted}":
            challenge = 'WWW-Authenticate: Basic realm="camera"'
            return _lines("RTSP/1.0 401 Unauthorized", sequence, challenge)
        if method == "OPTIONS":
            return _lines("RTSP/1.0 200 OK", sequence, "Public: DESCRIBE, SETUP, PLAY, TEARDOWN")
        if method == "DESCRIBE":
            body = self._description()
            return _lines(
                "RTSP/1.0 200 OK", sequence, f"Content-Base: {url}/",
                "Content-Type: application/sdp", f"Content-Length: {len(body)}",
            ) + body  # fmt: skip
        if method == "SETUP":
            if "interleaved" not in headers.get("transport", ""):
                return _lines("RTSP/1.0 461 Unsupported Transport", sequence)
            transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"
            return _lines("RTSP/1.0 200 OK", sequence, transport, "Session: 1")
        return _lines("RTSP/1.0 200 OK", sequence, "Session: 1")

    def _description(self) -> bytes:
        return "\r\n".join([
            "v=0", "o=- 0 0 IN IP4 127.0.0.1", "s=camera", "c=IN IP4 0.0.0.0", "t=0 0",
            "m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000",
            f"a=framerate:{self.footage.fps}",
            "a=fmtp:96 packetization-mode=1;sprop-parameter-sets="
            + self.footage.parameter_sets,
            "a=control:track1", "",
        ]).encode()  # fmt: skip

    def _play(self, connection: socket.socket) -> None:
        began, began_us = time.monotonic(), time.time_ns() // 1000
        sequence = 0
        number = 0
        while not self._stopping.is_set():
            stamp = number * _RTP_CLOCK // self.footage.fps
            if number % self.footage.fps == 0 and self.clock_ahead_s is not None:
                connection.sendall(self._sender_report(stamp, began_us / 1e6))
            units = self.footage.units[number % len(self.footage.units)]
            for payload, last in _payloads(units):
                header = struct.pack(
                    ">BBHII", 0x80, 96 | (0x80 if last else 0), sequence, stamp, _SSRC
                )
                packet = header + payload
                connection.sendall(struct.pack(">cBH", b"$", 0, len(packet)) + packet)
                sequence = (sequence + 1) & 0xFFFF
            number += 1
            self.served += 1
            wait_s = began + number / self.footage.fps - time.monotonic()
            self._stopping.wait(max(wait_s, 0))
            while self.stalled.is_set() and not self._stopping.is_set():
                self._stopping.wait(0.02)

    def _sender_report(self, stamp: int, began_s: float) -> bytes:
        assert self.clock_ahead_s is not None
        now = began_s + stamp / _RTP_CLOCK + self.clock_ahead_s + _NTP_EPOCH_S
        seconds, fraction = int(now), int((now % 1) * 2**32)
        report = struct.pack(">BBHIIIIII", 0x80, 200, 6, _SSRC, seconds, fraction, stamp, 0, 0)
        return struct.pack(">cBH", b"$", 1, len(report)) + report


@contextmanager
def rtsp_camera(camera: RtspCamera) -> Iterator[RtspCamera]:
    """The camera, switched on; off at the end."""
    camera.start()
    try:
        yield camera
    finally:
        camera.stop()


def _read_request(requests: object) -> tuple[str, str, dict[str, str]] | None:
    lines: list[str] = []
    for raw in requests:
        line = raw.decode("latin-1").strip()
        if not line:
            break
        lines.append(line)
    if not lines:
        return None
    method, url, _ = lines[0].split(" ", 2)
    pairs = [line.split(":", 1) for line in lines[1:] if ":" in line]
    return method, url, {name.lower(): value.strip() for name, value in pairs}


def _lines(*lines: str) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _payloads(units: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    """RTP payloads of one access unit (single NAL units, and FU-A for large ones), and whether
    each is the last."""
    for i, unit in enumerate(units):
        last_unit = i == len(units) - 1
        if len(unit) <= _MAX_PAYLOAD:
            yield unit, last_unit
            continue
        kind, indicator = unit[0] & 0x1F, (unit[0] & 0xE0) | 28
        body = unit[1:]
        for at in range(0, len(body), _MAX_PAYLOAD):
            first, last = at == 0, at + _MAX_PAYLOAD >= len(body)
            flags = kind | (0x80 if first else 0) | (0x40 if last else 0)
            yield bytes([indicator, flags]) + body[at : at + _MAX_PAYLOAD], last_unit and last
