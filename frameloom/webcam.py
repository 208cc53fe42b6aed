"""One connection to a camera of this machine, through OpenCV."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, cast

import cv2

from frameloom.capture import Captured, CaptureError
from frameloom.draw import Picture


class WebcamConnection:
    """An open webcam. Use as a context manager, from one thread.

    Args:
        target: its number, or a device file.

    Raises:
        CaptureError: there is no such camera, or another program has it.
    """

    def __init__(self, target: str) -> None:
        source = int(target) if target.isdigit() else target
        try:
            self._device = cv2.VideoCapture(source)
        except cv2.error as error:
            raise CaptureError("cannot be opened") from error
        if not self._device.isOpened():
            self._device.release()
            raise CaptureError("no such camera, or another program has it")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._device.release()

    @property
    def interval_us(self) -> int | None:
        """The time between frames that the driver declares, microseconds, or None."""
        fps = self._device.get(cv2.CAP_PROP_FPS)
        return round(1e6 / fps) if 0 < fps <= 1000 else None

    def pictures(self) -> Iterator[Captured]:
        """Frames as they come.

        Raises:
            CaptureError: the camera is gone, or silent (the driver waits ten seconds).
        """
        while True:
            try:
                done, picture = self._device.read()
            except cv2.error as error:
                raise CaptureError("cannot be read") from error
            if not done:
                raise CaptureError("it gives no more frames")
            # Drivers' own stamps differ from system to system; frames arrive within milliseconds.
            stamp_us = time.monotonic_ns() // 1000
            yield Captured(cast("Picture", picture), stamp_us, None, picture.nbytes)
