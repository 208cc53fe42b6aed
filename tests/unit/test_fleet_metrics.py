"""The page of a fleet, scraped over real sockets from servers like the workers'."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipeline import metrics as m
from pipeline.metrics import Metrics
from schemas.settings import HttpSettings
from workers.fleet import DeviceState
from workers.fleet_metrics import merged, registry_of
from workers.fleet_probe import FleetProbe, Page, fetch
from workers.health import Health, HealthServer
from workers.roster import Roster

A, B = "cpu:0", "cpu:1"
ODD = 'cam "1" \\ back\nnext'


def page(metrics: Metrics) -> Page:
    return Page(200, generate_latest(metrics.registry))


def some_metrics(received: int) -> Metrics:
    metrics = Metrics()
    metrics.add(m.RECEIVED, received, "default")
    metrics.set(m.FREE_SLOTS, 2)
    metrics.observe(m.BATCH_SIZE, 4, "default", "480p")
    metrics.streams.receive(ODD, captured_at_us=None, now=1.0)
    return metrics


@contextmanager
def worker(metrics: Metrics) -> Iterator[int]:
    """Serves as a fleet's worker does: on a socket that was opened for it."""
    listener = socket.create_server(("127.0.0.1", 0))
    health = Health(healthy=True, ready=True, details={})
    server = HealthServer(HttpSettings(), metrics.registry, lambda: health, listener)
    try:
        yield server.start()
    finally:
        server.stop()


def test_every_sample_has_its_device_and_nothing_else_changes() -> None:
    one, two = some_metrics(3), some_metrics(5)
    families = {family.name: family for family in merged({A: page(one), B: page(two)})}
    for device, metrics in ((A, one), (B, two)):
        for theirs in text_string_to_metric_families(page(metrics).body.decode()):
            kept = families[theirs.name]
            assert (kept.type, kept.documentation) == (theirs.type, theirs.documentation)
            own = [s for s in kept.samples if s.labels["device"] == device]
            assert [
                (s.name, {k: v for k, v in s.labels.items() if k != "device"}, s.value) for s in own
            ] == [(s.name, s.labels, s.value) for s in theirs.samples]


def test_a_page_that_cannot_be_read_costs_its_device_alone() -> None:
    pages = {A: Page(200, b"frameloom_received_total{route="), B: page(some_metrics(1))}
    devices = {s.labels["device"] for family in merged(pages) for s in family.samples}
    assert devices == {B}


def test_the_page_of_a_fleet_is_scraped_from_its_workers() -> None:
    roster = Roster([A, B])
    probe = FleetProbe(roster)
    with worker(some_metrics(3)) as one, worker(some_metrics(5)) as two:
        roster.started(A, 1, one)
        roster.started(B, 2, two)
        text = generate_latest(registry_of(roster, probe)).decode()
    for device, received in ((A, 3.0), (B, 5.0)):
        assert f'frameloom_received_total{{device="{device}",route="default"}} {received}' in text
        assert f'frameloom_free_slots{{device="{device}"}} 2.0' in text
        assert f'frameloom_device_up{{device="{device}"}} 1.0' in text
        assert f'frameloom_device_restarts_total{{device="{device}"}} 0.0' in text
    assert text.count("# TYPE frameloom_received_total counter") == 1
    streams = [
        sample.labels["stream"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "frameloom_stream_received_total"
    ]
    assert streams == [ODD, ODD]
    # Both are gone now.
    text = generate_latest(registry_of(roster, probe)).decode()
    probe.close()
    assert f'frameloom_device_up{{device="{A}"}} 0.0' in text
    assert "frameloom_received_total" not in text


def test_one_that_was_started_again_is_counted() -> None:
    roster = Roster([A])
    probe = FleetProbe(roster)
    for pid in (1, 2, 3):
        roster.started(A, pid, None)
        roster.left(A, DeviceState.WAITING)
    text = generate_latest(registry_of(roster, probe)).decode()
    probe.close()
    assert f'frameloom_device_restarts_total{{device="{A}"}} 2.0' in text


def test_a_port_that_is_open_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert fetch(silent.getsockname()[1], "/metrics", timeout_s=0.05) is None


def test_a_worker_on_a_given_socket_closes_it_at_the_end() -> None:
    with worker(Metrics()) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=180)
