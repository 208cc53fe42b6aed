"""The demo's contact sheet: for every stream, an answered frame with what was found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import cv2
import numpy as np

from frameloom.demo_footage import Footage
from frameloom.demo_report import Report
from frameloom.demo_streams import StreamPlan
from frameloom.demo_tally import Answer, Sent
from frameloom.draw import Picture
from frameloom.sheet import Tile, contact_sheet
from pipeline.item import Coordinates
from schemas.errors import ConfigError
from schemas.result import ResultMessage, Status

_TILES = 8
_SECOND_TILES = 2
_MOST_STREAMS = 24


def write_sheet(
    path: Path,
    report: Report,
    plans: Sequence[StreamPlan],
    footage: Mapping[str, Footage],
    sent: Mapping[Coordinates, Sent],
    answers: Sequence[Answer],
) -> None:
    """Draw the sheet and write it as PNG.

    Raises:
        ConfigError: the file cannot be written.
    """
    tiles = choose_tiles(plans, footage, sent, answers)
    done, data = cv2.imencode(
        ".png", contact_sheet(tiles, heading="frameloom demo", subheading=_subheading(report))
    )
    if not done:
        raise ValueError("the contact sheet cannot be encoded as PNG")
    try:
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def choose_tiles(
    plans: Sequence[StreamPlan],
    footage: Mapping[str, Footage],
    sent: Mapping[Coordinates, Sent],
    answers: Sequence[Answer],
) -> list[Tile]:
    """The liveliest frame of every stream (up to 24 streams), then more of some until there
    are eight. Streams without an `ok` answer have no tile."""
    shown = plans[:_MOST_STREAMS]
    ranked = {plan.stream: _liveliest(plan.stream, sent, answers) for plan in shown}
    chosen = {plan.stream: ranked[plan.stream][:1] for plan in shown}
    # Stills first: every one of them is another scene.
    for plan in sorted(shown, key=lambda plan: not plan.kind.stills):
        room = _TILES - sum(len(some) for some in chosen.values())
        chosen[plan.stream] += ranked[plan.stream][1 : 1 + min(max(room, 0), _SECOND_TILES)]
    tiles: list[Tile] = []
    for plan in shown:
        for answer in chosen[plan.stream]:
            shot = sent[answer.source].shot
            if shot is not None and answer.result is not None:
                jpeg = footage[plan.stream].shots[shot].jpeg
                tiles.append(_tile(plan, jpeg, answer, answer.result))
    return tiles


def _liveliest(
    stream: str, sent: Mapping[Coordinates, Sent], answers: Sequence[Answer]
) -> list[Answer]:
    """The stream's ok answers, one per picture, most detections first."""
    best: dict[int, Answer] = {}
    for answer in answers:
        known = sent.get(answer.source)
        if known is None or known.stream != stream or known.shot is None:
            continue
        if answer.status == Status.OK:
            best.setdefault(known.shot, answer)
    return sorted(best.values(), key=lambda answer: -_score_sum(answer))


def _score_sum(answer: Answer) -> float:
    return sum(d.score for d in answer.result.detections) if answer.result else 0.0


def _tile(plan: StreamPlan, jpeg: bytes, answer: Answer, result: ResultMessage) -> Tile:
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    latency_ms = (answer.answered_at_us - result.captured_at_us) / 1000
    size = f"{result.width} x {result.height} · {latency_ms:.0f} ms"
    batch = result.batch
    how = f"{batch.bucket} · batch of {batch.size}" if batch else ""
    return Tile(cast("Picture", picture), result.detections, plan.stream, (size, how))


def _subheading(report: Report) -> str:
    balance = report.balance
    parts = [
        f"{sum(row.interval_ms is not None for row in report.streams)} streams",
        f"{balance.answered} of {balance.received} records answered",
        f"{len(balance.lost)} lost",
    ]
    if report.accuracy is not None:
        parts.append(f"precision {report.accuracy.precision:.2f}")
        parts.append(f"recall {report.accuracy.recall:.2f}")
    parts.append(f"model {report.calibration.model}")
    return " · ".join(parts)
