"""One page of metrics for a fleet: those of its workers with the label `device`, and its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pipeline import metrics as m
from workers.fleet import DeviceState
from workers.fleet_probe import FleetProbe, Page
from workers.roster import Roster

LABEL = "device"
TIMEOUT_S = 3.0
"""For one page; Prometheus waits ten seconds by default."""


class FleetCollector(Collector):
    """Asks the workers at each scrape. A worker that has no process, or does not answer in time,
    has no series then; counters of its successor begin at zero, as after any restart.

    Args:
        roster: what the parent knows.
        probe: asks them.
    """

    def __init__(self, roster: Roster, probe: FleetProbe) -> None:
        self._roster = roster
        self._probe = probe

    def collect(self) -> Iterator[Metric]:
        (pages,) = self._probe.ask(["/metrics"], TIMEOUT_S)
        up = GaugeMetricFamily(m.DEVICE_UP.name, m.DEVICE_UP.help, labels=[LABEL])
        starts = CounterMetricFamily(m.DEVICE_RESTARTS.name, m.DEVICE_RESTARTS.help, labels=[LABEL])
        for device, entry in self._roster.entries().items():
            up.add_metric([device], entry.state is DeviceState.RUNNING and device in pages)
            starts.add_metric([device], max(0, entry.starts - 1))
        yield up
        yield starts
        yield from merged(pages)


def registry_of(roster: Roster, probe: FleetProbe) -> CollectorRegistry:
    """A registry with the fleet's page alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(roster, probe))
    return registry


def merged(pages: Mapping[str, Page]) -> list[Metric]:
    """The families of all pages, each once, every sample with its device. A page that cannot be
    read counts as none."""
    families: dict[str, Metric] = {}
    for device, page in pages.items():
        try:
            read = list(text_string_to_metric_families(page.body.decode()))
        except ValueError:
            continue
        for family in read:
            kept = families.get(family.name)
            if kept is None:
                kept = families[family.name] = Metric(
                    family.name, family.documentation, family.type
                )
            for sample in family.samples:
                kept.add_sample(sample.name, {**sample.labels, LABEL: device}, sample.value)
    return list(families.values())
