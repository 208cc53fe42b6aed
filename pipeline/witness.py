"""The witness: a harmless picture, which tells a broken decoder from a broken picture."""

from __future__ import annotations

import base64

from msgspec import structs

from pipeline.bucket import Bucket
from pipeline.item import Coordinates, Header, Item
from pipeline.letterbox import letterbox
from schemas.frame import Encoding, FrameMessage

_SIDE = 8
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYG"
    "CAsICQoKCgoKBggLDAsKDAkKCgr/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAABv/EABQQAQAAAAAAAAAA"
    "AAAAAAAAAAD/2gAIAQEAAD8ADv/Z"
)
"""Grey, 8 × 8 pixels, baseline."""


def harmless(like: Item) -> Item:
    """An item of the same route and bucket as `like` whose picture every decoder reads."""
    picture = rehearsal(like.route, like.bucket)
    return structs.replace(
        like,
        frame=picture.frame,
        header=picture.header,
        geometry=picture.geometry,
        nbytes=picture.nbytes,
    )


def rehearsal(route: str, bucket: Bucket) -> Item:
    """An item of no record, with that picture: for a decoder's first run."""
    return Item(
        attempt_id=0,
        coordinates=Coordinates("", 0, 0),
        epoch=0,
        route=route,
        frame=FrameMessage(
            stream_id="witness",
            seq=0,
            captured_at_us=0,
            encoding=Encoding.JPEG,
            data=memoryview(_JPEG),
            ordered=False,
        ),
        header=Header(Encoding.JPEG, _SIDE, _SIDE),
        bucket=bucket,
        geometry=letterbox(_SIDE, _SIDE, bucket.width, bucket.height),
        received_at=0.0,
        nbytes=len(_JPEG),
    )
