"""TLS and SASL against a real Kafka: who is let in, what the others are told, and that the password
is nowhere to be seen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import traceback
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from schemas.errors import ConfigError, FrameloomError, TransientError
from schemas.settings import KafkaSettings, LogSettings, Secret, Settings, describe
from tests.assertions import each_once
from tests.builders_pictures import jpeg, picture
from tests.integration.kit import Sent, a_bench, a_jpeg, fake_machinery, running, sources, until
from tests.rig.certificates import Authority, locked_copy, missing_openssl
from tests.rig.choice import why_no_rig
from tests.rig.secured import PASSWORD, USER, Secured, secured
from workers.kafka_clients import (
    TopicSpec,
    check_topics,
    create_topics,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)
from workers.logs import configure
from workers.worker import Worker

pytestmark = pytest.mark.broker

DEADLINE_S = 180.0
WAYS = [
    ("SSL", None),
    ("MTLS", None),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]
WRONG = "wrong-but-not-to-be-shown-either"
SECRETS = (PASSWORD, WRONG)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if lacking := why_no_rig() or missing_openssl():
        pytest.skip(lacking)
    made = secured(tmp_path_factory.mktemp("secured"))
    with made.cluster:
        yield made


@pytest.fixture(autouse=True)
async def all_closed() -> AsyncIterator[None]:
    """Let every connection close before its loop ends.

    A TLS connection closes in turns of its loop (it waits for the broker's close_notify), and the
    library awaits none of that for a connection it gave up: the socket would be collected later,
    with a warning, in whatever test runs then.
    """
    yield
    selector = asyncio.get_running_loop()._selector
    await until(lambda: len(selector.get_map()) <= 1)  # the loop's own pipe stays


def changed(kafka: KafkaSettings, **fields: object) -> KafkaSettings:
    return msgspec.structs.replace(kafka, **fields)


# --- let in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_every_client_is_let_in(
    guarded: Secured, unique: Callable[[str], str], listener: str, mechanism: str | None
) -> None:
    kafka = changed(guarded.settings(listener, mechanism), group_id=unique("group"))
    topic = unique("frames")
    assert await create_topics(kafka, [TopicSpec(topic)]) == [topic]
    producer, consumer = make_producer(kafka), make_consumer(kafka, topic)
    await start_client(producer, kafka)
    await start_client(consumer, kafka)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await producer.send_and_wait(topic, b"value", key=b"key")
            record = await consumer.getone()
            await consumer.commit()
    finally:
        assert await stop_client(producer)
        assert await stop_client(consumer)
    assert (record.key, record.value) == (b"key", b"value")


async def test_a_worker_answers_over_tls_with_a_password_and_shows_it_nowhere(
    guarded: Secured,
    unique: Callable[[str], str],
    unconfigured: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    configure(LogSettings(level="debug"))
    kafka = guarded.settings("SASL_SSL", "SCRAM-SHA-256")
    bench = await a_bench(kafka.bootstrap_servers, unique, kafka=kafka)
    sent = await bench.send(*(Sent(a_jpeg()) for _ in range(8)), Sent(b"no frame"))
    worker = Worker(bench.settings, fake_machinery(bench.settings))
    async with running(worker):
        results = await bench.results(8)
        letters = await bench.dead_letters(1)
        port = worker.http_port
        pages = [await asyncio.to_thread(_get, port, page) for page in ("metrics", "healthz")]
    each_once(sources(results), sent[:-1])
    assert await bench.committed() == len(sent)

    logged = capfd.readouterr()
    assert "partitions_assigned" in logged.err
    _hidden(logged.out, logged.err, *pages, str(letters), str(describe(bench.settings)))
    _hidden(repr(bench.settings), str(bench.settings))


def _get(port: int, page: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def _hidden(*texts: str) -> None:
    for text in texts:
        for secret in SECRETS:
            assert secret not in text


# --- refused ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str | None, dict[str, object], str]] = {
    "password, plain": (
        "SASL_PLAINTEXT", "PLAIN", {"sasl_password": Secret(WRONG)}, "kafka.sasl_password",
    ),
    "password, scram": (
        "SASL_SSL", "SCRAM-SHA-256", {"sasl_password": Secret(WRONG)}, "kafka.sasl_password",
    ),
    "user": ("SASL_SSL", "SCRAM-SHA-512", {"sasl_username": "nobody"}, "kafka.sasl_username"),
    "mechanism of a listener without any": (
        "SSL", None,
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": USER,
         "sasl_password": Secret(PASSWORD)},
        "kafka.sasl_mechanism",
    ),
    "authority of the system": ("SSL", None, {"ssl_cafile": None}, "kafka.ssl_cafile"),
    "no certificate of the client": (
        "MTLS", None, {"ssl_certfile": None, "ssl_keyfile": None}, "kafka.ssl_certfile",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
async def test_the_setting_at_fault_is_named(guarded: Secured, what: str) -> None:
    listener, mechanism, fields, setting = REFUSED[what]
    kafka = changed(guarded.settings(listener, mechanism), **fields)
    await _names(kafka, ConfigError, setting)


async def test_an_unknown_authority_is_named(guarded: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path, "stranger")
    kafka = changed(guarded.settings("SSL"), ssl_cafile=str(other.own.certificate))
    await _names(kafka, ConfigError, "kafka.ssl_cafile", str(other.own.certificate))


async def test_a_certificate_of_another_authority_is_refused(
    guarded: Secured, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").sign("guest")
    kafka = changed(
        guarded.settings("MTLS"),
        ssl_certfile=str(stranger.certificate),
        ssl_keyfile=str(stranger.key),
    )
    await _names(kafka, ConfigError, "kafka.ssl_certfile", str(stranger.certificate))


async def test_a_broker_of_another_name_is_refused(guarded: Secured) -> None:
    """Its certificate holds for 127.0.0.1 alone."""
    kafka = guarded.settings("SSL")
    elsewhere = kafka.bootstrap_servers.replace("127.0.0.1", "localhost")
    await _names(
        changed(kafka, bootstrap_servers=elsewhere), ConfigError, "kafka.bootstrap_servers"
    )


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [("SASL_PLAINTEXT", "PLAINTEXT"), ("SSL", "PLAINTEXT"), ("SASL_PLAINTEXT", "SASL_SSL")],
)
async def test_another_protocol_than_the_listener_s_is_a_hint(
    guarded: Secured, listener: str, protocol: str
) -> None:
    """The broker only closes the connection, which one that goes down does too."""
    kafka = changed(guarded.settings(listener, "PLAIN"), security_protocol=protocol)
    if protocol == "PLAINTEXT":
        kafka = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    await _names(kafka, TransientError, "kafka.security_protocol")


async def test_a_locked_key_is_refused_and_asks_nobody(guarded: Secured, tmp_path: Path) -> None:
    signed = Authority(tmp_path, "stranger").sign("guest")
    locked = locked_copy(signed.key, PASSWORD)
    kafka = changed(guarded.settings("MTLS"), ssl_keyfile=str(locked))
    with pytest.raises(ConfigError, match=r"kafka\.ssl_keyfile"):
        make_producer(kafka)


async def _names(kafka: KafkaSettings, kind: type[FrameloomError], *words: str) -> None:
    """Admin, producer and consumer all fail so, in time, without a word of the password."""
    for start in (_check, _produce, _consume):
        with pytest.raises(kind) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await start(kafka)
        assert type(caught.value) is kind
        for word in words:
            assert word in str(caught.value)
        _hidden("".join(traceback.format_exception(caught.value)))


async def _check(kafka: KafkaSettings) -> None:
    await check_topics(kafka, ["frames"])


async def _produce(kafka: KafkaSettings) -> None:
    await start_client(make_producer(kafka), kafka)


async def _consume(kafka: KafkaSettings) -> None:
    await start_client(make_consumer(kafka, "frames"), kafka)


# --- the command line ---------------------------------------------------------------------------


def _command(
    *arguments: str, config: Path, password: str | None = None
) -> tuple[int, str, list[bytes]]:
    """Exit code, all output, and the process's arguments as others see them."""
    environment = dict(os.environ)
    if password is not None:
        environment["FRAMELOOM__KAFKA__SASL_PASSWORD"] = password
    command = [sys.executable, "-m", "frameloom", *arguments, "--config", str(config)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        seen = Path(f"/proc/{process.pid}/cmdline")
        shown = seen.read_bytes().split(b"\0") if seen.exists() else []
        output, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, output, shown


@pytest.fixture
def config(guarded: Secured, tmp_path: Path) -> Path:
    """Settings without the password."""
    kafka = changed(guarded.settings("SASL_SSL", "SCRAM-SHA-512"), sasl_password=None)
    path = tmp_path / "frameloom.yaml"
    sections = {"kafka": describe(Settings(kafka=kafka))["kafka"], "http": {"port": 0}}
    path.write_text(yaml.safe_dump(sections))
    return path


def test_the_password_comes_from_the_environment(
    guarded: Secured, unique: Callable[[str], str], config: Path, tmp_path: Path
) -> None:
    topic = unique("frames")
    asyncio.run(create_topics(guarded.settings("SASL_SSL", "PLAIN"), [TopicSpec(topic)]))
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(40, 30)))
    for arguments in (
        ("topics", "list"),
        ("produce", str(tmp_path / "a.jpg"), "--topic", topic),
    ):
        code, output, shown = _command(*arguments, config=config, password=PASSWORD)
        assert code == 0, output
        _hidden(output, str(shown))


def test_the_password_comes_from_a_file(config: Path, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    settings = yaml.safe_load(config.read_text())
    settings["kafka"]["sasl_password_file"] = str(secret)
    config.write_text(yaml.safe_dump(settings))
    code, output, shown = _command("topics", "list", config=config)
    assert code == 0, output
    _hidden(output, str(shown))


def test_a_wrong_password_ends_a_command_without_showing_it(config: Path) -> None:
    for arguments in (("topics", "list"), ("consume", "--topic", "frames"), ("worker",)):
        code, output, shown = _command(*arguments, config=config, password=WRONG)
        assert code == 2, output
        assert "kafka.sasl_password" in output
        _hidden(output, str(shown))
