"""Every metric of the worker, in one table.

The registry's objects and `docs/metrics.md` are both made from `TABLE`:
`python -m pipeline.metrics > docs/metrics.md`.

Conservation, per route and at any instant:
received = answered (ok + expired + skipped) + dead-lettered + abandoned + in flight,
where abandoned records left with their partition and are received again by its next owner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pipeline.series import Distributions, Numbers
from pipeline.streams import StreamTable

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_ANSWERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


_FLEET = (
    "The parent serves the metrics of all its workers on one page, read from them at each scrape. "
    "Every series has one more label, `device` (`cuda:0`, `cpu:1`): sum over it for the machine. A "
    "device whose worker is being started has no series meanwhile, and its counters begin at zero "
    "again, as after any restart. Beside them:"
)


class Kind(Enum):
    """How a metric behaves, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row of the table. Rows are compared by identity.

    Attributes:
        name: as scraped, without the suffixes that Prometheus adds (`_total`, `_bucket`).
        labels: names of the labels, in the order that callers give their values.
        help: one sentence; units are in the name.
        buckets: upper bounds of a histogram.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


def _counter(name: str, labels: Sequence[str], text: str) -> Metric:
    return Metric(f"frameloom_{name}", Kind.COUNTER, tuple(labels), text)


def _gauge(name: str, labels: Sequence[str], text: str) -> Metric:
    return Metric(f"frameloom_{name}", Kind.GAUGE, tuple(labels), text)


def _histogram(name: str, labels: Sequence[str], text: str, buckets: Sequence[float]) -> Metric:
    return Metric(f"frameloom_{name}", Kind.HISTOGRAM, tuple(labels), text, tuple(buckets))


RECEIVED = _counter(
    "received", ["route"], "Records taken from Kafka; of a segment of video each answered frame."
)
RECEIVED_BYTES = _counter("received_bytes", ["route"], "Bytes of the records' values.")
ANSWERED = _counter("answered", ["route", "status"], "Results acknowledged by the broker.")
DEAD_LETTERED = _counter("dead_lettered", ["route", "reason"], "Dead letters acknowledged.")
ABANDONED = _counter("abandoned", ["route"], "Records given up with their revoked partition.")
IN_FLIGHT = _gauge("in_flight_items", [], "Records received and not yet settled.")
IN_FLIGHT_BYTES = _gauge(
    "in_flight_bytes",
    [],
    "Bytes of their values, of what they claim, and of segments' frames that are not inferred.",
)
CLAIMED_BYTES = _counter("claimed_bytes", ["route"], "Bytes fetched for records that claim them.")
CLAIMS_WAITING = _gauge("claims_waiting", [], "Records whose picture is not fetched yet.")
BATCHES = _counter("batches", ["route", "bucket", "closed_by"], "Batches done, by close reason.")
BATCH_SIZE = _histogram("batch_size", ["route", "bucket"], "Frames per batch.", _SIZES)
BATCH_FILL = _histogram(
    "batch_fill",
    ["route", "bucket"],
    "Batch size over the most that a batch could have then. Low is right while the device has "
    "nothing to do: then a batch starts with the frames that are there.",
    _SHARES,
)
QUEUE_DEPTH = _gauge("queue_depth", ["route", "bucket"], "Frames that wait for a batch.")
RUNNING_BATCHES = _gauge("running_batches", [], "Batches started and not finished.")
FREE_SLOTS = _gauge("free_slots", [], "Slots that could take a batch.")
STAGE_SECONDS = _histogram(
    "stage_seconds",
    ["route", "stage"],
    "Time per stage: `fetch` (receipt to fetched) per claim; `segment` (demuxing and decoding) per "
    "frame of a segment of video; `queue` (receipt to batch) per frame; "
    "`decode`, `infer`, `post` per batch; "
    "`sequence` (done to its turn to leave), `produce` (turn to acknowledgement) and "
    "`e2e` (receipt to acknowledgement) per record.",
    _SECONDS,
)
LAG_SECONDS = _gauge(
    "lag_seconds", ["route"], "Age of the latest frame at receipt, by capture time."
)
LAG_RECORDS = _gauge(
    "lag_records",
    ["topic", "partition"],
    "Records between commit and log end; asked for every 15 s or so.",
)
WATERMARK_LAG = _gauge(
    "watermark_lag_records", ["topic", "partition"], "Records received but not yet committable."
)
SEGMENTS = _counter(
    "segments",
    ["route", "end"],
    "Segments of video: `read` to the end, `broken`, or `left` with their partition.",
)
OPEN_SEGMENTS = _gauge("open_segments", [], "Segments of video that are being read.")
SEQUENCER_HELD = _gauge(
    "sequencer_held", [], "Answers that wait for an earlier one of their stream."
)
OUT_OF_MEMORY = _counter(
    "out_of_memory", ["route", "bucket"], "Batches that found no memory and were run in parts."
)
BATCH_LIMIT = _gauge(
    "batch_limit",
    ["route", "bucket"],
    "Most frames per batch now: the bucket's max_batch; less where larger batches were measured to "
    "be slower per frame (`worthwhile` in the log's `surface`), or after memory ran out.",
)
SURFACE_RATIO = _gauge(
    "surface_ratio",
    ["route", "bucket"],
    "Time of the model's batches over the time measured at the start (on a CPU processor time, so "
    "that a busy machine does not count), smoothed over some 20 "
    "batches; 1 is as measured.",
)
SURFACE_DRIFTED = _gauge(
    "surface_drifted",
    ["route", "bucket"],
    "1 from the ratio's leaving 0.5 to 2 until it is within 0.67 to 1.5 again; else 0.",
)
SUSPECTS = _gauge(
    "suspects", [], "Records that were inside when a worker died, and are not yet cleared."
)
KEY_MISMATCHES = _counter(
    "key_mismatches", ["route"], "Frames whose stream_id differs from the key."
)
CLOCK_SKEWS = _counter("clock_skews", ["route"], "Frames captured more than 5 s in the future.")
LATE_COMPLETIONS = _counter(
    "late_completions", [], "Outcomes of partitions that were gone by then."
)
REBALANCES = _counter("rebalances", [], "Assignments of partitions to this worker.")
ASSIGNED = _gauge("assigned_partitions", [], "Partitions this worker reads.")
PRODUCE_RETRIES = _counter("produce_retries", ["topic"], "Produce requests that were tried again.")
ANSWERS_BLOCKED = _gauge(
    "answers_blocked_seconds",
    ["topic"],
    "How long the oldest answer sent to the topic has waited for its acknowledgement, once that is "
    "10 s; else 0. Alert on it: while it is a dead-letter topic's, offsets are not committed past "
    "the dead letter.",
)
COMMITS = _counter("commits", ["outcome"], "Offset commits: `done` or `failed`.")
TRANSACTIONS = _counter(
    "transactions",
    ["outcome"],
    "Transactions of exactly-once delivery: `committed`, `aborted` (tried again) or `fenced` (the "
    "partition is another worker's).",
)
TRANSACTION_SECONDS = _histogram(
    "transaction_seconds", [], "From a transaction's begin to its commit.", _SECONDS
)
TRANSACTION_SIZE = _histogram("transaction_size", [], "Answers per transaction.", _ANSWERS)
STREAM_RECEIVED = _counter("stream_received", ["stream"], "Records received, per stream.")
STREAM_ANSWERED = _counter("stream_answered", ["stream"], "Records settled, per stream.")
STREAM_LAG = _gauge(
    "stream_lag_seconds", ["stream"], "Age of its latest frame at receipt, by capture time."
)
STREAM_INTERVAL = _gauge("stream_interval_seconds", ["stream"], "Mean time between its frames.")

DEVICE_UP = _gauge(
    "device_up", ["device"], "Whether the device's worker runs and answers: 1 or 0. Alert on 0."
)
DEVICE_RESTARTS = _counter(
    "device_restarts", ["device"], "Processes of the device after its first."
)
DEVICE_TABLE = (DEVICE_UP, DEVICE_RESTARTS)
"""Of the parent of `--devices` alone."""

STREAM_TABLE = (STREAM_RECEIVED, STREAM_ANSWERED, STREAM_INTERVAL, STREAM_LAG)
"""Per-stream rows: `http.top_streams` streams have series of their own, the others share one."""

TABLE = (
    RECEIVED, RECEIVED_BYTES, ANSWERED, DEAD_LETTERED, ABANDONED, IN_FLIGHT, IN_FLIGHT_BYTES,
    CLAIMED_BYTES, CLAIMS_WAITING,
    BATCHES, BATCH_SIZE, BATCH_FILL, QUEUE_DEPTH, RUNNING_BATCHES, FREE_SLOTS, STAGE_SECONDS,
    LAG_SECONDS, LAG_RECORDS, WATERMARK_LAG, SEGMENTS, OPEN_SEGMENTS, SEQUENCER_HELD,
    OUT_OF_MEMORY, BATCH_LIMIT, SURFACE_RATIO, SURFACE_DRIFTED, SUSPECTS, KEY_MISMATCHES,
    CLOCK_SKEWS, LATE_COMPLETIONS,
    REBALANCES, ASSIGNED, PRODUCE_RETRIES, ANSWERS_BLOCKED, COMMITS, TRANSACTIONS,
    TRANSACTION_SECONDS, TRANSACTION_SIZE, *STREAM_TABLE,
)  # fmt: skip


class Metrics:
    """The table's live objects in a registry of their own. Any thread may use them.

    Args:
        top_streams: how many streams have series of their own.
    """

    def __init__(self, top_streams: int = 50) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.streams = StreamTable(top_streams)
        plain = [metric for metric in TABLE if metric not in STREAM_TABLE]
        self._numbers = {m: Numbers(m.labels) for m in plain if m.kind is not Kind.HISTOGRAM}
        self._distributions = {
            m: Distributions(m.labels, m.buckets) for m in plain if m.kind is Kind.HISTOGRAM
        }
        self.registry.register(_TableCollector(self._numbers, self._distributions))
        self.registry.register(_StreamCollector(self.streams))

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Count `amount` ≥ 0 more."""
        self._numbers[metric].add(labels, amount)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """The gauge's value now."""
        self._numbers[metric].set(labels, value)

    def follow(self, metric: Metric, read: Callable[[], float]) -> None:
        """From now on a gauge without labels is what `read` says at each scrape, which comes on a
        thread of its own: nothing has to be set while frames pass."""
        self._numbers[metric].follow(read)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """One more observation of a histogram."""
        self._distributions[metric].observe(labels, value)

    def observe_all(self, metric: Metric, values: Iterable[float], *labels: str) -> None:
        """Several observations of one series."""
        self._distributions[metric].observe(labels, *values)

    def forget(self, metric: Metric, *labels: str) -> None:
        """Drop a gauge's series (a partition that left)."""
        self._numbers[metric].forget(labels)

    def value(self, metric: Metric, **labels: str) -> float:
        """The value of one series (a histogram's is its count); 0.0 before it exists."""
        suffix = {Kind.COUNTER: "_total", Kind.GAUGE: "", Kind.HISTOGRAM: "_count"}[metric.kind]
        return self.registry.get_sample_value(metric.name + suffix, labels) or 0.0

    def total(self, metric: Metric) -> float:
        """The sum over all series of a counter."""
        return sum(value for _, value in self._numbers[metric].all())


class _TableCollector(Collector):
    """Turns the values into families at each scrape."""

    def __init__(
        self, numbers: Mapping[Metric, Numbers], distributions: Mapping[Metric, Distributions]
    ) -> None:
        self._numbers = numbers
        self._distributions = distributions

    def collect(self) -> Iterator[Family]:
        for metric, numbers in self._numbers.items():
            family = _family(metric) if metric.kind is Kind.COUNTER else _gauge_family(metric)
            for labels, value in numbers.all():
                family.add_metric(labels, value)
            yield family
        for metric, distributions in self._distributions.items():
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, buckets, total in distributions.all():
                histogram.add_metric(labels, buckets, total)
            yield histogram


class _StreamCollector(Collector):
    """Turns the stream table into series at each scrape."""

    def __init__(self, streams: StreamTable) -> None:
        self._streams = streams

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        received, answered = _family(STREAM_RECEIVED), _family(STREAM_ANSWERED)
        interval, lag = _gauge_family(STREAM_INTERVAL), _gauge_family(STREAM_LAG)
        for stream in self._streams.snapshot():
            received.add_metric([stream.name], stream.received)
            answered.add_metric([stream.name], stream.answered)
            if stream.interval_s is not None:
                interval.add_metric([stream.name], stream.interval_s)
            if stream.lag_s is not None:
                lag.add_metric([stream.name], stream.lag_s)
        return [received, answered, interval, lag]


def _family(metric: Metric) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)


def _gauge_family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


def markdown() -> str:
    """The table as the text of `docs/metrics.md`."""
    lines = [
        "# Metrics",
        "",
        "Served at `/metrics`. Made by `python -m pipeline.metrics`; do not edit by hand.",
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [_row(metric) for metric in TABLE]
    lines += [
        "",
        "Per route, at any instant: received = answered + dead-lettered + abandoned + in flight.",
        "`http.top_streams` streams have series of their own; the others share `other`.",
        "",
        "## With `--devices`",
        "",
        _FLEET,
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
        *[_row(metric) for metric in DEVICE_TABLE],
        "",
    ]
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.kind is Kind.COUNTER else metric.name
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{name}` | {metric.kind.value} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
