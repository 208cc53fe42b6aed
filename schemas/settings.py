"""Settings: typed, every key documented in `configs/default.yaml`, unknown keys refused.

Sources in rising order: the defaults below, a YAML file, `FRAMELOOM__SECTION__KEY` environment
variables, `--set section.key=value`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

MIB = 1024 * 1024


class Secret(str):
    """A string that never shows itself: `str()` of it works, `repr()` and logs print stars."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bootstrap_servers: str = "127.0.0.1:9092"
    group_id: str = "frameloom"
    client_id: str = "frameloom"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    auto_offset_reset: str = "earliest"
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    max_partition_fetch_bytes: int = MIB
    request_timeout_ms: int = 40_000


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    max_source_pixels: int
    height: int
    width: int
    max_batch: int


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = "default"
    input: str = "frames"
    output: str = "detections"
    dead_letter: str = "frames.dlq"
    model: str = "bench/assets/frameloom-demo.pt"
    conf: float = 0.25
    iou: float = 0.7
    max_det: int = 300
    classes: list[int] | None = None
    sample_every: int = 1
    buckets: list[BucketSettings] = []


class Policy(StrEnum):
    FIXED = "fixed"
    WINDOW = "window"
    INTERVAL = "interval"


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: Policy = Policy.INTERVAL
    intervals: float = 3.0
    constant_ms: float = 50.0
    min_wait_ms: float = 2.0
    max_wait_ms: float = 250.0
    idle_launch: bool = True


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_record_bytes: int = 8 * MIB
    max_pixels: int = 50_000_000
    max_detections: int = 300
    max_scans: int = 100
    max_meta_bytes: int = 16 * 1024
    max_result_bytes: int = MIB


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_items: int = 256
    max_bytes: int = 256 * MIB
    max_held_per_stream: int = 64


class Order(StrEnum):
    STREAM = "stream"
    NONE = "none"


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    order: Order = Order.STREAM
    commit_interval_ms: int = 500
    commit_every: int = 1_000
    produce_timeout_ms: int = 30_000


class DeviceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = "auto"
    slots: int = 2
    decoder: str = "auto"
    decode_threads: int = 0
    model_threads: int = 0


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    drain_timeout_ms: int = 20_000
    revoke_timeout_ms: int = 15_000
    stall_timeout_ms: int = 120_000


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 9464
    top_streams: int = 50


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: str = "info"
    format: str = "json"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kafka: KafkaSettings = KafkaSettings()
    routes: list[RouteSettings] = msgspec.field(default_factory=lambda: [RouteSettings()])
    window: WindowSettings = WindowSettings()
    limits: LimitSettings = LimitSettings()
    flow: FlowSettings = FlowSettings()
    delivery: DeliverySettings = DeliverySettings()
    device: DeviceSettings = DeviceSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
