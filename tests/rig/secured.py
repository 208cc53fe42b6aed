"""A real Kafka that asks who is there: one node with a listener for every way of asking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from schemas.settings import KafkaSettings, Secret
from tests.rig.certificates import Authority, Certificate
from tests.rig.kafka import KafkaCluster

USER = "camera-hall"
PASSWORD = "never-to-be-shown-4711"  # of a broker that lives for one test run
LISTENERS = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Secured:
    """The running node, its authority, and a client's certificate that it signed."""

    cluster: KafkaCluster
    authority: Certificate
    client: Certificate

    def settings(self, listener: str, mechanism: str | None = None) -> KafkaSettings:
        """Those with which a client is let in at `listener`."""
        kafka = KafkaSettings(
            bootstrap_servers=f"127.0.0.1:{self.cluster.nodes[0].plan.listeners[listener]}",
            security_protocol="SSL" if listener == "MTLS" else listener,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_200,
            rebalance_timeout_ms=30_000,
        )
        if listener.startswith("SASL"):
            kafka = msgspec.structs.replace(
                kafka, sasl_mechanism=mechanism, sasl_username=USER, sasl_password=Secret(PASSWORD)
            )
        if listener.endswith(("SSL", "MTLS")):
            kafka = msgspec.structs.replace(kafka, ssl_cafile=str(self.authority.certificate))
        if listener == "MTLS":
            kafka = msgspec.structs.replace(
                kafka, ssl_certfile=str(self.client.certificate), ssl_keyfile=str(self.client.key)
            )
        return kafka


def secured(folder: Path) -> Secured:
    """A node that is not started yet."""
    authority = Authority(folder / "certificates", "authority")
    server = authority.sign("broker", "IP:127.0.0.1")
    cluster = KafkaCluster(
        folder / "kafka",
        listeners=LISTENERS,
        scram=[f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in SCRAM],
        extra=_properties(server.together(folder / "server.pem"), authority.own.certificate),
    )
    return Secured(cluster, authority.own, authority.sign("client"))


def _properties(key_store: Path, trusted: Path) -> dict[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "listener.name.mtls.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(("PLAIN", *SCRAM))
        properties[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{_PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
        )
        for mechanism in SCRAM:
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{_SCRAM_MODULE} required;"
            )
    return properties
