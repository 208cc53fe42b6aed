"""The probes as an orchestrator sees them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from pipeline import metrics as m
from pipeline.metrics import Metrics
from schemas.errors import ConfigError
from schemas.settings import HttpSettings
from workers.health import Health, HealthServer


class Served:
    """A server on a free port, and the health it reports."""

    def __init__(self) -> None:
        self.health = Health(healthy=True, ready=False, details={"state": "starting"})
        self.metrics = Metrics()
        self.server = HealthServer(HttpSettings(port=0), self.metrics.registry, lambda: self.health)
        self.port = self.server.start()

    def get(self, path: str) -> tuple[int, str]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        try:
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read().decode()
        finally:
            client.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.server.stop()


def test_health_and_readiness_are_told_apart(served: Served) -> None:
    assert served.get("/healthz")[0] == 200
    status, body = served.get("/readyz")
    assert (status, json.loads(body)) == (503, {"state": "starting"})
    served.health = Health(healthy=False, ready=False, details={})
    assert served.get("/healthz")[0] == 503


def test_metrics_are_scraped_from_this_worker_alone(served: Served) -> None:
    served.metrics.add(m.RECEIVED, 3, "default")
    status, body = served.get("/metrics")
    assert status == 200
    assert 'frameloom_received_total{route="default"} 3.0' in body
    assert "python_info" not in body


def test_other_paths_say_what_there_is(served: Served) -> None:
    status, body = served.get("/")
    assert (status, "/metrics /healthz /readyz" in body) == (404, True)


def test_a_port_that_is_taken_is_a_config_error(served: Served) -> None:
    other = HealthServer(HttpSettings(port=served.port), Metrics().registry, lambda: served.health)
    with pytest.raises(ConfigError, match=f"http.port.*{served.port}"):
        other.start()
    other.stop()


def test_the_port_is_free_after_the_stop(served: Served) -> None:
    served.server.stop()
    again = HealthServer(HttpSettings(port=served.port), Metrics().registry, lambda: served.health)
    assert again.start() == served.port
    again.stop()
