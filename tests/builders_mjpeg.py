"""A camera for tests: JPEGs over HTTP, one after the other (multipart/x-mixed-replace)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class MjpegCamera:
    """Serves the pictures over and over.

    Attributes:
        per_connection: after so many it hangs up; None for never.
        connections: how many came so far.
        served: pictures sent to all of them.
    """

    pictures: Sequence[bytes]
    fps: float = 50.0
    per_connection: int | None = None
    port: int = 0
    connections: int = 0
    served: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/video.mjpg"


@contextmanager
def mjpeg_camera(camera: MjpegCamera) -> Iterator[MjpegCamera]:
    """The camera, switched on; off at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            camera.connections += 1
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            with suppress(OSError):
                self._play()

        def _play(self) -> None:
            sent = 0
            while not camera.stopping.is_set() and sent != camera.per_connection:
                data = camera.pictures[sent % len(camera.pictures)]
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
                self.wfile.write(head.encode() + data + b"\r\n")
                sent += 1
                camera.served += 1
                camera.stopping.wait(1 / camera.fps)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 (named by the base)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    camera.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield camera
    finally:
        camera.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
