"""The loading of models ends before its next step once it is no longer wanted."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from schemas.settings import Settings
from workers.lanes import load_lanes
from workers.loading import LoadingStopped


def test_nothing_is_opened_after_a_stop() -> None:
    with capture_logs() as lines, pytest.raises(LoadingStopped):
        load_lanes(Settings(), lambda: True)
    assert not lines
