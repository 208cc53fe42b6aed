"""The table of a batch's detections, between the device that finds them and the processor that
names them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COLUMNS = 7
"""Picture (row in the batch), x1, y1, x2, y2 (bucket pixels), score, class id."""

Table = npt.NDArray[np.float64]
"""float64 (k, `COLUMNS`), ordered by picture, then score, best first."""


def by_picture(table: Table, n: int) -> list[Table]:
    """One table for each of n pictures; views."""
    ends = np.searchsorted(table[:, 0], np.arange(1, n + 1)).tolist()
    return [table[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]


def empty() -> Table:
    """Nothing was found."""
    return np.empty((0, COLUMNS))
