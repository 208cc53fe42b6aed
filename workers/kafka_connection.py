"""Settings → what a Kafka connection is made of, and why a broker did not take one.

The library tries each broker, writes the cause of a failure to its log, and raises "unable to
bootstrap" for all of them. `why_refused` asks again, one broker at a time, and says which setting
is wrong. No message of ours holds the password, and the library's hold none either.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.helpers import create_ssl_context
from aiokafka.protocol.metadata import MetadataRequest

from schemas.errors import ConfigError, TransientError
from schemas.settings import KafkaSettings

ASK_TIMEOUT_S = 5.0
"""Of asking one broker again for its reason."""

_CODES_OF_NAME = {62, 64}
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (x509_vfy.h)."""


def connection_arguments(kafka: KafkaSettings) -> dict[str, Any]:
    """The arguments that all clients of the library share.

    Raises:
        ConfigError: an address or a certificate file cannot be used.
    """
    arguments: dict[str, Any] = {
        "bootstrap_servers": checked_servers(kafka.bootstrap_servers),
        "client_id": kafka.client_id,
        "request_timeout_ms": kafka.request_timeout_ms,
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.endswith("SSL"):
        arguments["ssl_context"] = _tls(kafka)
    if kafka.sasl_mechanism is not None:
        arguments["sasl_mechanism"] = kafka.sasl_mechanism
        arguments["sasl_plain_username"] = kafka.sasl_username
        # The library type-checks for `str` and prints it nowhere; `str()` sheds the stars.
        arguments["sasl_plain_password"] = (
            None if not kafka.sasl_password else str(kafka.sasl_password)
        )
    return arguments


def checked_servers(servers: str) -> list[str]:
    """`host:port,host:port` as a list. Checked here: the library takes any text for a host."""
    addresses = [address.strip() for address in servers.split(",") if address.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"kafka.bootstrap_servers: {address!r} is not host:port")
    if not addresses:
        raise ConfigError("kafka.bootstrap_servers is empty")
    return addresses


async def why_refused(kafka: KafkaSettings) -> ConfigError | TransientError | None:
    """Ask each broker again; the first reason that a setting can mend, else the first hint at
    one, else None (nobody answers, or now they take us).

    A wrong user, password, mechanism or certificate is a ConfigError. A broker that closes the
    connection is a TransientError: a wrong protocol looks like a broker that is going down.
    """
    arguments = connection_arguments(kafka)
    servers = arguments.pop("bootstrap_servers")
    arguments["request_timeout_ms"] = int(ASK_TIMEOUT_S * 1000)
    hint: TransientError | None = None
    for address in servers:
        reason = await _reason(kafka, address, arguments)
        if isinstance(reason, ConfigError):
            return reason
        hint = hint or reason
    return hint


async def _reason(
    kafka: KafkaSettings, address: str, arguments: Mapping[str, Any]
) -> ConfigError | TransientError | None:
    host, _, port = address.rpartition(":")
    connection: AIOKafkaConnection | None = None
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            connection = await create_conn(host, int(port), **arguments)
            # A listener that wants a password answers the library's first question without one.
            await connection.send(MetadataRequest([]))
    except (KafkaError, OSError, TimeoutError) as error:
        return _named(kafka, address, error)
    finally:
        if connection is not None:
            connection.close()
    return None


def _named(
    kafka: KafkaSettings, address: str, error: BaseException
) -> ConfigError | TransientError | None:
    """The setting behind a failed connection, by the error's type."""
    for cause in _causes(error):
        if isinstance(cause, (SaslAuthenticationFailed, AuthenticationFailedError)):
            return ConfigError(
                f"kafka.sasl_username, kafka.sasl_password: the broker at {address} refuses user "
                f"{kafka.sasl_username!r} with {kafka.sasl_mechanism}"
            )
        if isinstance(cause, (UnsupportedSaslMechanismError, IllegalSaslStateError)):
            return ConfigError(
                f"kafka.sasl_mechanism: the broker at {address} does not take "
                f"{kafka.sasl_mechanism} with {kafka.security_protocol}"
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _certificate(kafka, address, cause)
        if isinstance(cause, ssl.SSLError):
            return ConfigError(
                f"kafka.security_protocol, kafka.ssl_certfile: no TLS with the broker at {address} "
                f"({cause.reason}): it speaks no TLS there, or does not take "
                + (f"the certificate {kafka.ssl_certfile}" if kafka.ssl_certfile else "clients "
                   "without a certificate")
            )  # fmt: skip
    if isinstance(error, (KafkaConnectionError, ConnectionResetError)):
        return TransientError(
            f"the broker at {address} closes the connection; is kafka.security_protocol "
            f"({kafka.security_protocol}) the one of its listener?"
        )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _certificate(
    kafka: KafkaSettings, address: str, error: ssl.SSLCertVerificationError
) -> ConfigError:
    if error.verify_code in _CODES_OF_NAME:
        return ConfigError(
            f"kafka.bootstrap_servers: the certificate of the broker at {address} is made out to "
            f"another name ({error.verify_message})"
        )
    signer = kafka.ssl_cafile or "the system's authorities"
    return ConfigError(
        f"kafka.ssl_cafile: the certificate of the broker at {address} does not hold against "
        f"{signer} ({error.verify_message})"
    )


def _tls(kafka: KafkaSettings) -> ssl.SSLContext:
    try:
        return create_ssl_context(
            cafile=kafka.ssl_cafile,
            certfile=kafka.ssl_certfile,
            keyfile=kafka.ssl_keyfile,
            # Without it, OpenSSL would ask the terminal for the password of a locked key.
            password=_no_password,
        )
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(_unusable(kafka, error)) from error


def _no_password() -> str:
    return ""


def _unusable(kafka: KafkaSettings, error: Exception) -> str:
    files = {
        name: value
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
        if (value := getattr(kafka, name)) is not None
    }
    given = ", ".join(f"kafka.{name} ({value})" for name, value in files.items())
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{given}: cannot be loaded (PEM without a password is read): {why}"
