"""Raw predictions of a batch → detections in displayed source pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from pipeline.letterbox import Letterbox
from pipeline.nms import find_candidates, suppress
from pipeline.table import Table, by_picture, empty
from schemas.errors import ConfigError
from schemas.result import Detection


class YoloPostprocessor:
    """Best class per anchor, suppression for the whole batch, boxes mapped back to the source.

    Works where the predictions are (CPU or CUDA) and copies back once. Stateless between calls:
    any thread may use it. The result equals Ultralytics' `predict` for every picture (see
    docs/parity.md), except that no picture is ever dropped for lack of time.
    """

    def __init__(
        self,
        labels: Mapping[int, str],
        *,
        conf: float,
        iou: float,
        max_det: int,
        classes: Sequence[int] | None = None,
    ) -> None:
        """Check the route's settings.

        Args:
            labels: class id → label, ids 0..classes-1.
            conf: 0..1; a detection's score is above it.
            iou: 0..1; of two boxes of one class that overlap more, the better stays.
            max_det: most detections per picture, ≥ 1.
            classes: class ids to report; None reports all.

        Raises:
            ConfigError: a value out of its range, or a class that the model does not know.
        """
        if not labels:
            raise ConfigError("the model has no classes, so nothing could be detected")
        for key, value in (("conf", conf), ("iou", iou)):
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{key} must lie in 0..1, not {value}")
        if max_det < 1:
            raise ConfigError(f"max_det must be at least 1, not {max_det}")
        check_classes(classes, labels)
        self._labels = dict(labels)
        self._conf = conf
        self._iou = iou
        self._max_det = max_det
        self._classes = None if classes is None else tuple(classes)

    @torch.inference_mode()
    def detections(
        self, raw: torch.Tensor, geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        """One tuple per row of `raw`, best score first; empty where nothing was found.

        Args:
            raw: float32 (n, 4 + classes, anchors) as `Model.infer` returns it.
            geometries: where each row's picture lies in the bucket, n of them.

        Raises:
            ValueError: shapes that do not belong together (a bug, not bad input).
        """
        expected = (len(geometries), 4 + len(self._labels))
        if raw.ndim != 3 or tuple(raw.shape[:2]) != expected:
            raise ValueError(
                f"predictions {tuple(raw.shape)} where {(*expected, 'anchors')} belong"
            )
        table = self.keep(raw).cpu().numpy()
        return self.answers(by_picture(table, len(geometries)), geometries)

    @property
    def max_det(self) -> int:
        """Most detections of one picture."""
        return self._max_det

    @torch.inference_mode()
    def keep(self, raw: torch.Tensor) -> torch.Tensor:
        """What is left of a batch's predictions after suppression, in one call for all pictures.

        Args:
            raw: float32 (n, 4 + classes, anchors).

        Returns:
            float64 (k, `COLUMNS`) on the device of `raw`: see `pipeline.table`. One tensor, so
            that one copy brings it to main memory.
        """
        found = find_candidates(raw, self._conf, self._classes)
        classes = len(self._labels)
        kept = suppress(found, len(raw), self._iou, self._max_det, classes=classes)
        columns = (
            kept.pictures[:, None].double(),
            kept.boxes.double(),
            kept.scores[:, None].double(),
            kept.classes[:, None].double(),
        )
        return torch.cat(columns, 1)

    def answers(
        self, tables: Sequence[Table], geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        """One tuple per picture, best score first, boxes in displayed source pixels.

        Args:
            tables: each picture's part of what `keep` made.
            geometries: where each picture lies in the bucket.
        """
        rows = np.concatenate([empty(), *tables])
        ends = np.cumsum([len(table) for table in tables]).tolist()
        pictures = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        boxes = _to_source(rows[:, 1:5], pictures, geometries).tolist()
        found = [
            Detection((x1, y1, x2, y2), score, int(class_id), self._labels[int(class_id)])
            for (x1, y1, x2, y2), (score, class_id) in zip(boxes, rows[:, 5:].tolist(), strict=True)
        ]
        return [tuple(found[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def check_classes(classes: Sequence[int] | None, labels: Mapping[int, str]) -> None:
    """Raises ConfigError for a class id that is no key of `labels`, or none at all. None is all."""
    if classes is None:
        return
    if not classes:
        raise ConfigError("classes is empty: name at least one class, or leave it out for all")
    unknown = [class_id for class_id in classes if class_id not in labels]
    if unknown:
        raise ConfigError(
            f"classes {unknown} are not among the model's: "
            + ", ".join(f"{class_id} {label}" for class_id, label in sorted(labels.items()))
        )


def _to_source(
    boxes: npt.NDArray[np.float64], pictures: npt.NDArray[np.intp], geometries: Sequence[Letterbox]
) -> npt.NDArray[np.float64]:
    """Bucket pixels → displayed source pixels, clipped to the picture (Ultralytics'
    `scale_boxes`). Shapes (k, 4) and (k,)."""
    place = np.array(
        [(g.left, g.top, g.gain_x, g.gain_y, g.source_width, g.source_height) for g in geometries],
        dtype=np.float64,
    ).reshape(-1, 6)[pictures]
    shift, gain, size = (np.tile(place[:, i : i + 2], 2) for i in (0, 2, 4))
    return np.clip((boxes - shift) / gain, 0.0, size)
