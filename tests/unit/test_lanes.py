"""What the log says of a route's backends."""

from __future__ import annotations

from structlog.testing import capture_logs

from pipeline.model_cache import Choice, Figure
from workers.lanes import log_choice
from workers.logs import get_log

SPEEDS = {"256x448×1": 84.0, "256x448×4": 181.0}


def test_each_backend_that_was_measured_has_a_line() -> None:
    figures = (
        Figure(backend="torch", img_per_s=SPEEDS),
        Figure(backend="onnx", img_per_s=SPEEDS, iou=0.99999991, score=1.2e-7),
        Figure(backend="openvino", refused="not installed"),
    )
    with capture_logs() as lines:
        log_choice(get_log("test"), "default", Choice(backend="onnx", figures=figures))
    common = {"event": "backend_measured", "log_level": "info", "route": "default"}
    assert lines == [
        {**common, "backend": "torch", "img_per_s": SPEEDS},
        {**common, "backend": "onnx", "img_per_s": SPEEDS, "iou": 1.0, "score": 0.0},
        {**common, "event": "backend_chosen", "backend": "onnx", "cached": False},
    ]


def test_of_a_backend_asked_for_by_name_nothing_is_measured() -> None:
    with capture_logs() as lines:
        log_choice(get_log("test"), "default", Choice(backend="torch"))
    assert [line["event"] for line in lines] == ["backend_chosen"]
