"""Settings of the broker and the consumer group."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.settings_types import (
    MIB,
    Millis,
    Secret,
    Servers,
    Text,
)


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker and the consumer group.

    Attributes:
        bootstrap_servers: brokers to begin with, host:port, several with commas between.
        group_id: the consumer group; workers of one group share the partitions.
        client_id: how this worker appears in the broker's logs.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; needed by SASL_*, else null.
        sasl_username: user of SASL, or null.
        sasl_password: password of SASL, or null. Never shown; better kept in a file.
        sasl_password_file: file whose content (last line break removed) is the password, or null.
        ssl_cafile: PEM file of the authority that signed the broker's certificate, or null for
            the system's.
        ssl_certfile: PEM file of the client's certificate, or null.
        ssl_keyfile: PEM file of the client's key, or null.
        auto_offset_reset: where a group without committed offsets begins: earliest, latest, or
            none (refuse to start).
        session_timeout_ms: the broker drops a worker that was silent for so long, milliseconds.
        heartbeat_interval_ms: between signs of life, milliseconds; at most a third of the session.
        rebalance_timeout_ms: how long the group waits for this worker to give partitions back,
            milliseconds; more than lifecycle.revoke_timeout_ms and lifecycle.drain_timeout_ms.
        max_poll_interval_ms: the longest time between two polls, milliseconds.
        max_partition_fetch_bytes: prefetch per partition, bytes; larger records still arrive.
        request_timeout_ms: of one request to the broker, milliseconds.
        isolation_level: read_uncommitted, or read_committed: leave out frames of transactions
            that were aborted, and wait for those that are open.
    """

    bootstrap_servers: Servers = "127.0.0.1:9092"
    group_id: Text = "frameloom"
    client_id: Text = "frameloom"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: Text | None = None
    sasl_password: Secret | None = None
    sasl_password_file: Text | None = None
    ssl_cafile: Text | None = None
    ssl_certfile: Text | None = None
    ssl_keyfile: Text | None = None
    auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    session_timeout_ms: Millis = 10_000
    heartbeat_interval_ms: Millis = 3_000
    rebalance_timeout_ms: Millis = 60_000
    max_poll_interval_ms: Millis = 300_000
    max_partition_fetch_bytes: Annotated[int, Meta(ge=1, le=2**31 - 1)] = MIB
    request_timeout_ms: Millis = 40_000
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
