"""What a worker is told by the fleet it belongs to."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from schemas.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place in a fleet; without arguments: a worker by itself.

    Attributes:
        device: its device's label, for logs; empty without one.
        listener: where it serves health and metrics instead of `http.host` and `http.port`; an
            open socket that listens.
    """

    device: str = ""
    listener: socket.socket | None = None


ALONE = Seat()


def take_seat(device: str | None, listener: int | None) -> Seat:
    """The seat that a parent's arguments describe.

    Args:
        device: the label.
        listener: number of the file that the parent left open.

    Raises:
        ConfigError: there is no such socket: the options are for parents alone.
    """
    if listener is None:
        return Seat(device or "")
    try:
        os.set_inheritable(listener, False)  # noqa: FBT003 (takes no keywords)
        opened = socket.socket(fileno=listener)
    except OSError as error:
        raise ConfigError(f"--seat-listener {listener}: {error.strerror}") from error
    return Seat(device or "", opened)
