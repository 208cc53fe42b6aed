"""Kinds of values that settings have: ranges, patterns, and what an error calls them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MIB = 1024 * 1024
STRIDE = 32
"""YOLOv8's coarsest stride: sides of a bucket are multiples of it, pixels."""


class Secret(str):
    """A string that never shows itself: `str()` of it works, `repr()` and logs print stars."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


Millis = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Meta(ge=1, le=2**40)]
Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
Text = Annotated[str, Meta(min_length=1, extra={"expected": "a text that is not empty"})]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Wait = Annotated[float, Meta(ge=0.0, le=600_000.0)]
BucketSide = Annotated[int, Meta(ge=STRIDE, le=8_192, multiple_of=STRIDE)]
Servers = Annotated[
    str,
    Meta(
        pattern=r"^[^\s,]+:[0-9]{1,5}(,[^\s,]+:[0-9]{1,5})*$",
        extra={"expected": "host:port, or several with commas between"},
    ),
]
Topic = Annotated[
    str,
    Meta(
        pattern=r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$",
        extra={"expected": "a topic name: 1 to 249 of A-Z a-z 0-9 . _ -"},
    ),
]
Label = Annotated[
    str,
    Meta(
        pattern=r"^(?![0-9]+$)[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
        extra={"expected": "a name: 1 to 64 of A-Z a-z 0-9 _ -, and not a number"},
    ),
]
DeviceName = Annotated[
    str,
    Meta(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$", extra={"expected": "auto, cpu, cuda or cuda:N"}),
]
