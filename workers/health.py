"""`/metrics`, `/healthz` and `/readyz`, served on a daemon thread of their own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from schemas.errors import ConfigError
from schemas.settings import HttpSettings


@dataclass(frozen=True, slots=True)
class Health:
    """What the probes answer.

    Attributes:
        healthy: the process should go on living.
        ready: it takes records now.
        details: shown to whoever asks.
    """

    healthy: bool
    ready: bool
    details: Mapping[str, object]


class HealthServer:
    """The HTTP side of a worker. `start` and `stop` from any thread.

    Args:
        settings: where to listen; port 0 takes a free one.
        registry: what `/metrics` shows.
        look: asked at every probe, on the server's threads; must not block for long.
        listener: listens already, and is used instead of the settings' address; owned from now on.
    """

    def __init__(
        self,
        settings: HttpSettings,
        registry: CollectorRegistry,
        look: Callable[[], Health],
        listener: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = make_wsgi_app(registry)
        self._look = look
        self._listener = listener
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Listen. Returns the port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        server = _Server.on(self._listener) if self._listener else self._listen()
        server.set_app(self._answer)
        self._server = server
        # The default poll of half a second is how long `shutdown` would take.
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="http", daemon=True
        )
        self._thread.start()
        return server.server_port

    def stop(self) -> None:
        """Close the port. Safe to call twice, and before the start."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def _listen(self) -> _Server:
        host, port = self._settings.host, self._settings.port
        try:
            return _Server((host, port), _QuietHandler)
        except OSError as error:
            raise ConfigError(
                f"http.host, http.port: cannot listen on {host}:{port}: {error}; "
                "a second worker of this machine takes any free port with --set http.port=0"
            ) from error

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                return self._metrics(environ, start_response)
            case "/healthz":
                health = self._look()
                return _say(start_response, health.details, good=health.healthy)
            case "/readyz":
                health = self._look()
                return _say(start_response, health.details, good=health.ready)
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics /healthz /readyz\n"]


def _say(
    start_response: StartResponse, details: Mapping[str, object], *, good: bool
) -> Iterable[bytes]:
    status = "200 OK" if good else "503 Service Unavailable"
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(dict(details)).encode() + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    @classmethod
    def on(cls, listener: socket.socket) -> _Server:
        """On a socket that listens already."""
        server = cls(listener.getsockname(), _QuietHandler, bind_and_activate=False)
        # The one that was made for binding.
        server.socket.close()
        server.socket = listener
        server.server_address = listener.getsockname()
        server.name_itself()
        return server

    def server_bind(self) -> None:
        # HTTPServer asks the resolver for its own name, which can hang where there is none.
        TCPServer.server_bind(self)
        self.name_itself()

    def name_itself(self) -> None:
        """Set what requests are told of the server."""
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _QuietHandler(WSGIRequestHandler):
    timeout = 10.0
    """Seconds that a silent client may hold a thread."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (named by the base)
        """Probes come every few seconds: no line for each."""
