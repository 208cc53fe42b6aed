"""Every setting with its type, range and default; `configs/default.yaml` explains them again.

What a single key cannot say (one key must exceed another, names are unique) stands in
`schemas/settings_rules.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.settings_kafka import KafkaSettings
from schemas.settings_routes import RouteSettings
from schemas.settings_types import (
    MIB,
    Bytes,
    Count,
    DeviceName,
    Millis,
    Port,
    Positive,
    Text,
    Unit,
    Wait,
)


class Policy(StrEnum):
    """How a batch's window is chosen."""

    FIXED = "fixed"
    """Wait for a full batch (and at most `max_wait_ms`): the baseline."""
    WINDOW = "window"
    """Wait `constant_ms`."""
    INTERVAL = "interval"
    """Wait `intervals` × the stream's own time between frames."""


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a frame may wait for company.

    Attributes:
        policy: fixed, window or interval.
        intervals: ceiling of a frame's wait in intervals of its stream, 1 to 5 (policy interval).
        constant_ms: a frame's wait, milliseconds (policy window).
        min_wait_ms: the least wait, milliseconds, at most max_wait_ms.
        max_wait_ms: the most, milliseconds; also for streams whose interval is not known.
        idle_launch: launch before the window ends when the device is idle and waiting would
            bring nobody.
    """

    policy: Policy = Policy.INTERVAL
    intervals: Annotated[float, Meta(ge=1.0, le=5.0)] = 3.0
    constant_ms: Wait = 50.0
    min_wait_ms: Wait = 2.0
    max_wait_ms: Wait = 250.0
    idle_launch: bool = True


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a single record may cost. Beyond a limit it becomes a dead letter.

    Attributes:
        max_record_bytes: length of a record's value, bytes.
        max_pixels: width × height that a picture's header may claim.
        max_detections: ceiling of every route's max_det.
        max_scans: scans of a progressive JPEG; at most 20 for one of max_pixels, and in between
            so that scans × pixels stay below 20 × max_pixels.
        max_meta_bytes: encoded length of a frame's meta, bytes.
        max_result_bytes: encoded length of a result, bytes; not above the output topic's limit.
        max_segment_frames: frames of one segment of video, whether they are sampled or not.
        max_segment_ms: time from a segment's first frame to its last, milliseconds.
    """

    max_record_bytes: Bytes = 8 * MIB
    max_pixels: Positive = 50_000_000
    max_detections: Positive = 300
    max_scans: Positive = 100
    max_meta_bytes: Count = 16 * 1024
    max_result_bytes: Bytes = MIB
    max_segment_frames: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    max_segment_ms: Millis = 30_000


class ClaimCheckSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frames that say where their picture is kept (uri, sha256, length) instead of carrying it.

    Attributes:
        enabled: fetch them; otherwise each becomes a dead letter.
        allowed_prefixes: what may be fetched, e.g. https://store.example/frames/, file:///srv/f,
            s3://bucket/frames. Whole path segments count. Needed when enabled.
        allowed_networks: addresses and networks (10.1.0.0/16) that hosts of http and https may have
            although they are not public. A cloud's metadata address must be named by itself.
        max_bytes: most bytes of one picture; at most flow.max_bytes.
        timeout_ms: for all attempts at one picture together, milliseconds; less than
            lifecycle.revoke_timeout_ms and lifecycle.drain_timeout_ms.
        retries: further attempts when a host fails in a way that may pass, 0 to 20.
        concurrency: pictures fetched at once, 1 to 256; one stream has at most a quarter of them.
        ssl_cafile: PEM file of the authority that signed the hosts' certificates, or null for the
            system's.
    """

    enabled: bool = False
    allowed_prefixes: list[Text] = []
    allowed_networks: list[Text] = []
    max_bytes: Bytes = 8 * MIB
    timeout_ms: Millis = 10_000
    retries: Annotated[int, Meta(ge=0, le=20)] = 4
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 16
    ssl_cafile: Text | None = None


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may be in flight, in each process. Partitions pause beyond it; nothing is dropped.

    Attributes:
        max_items: frames admitted and not yet answered.
        max_bytes: bytes of their records; at least limits.max_record_bytes.
        max_held_per_stream: results of one stream that wait for an earlier one.
        max_segments: segments of video that are decoded at once, 1 to 64; further ones wait. Each
            has one more frame, and the reference pictures of its codec, in memory.
    """

    max_items: Positive = 256
    max_bytes: Bytes = 256 * MIB
    max_held_per_stream: Positive = 64
    max_segments: Annotated[int, Meta(ge=1, le=64)] = 2


class Order(StrEnum):
    """In which order results leave."""

    STREAM = "stream"
    """In source order within each stream."""
    NONE = "none"
    """As batches finish."""


class Guarantee(StrEnum):
    """What a consumer of results may rely on."""

    AT_LEAST_ONCE = "at_least_once"
    """Each record is answered; after a crash some are answered twice."""
    EXACTLY_ONCE = "exactly_once"
    """Answers and offsets in one transaction: a read-committed consumer sees each answer once."""


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers leave and offsets are committed.

    Attributes:
        guarantee: at_least_once, or exactly_once (needs a broker with transactions; answers then
            leave in source order within each partition).
        order: stream or none.
        commit_interval_ms: longest time between commits, milliseconds; used by at_least_once.
        commit_every: commit after so many settled records, whichever comes first; under
            exactly_once the most answers of one transaction.
        transaction_interval_ms: least time from the start of one transaction of a partition to
            the start of the next, milliseconds; used by exactly_once.
        produce_timeout_ms: how long one answer may stay unacknowledged, milliseconds; under
            exactly_once how long a transaction may take.
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    order: Order = Order.STREAM
    commit_interval_ms: Millis = 500
    commit_every: Positive = 1_000
    transaction_interval_ms: Annotated[int, Meta(ge=0, le=60_000)] = 50
    produce_timeout_ms: Millis = 30_000


class DeviceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where batches run.

    Attributes:
        name: auto (cuda if there is one), cpu, cuda or cuda:N.
        slots: batches on the device at once, 1 to 8; two overlap decoding with inference, a third
            on a GPU the return of results.
        decoder: auto, opencv, dali or torchvision (JPEGs on a GPU without DALI).
        hw_decoder_load: share of a batch's JPEGs that DALI gives to the GPU's JPEG engine, where it
            has one, 0 to 1.
        cuda_graphs: on a GPU, record the model's run for each bucket and batch size at the start.
        decode_threads: threads that decode; 0: one for each core that the process may use.
        model_threads: threads inside the model on a CPU; 0: likewise. Both have all cores:
            whichever has work takes them, and idle threads sleep.
        model_cache_dir: folder for exported models, for which backend was fastest, and for what
            calibration measured; null: the user's own ($XDG_CACHE_HOME/frameloom or
            ~/.cache/frameloom).
        calibrate: at the start measure the model's time by shape and batch size: quick (about two
            seconds, at the first start only), full (up to a minute), or off (learn it from
            batches).
        memory_fraction: of the device's free memory, the share that batches may be planned for,
            above 0 to 1. A plan that does not fit is refused at the start.
        segment_decoder: cpu, or nvdec: decode segments on the GPU where it can, else on the CPU.
        segment_threads: threads inside the decoder of a segment, 1 to 64; frames are decoded in
            order, and each further thread keeps one more in memory.
        stage_timeout_ms: longest time of one call into a decoder or the model, milliseconds. A call
            that takes longer hangs: the process ends, and its records run alone after the restart.
    """

    name: DeviceName = "auto"
    slots: Annotated[int, Meta(ge=1, le=8)] = 2
    decoder: Literal["auto", "opencv", "dali", "torchvision"] = "auto"
    hw_decoder_load: Unit = 0.9
    cuda_graphs: bool = True
    decode_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    model_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    model_cache_dir: Text | None = None
    calibrate: Literal["quick", "full", "off"] = "quick"
    memory_fraction: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.8
    segment_decoder: Literal["cpu", "nvdec"] = "cpu"
    segment_threads: Annotated[int, Meta(ge=1, le=64)] = 1
    stage_timeout_ms: Millis = 30_000


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Budgets of stopping, of giving partitions back, and of standing still.

    Attributes:
        drain_timeout_ms: after SIGTERM, time to answer what was admitted, milliseconds.
        revoke_timeout_ms: time to settle a partition that is taken away, milliseconds.
        stall_timeout_ms: without progress for so long the process ends uncommitted, milliseconds.
        journal_dir: folder for the journal of records that are inside native code, which finds out
            the one that crashes workers. Must survive a worker's restart. null: a folder of this
            user under the system's temporary one.
    """

    drain_timeout_ms: Millis = 20_000
    revoke_timeout_ms: Millis = 15_000
    stall_timeout_ms: Millis = 120_000
    journal_dir: Text | None = None


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Health and metrics over HTTP.

    Attributes:
        enabled: serve /healthz, /readyz and /metrics.
        host: address to listen on.
        port: 0 to 65535; 0 takes a free one and logs it.
        top_streams: streams with metrics of their own; the rest count as `other`.
    """

    enabled: bool = True
    host: Text = "127.0.0.1"
    port: Port = 9464
    top_streams: Count = 50


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logs, on standard error.

    Attributes:
        level: debug, info, warning or error.
        format: json (one object a line) or console (for people).
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a worker can be told.

    Attributes:
        kafka: the broker and the consumer group.
        routes: input topic → model → output topic; at least one.
        window: how long a frame may wait for company.
        limits: what a single record may cost.
        claim_check: frames whose picture is kept elsewhere.
        flow: how much may be in flight.
        delivery: how answers leave and offsets are committed.
        device: where batches run.
        lifecycle: budgets of stopping, giving back and standing still.
        http: health and metrics.
        log: logs.
    """

    kafka: KafkaSettings = KafkaSettings()
    routes: Annotated[list[RouteSettings], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [RouteSettings()]
    )
    window: WindowSettings = WindowSettings()
    limits: LimitSettings = LimitSettings()
    claim_check: ClaimCheckSettings = ClaimCheckSettings()
    flow: FlowSettings = FlowSettings()
    delivery: DeliverySettings = DeliverySettings()
    device: DeviceSettings = DeviceSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
