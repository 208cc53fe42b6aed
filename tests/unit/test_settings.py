"""Settings come from where they should, and a bad one is traced to its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.bucket import Bucket, BucketTable
from schemas.errors import ConfigError
from schemas.json_schema import key_docs
from schemas.settings import (
    DEFAULT_BUCKETS,
    BucketSettings,
    KafkaSettings,
    Policy,
    RouteSettings,
    Secret,
    Settings,
    describe,
    load_settings,
)
from schemas.settings_check import element_of, fields_of, known_keys, section_of
from schemas.settings_yaml import dotted, read_yaml

CONFIGS = Path(__file__).parents[2] / "configs"
DEFAULT_FILE = CONFIGS / "default.yaml"
SASL = ["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=PLAIN", "kafka.sasl_username=u"]

CLAIMS = ["claim_check.enabled=true", "claim_check.allowed_prefixes=[https://h/]"]


def load(*overrides: str, **env: str) -> Settings:
    return load_settings(env=env, overrides=overrides)


def refusal(
    text: str = "", *, overrides: Sequence[str] = (), env: dict[str, str] | None = None, at: Path
) -> str:
    """The message that a file of this text, these variables and options are refused with."""
    file = at / "my.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file, env=env or {}, overrides=overrides)
    return str(caught.value).replace(f"{at}/", "")


def structs(struct: type[msgspec.Struct] = Settings) -> Iterator[type[msgspec.Struct]]:
    yield struct
    for info in fields_of(struct).values():
        inner = section_of(info.type) or element_of(info.type)
        if inner is not None:
            yield from structs(inner)


# --- the files ---------------------------------------------------------------------------------


def test_the_default_file_is_the_defaults() -> None:
    assert load_settings(DEFAULT_FILE, env={}) == Settings() == load()


def test_the_default_file_names_every_key_with_its_value() -> None:
    assert yaml.safe_load(DEFAULT_FILE.read_text()) == msgspec.to_builtins(Settings())


def test_the_default_file_explains_every_key() -> None:
    lines = DEFAULT_FILE.read_text().splitlines()
    places = read_yaml(DEFAULT_FILE.read_text(), "default.yaml").lines
    keys = [*known_keys(), *known_keys(BucketSettings, ("routes", 0, "buckets", 0))]
    bare = [dotted(key) for key in keys if not lines[places[key] - 2].strip().startswith("#")]
    assert bare == []


@pytest.mark.parametrize("name", ["default", "cpu", "gpu"])
def test_shipped_files_load_and_their_buckets_serve_every_size(name: str) -> None:
    settings = load_settings(CONFIGS / f"{name}.yaml", env={})
    buckets = settings.routes[0].buckets
    table = BucketTable([Bucket(**msgspec.structs.asdict(bucket)) for bucket in buckets])
    chosen = {
        (width, height): table.choose(width, height)[0].name
        for width, height in [(854, 480), (480, 854), (1920, 1080), (1080, 1920), (3840, 2160)]
    }
    assert list(chosen.values()) == ["480p", "480p-portrait", "1080p", "1080p-portrait", "4k"]
    assert table.choose(2160, 3840)[0].name == "4k-portrait"
    assert max(bucket.max_source_pixels for bucket in buckets) == settings.limits.max_pixels


@pytest.mark.parametrize("struct", list(structs()), ids=lambda struct: struct.__name__)
def test_every_key_is_documented_where_it_is_defined(struct: type[msgspec.Struct]) -> None:
    assert list(key_docs(struct)) == list(fields_of(struct))


# --- sources -----------------------------------------------------------------------------------


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("http: {port: 1, host: a, top_streams: 9}\nlog:\n  # nothing said\n")
    env = {
        "FRAMELOOM__HTTP__PORT": "2",
        "FRAMELOOM__HTTP__HOST": "b",
        "PATH": "/bin",
        "FRAMELOOM_X": "",
    }
    http = load_settings(str(file), env=env, overrides=["http.port=3", "http.port=4"]).http
    assert (http.port, http.host, http.top_streams) == (4, "b", 9)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("# nothing\n")
    assert load_settings(tmp_path / "my.yaml", env={}) == Settings()


def test_values_are_read_as_their_keys_want_them() -> None:
    settings = load(
        "kafka.group_id=007",
        "kafka.client_id=#1: {x}",
        "kafka.ssl_cafile=null",
        "window.policy=window",
        "window.idle_launch=false",
        "window.max_wait_ms=80",
        "routes.0.classes=[0, 2]",
        "log.level=debug",
    )
    assert (settings.kafka.group_id, settings.kafka.client_id) == ("007", "#1: {x}")
    assert settings.kafka.ssl_cafile is None
    assert settings.window.policy is Policy.WINDOW
    assert settings.window.idle_launch is False
    assert settings.window.max_wait_ms == 80.0
    assert settings.routes[0].classes == [0, 2]


@pytest.mark.parametrize(
    "key", ["routes.0.buckets.1.max_batch", "routes.default.buckets.480p-portrait.max_batch"]
)
def test_elements_are_addressed_by_index_or_name(key: str) -> None:
    assert load(f"{key}=3").routes[0].buckets[1].max_batch == 3


def test_variables_spell_names_with_underscores() -> None:
    settings = load(FRAMELOOM__ROUTES__DEFAULT__BUCKETS__480P_PORTRAIT__MAX_BATCH="3")
    assert settings.routes[0].buckets[1].max_batch == 3
    assert settings.routes[0].buckets[0] == DEFAULT_BUCKETS[0]
    assert Settings().routes[0].buckets[1].max_batch == 16


def test_whole_lists_and_sections_can_be_given() -> None:
    settings = load(
        FRAMELOOM__ROUTES="[{name: a, input: x}, {name: b, input: y}]",
        FRAMELOOM__ROUTES__1__CONF="0.5",
        FRAMELOOM__HTTP="{port: 0}",
    )
    assert [(route.input, route.conf) for route in settings.routes] == [("x", 0.25), ("y", 0.5)]
    assert settings.http.port == 0


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http:\n  prot: 1\n", "my.yaml:2: http.prot: unknown key, did you mean http.port?"),
        ("htpp:\n  port: 1\n", "my.yaml:1: htpp: unknown key, did you mean http?"),
        ("port: 1\n", "my.yaml:1: port: unknown key, did you mean http.port?"),
        (
            "kafka:\n  max_wait_ms: 1\n",
            "my.yaml:2: kafka.max_wait_ms: unknown key, did you mean window.max_wait_ms?",
        ),
        (
            "log: {xyz: 1}\n",
            "my.yaml:1: log.xyz: unknown key, known here: level, format",
        ),
        (
            "routes:\n  - conf: 0.3\n    bukets: []\n",
            "my.yaml:3: routes.0.bukets: unknown key, did you mean routes.0.buckets?",
        ),
        ("http:\n  port: 70000\n", "my.yaml:2: http.port = 70000: expected `int` <= 65535"),
        ("http:\n  port: yes\n", "my.yaml:2: http.port = True: expected `int`, got `bool`"),
        (
            "kafka:\n  group_id: 5\n",
            "my.yaml:2: kafka.group_id = 5: expected a text that is not empty",
        ),
        (
            "log:\n  level: inof\n",
            (
                "my.yaml:2: log.level = 'inof': "
                "expected debug, info, warning, error, did you mean info?"
            ),
        ),
        (
            "window:\n  policy: intervall\n",
            (
                "my.yaml:2: window.policy = 'intervall': "
                "expected fixed, window, interval, did you mean interval?"
            ),
        ),
        (
            "kafka:\n  bootstrap_servers: broker\n",
            (
                "my.yaml:2: kafka.bootstrap_servers = 'broker': "
                "expected host:port, or several with commas between"
            ),
        ),
        (
            "device: {name: gpu}\n",
            "my.yaml:1: device.name = 'gpu': expected auto, cpu, cuda or cuda:N",
        ),
        (
            "window: {intervals: .nan}\n",
            "my.yaml:1: window.intervals = nan: expected a finite number",
        ),
        ("routes: []\n", "my.yaml:1: routes: expected a list with at least one element"),
        ("routes: 5\n", "my.yaml:1: routes: expected a list with at least one element"),
        ("http: 5\n", "my.yaml:1: http: expected keys and values here"),
        ("- http\n", "my.yaml: expected sections (kafka, routes, …) at the top"),
        ("http: {port: 1, port: 2}\n", "my.yaml:1: http.port stands twice"),
        ("http:\n  port: 1\nhttp:\n  port: 1\n", "my.yaml:3: http stands twice"),
        ("1: 2\n", "my.yaml:1: a key under the top is no text"),
        (
            "http: {port: 2001-01-01}\n",
            "my.yaml:1: http.port is no plain value (put a text into quotes)",
        ),
        (
            "http: {port: !!int x}\n",
            "my.yaml:1: http.port is no plain value (put a text into quotes)",
        ),
        ("a: &a {b: 1}\nc: {<<: *a}\n", "my.yaml:2: merge keys (<<) are not read, anchors are"),
        ("a: &a [*a]\n", "my.yaml: not YAML: nested too deeply"),
        ("http: {port: 1\n", "my.yaml:2: not YAML: expected ',' or '}', but got '<stream end>'"),
        ("http: 'x\n", "my.yaml:2: not YAML: found unexpected end of stream"),
        ("a: \x07\n", "my.yaml: not YAML: a character or a number cannot be read"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    assert refusal(text, at=tmp_path) == message


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    message = refusal(
        "http: {port: -1}\nlog:\n  x: 1\n", overrides=["window.policy=x"], at=tmp_path
    )
    assert len(message.splitlines()) == 3


def test_a_missing_key_of_a_bucket(tmp_path: Path) -> None:
    text = "routes:\n  - buckets:\n      - {name: a, height: 32, width: 32, max_batch: 1}\n"
    message = refusal(text, at=tmp_path)
    assert message == "my.yaml:3: routes.0.buckets.0.max_source_pixels: is missing"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "none.yaml", env={})
    (tmp_path / "latin.yaml").write_bytes(b"log: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings(tmp_path / "latin.yaml", env={})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "FRAMELOOM__HTTP__PROT",
            "1",
            "FRAMELOOM__HTTP__PROT: unknown variable, did you mean FRAMELOOM__HTTP__PORT?",
        ),
        (
            "FRAMELOOM__HTP__PORT",
            "1",
            "FRAMELOOM__HTP__PORT: unknown variable, did you mean FRAMELOOM__HTTP__PORT?",
        ),
        (
            "FRAMELOOM__HTP__PRT",
            "1",
            "FRAMELOOM__HTP__PRT: unknown variable, did you mean FRAMELOOM__HTTP?",
        ),
        (
            "FRAMELOOM__KAFKA_GROUP_ID",
            "x",
            "FRAMELOOM__KAFKA_GROUP_ID: unknown variable, did you mean FRAMELOOM__KAFKA__GROUP_ID?",
        ),
        (
            "FRAMELOOM__HTTP__PORT",
            "x",
            "FRAMELOOM__HTTP__PORT: http.port = 'x': expected `int`, got `str`",
        ),
        ("FRAMELOOM__HTTP__PORT", "[", "FRAMELOOM__HTTP__PORT:1: not YAML: "),
        (
            "FRAMELOOM_WINDOW__MAX_WAIT_MS",
            "80",
            "FRAMELOOM_WINDOW__MAX_WAIT_MS: no setting, did you mean FRAMELOOM__WINDOW__MAX_",
        ),
        ("FRAMELOOM__", "1", "FRAMELOOM__: unknown key, known here: kafka, routes"),
        (
            "FRAMELOOM__ROUTES__7__CONF",
            "1",
            "FRAMELOOM__ROUTES__7__CONF: routes has no element '7'; it has, by index (or",
        ),
        ("FRAMELOOM__HTTP__PORT__X", "1", "FRAMELOOM__HTTP__PORT__X: http.port has no key 'x'"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str, message: str, tmp_path: Path) -> None:
    assert refusal(env={name: value}, at=tmp_path).startswith(message)


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes makes such names for a service that is called frameloom-http."""
    assert load(FRAMELOOM_HTTP_PORT="tcp://10.0.0.1:80", FRAMELOOM_MODEL="a.pt") == Settings()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("http.prot=1", "--set http.prot: unknown key, did you mean http.port?"),
        ("routs.0.conf=1", "--set routs.0.conf: unknown key, did you mean routes.0.conf?"),
        ("http.port=-1", "--set http.port: http.port = -1: expected `int` >= 0"),
        ("http.port", "--set: expected section.key=value, found no '='"),
        (
            "routes.x.conf=1",
            "--set routes.x.conf: routes has no element 'x'; it has, by index (or",
        ),
        ("=1", "--set : unknown key, known here: kafka, routes"),
    ],
)
def test_a_bad_option_is_named(override: str, message: str, tmp_path: Path) -> None:
    assert refusal(overrides=[override], at=tmp_path).startswith(message)


@pytest.mark.parametrize(
    ("overrides", "key", "words"),
    [
        (["routes.0.conf=1.1"], "routes.0.conf", "<= 1.0"),
        (["routes.0.iou=-0.1"], "routes.0.iou", ">= 0.0"),
        (["routes.0.max_det=301"], "routes.0.max_det", "limits.max_detections (300)"),
        (["routes.0.max_det=0"], "routes.0.max_det", ">= 1"),
        (["routes.0.classes=[]"], "routes.0.classes", "length >= 1"),
        (["routes.0.classes=[1, 1]"], "routes.0.classes", "twice"),
        (["routes.0.classes=[-1]"], "routes.0.classes", ">= 0"),
        (["routes.0.sample_every=0"], "routes.0.sample_every", ">= 1"),
        (["routes.0.model="], "routes.0.model", "not empty"),
        (["routes.0.name=a b"], "routes.0.name", "a name"),
        (["routes.0.name=7"], "routes.0.name", "not a number"),
        (["routes.0.input=a/b"], "routes.0.input", "a topic name"),
        (["routes.0.input=.."], "routes.0.input", "a topic name"),
        (["routes.0.output=frames"], "routes.0.output", "come back as frames"),
        (["routes.0.dead_letter=frames"], "routes.0.dead_letter", "come back as frames"),
        (["routes.0.dead_letter=detections"], "routes.0.dead_letter", "is an output too"),
        (["routes.0.buckets=[]"], "routes.0.buckets", "at least one"),
        (["routes.0.buckets.0.height=250"], "routes.0.buckets.0.height", "multiple of 32"),
        (["routes.0.buckets.0.width=0"], "routes.0.buckets.0.width", ">= 32"),
        (["routes.0.buckets.0.max_batch=0"], "routes.0.buckets.0.max_batch", ">= 1"),
        (["routes.0.buckets.0.name=4k"], "routes.0.buckets.4.name", "another bucket"),
        (["window.intervals=0.5"], "window.intervals", ">= 1.0"),
        (["window.intervals=6"], "window.intervals", "<= 5.0"),
        (["window.min_wait_ms=300"], "window.min_wait_ms", "window.max_wait_ms (250.0)"),
        (["claim_check.enabled=true"], "claim_check.allowed_prefixes", "is empty"),
        (
            ["claim_check.allowed_prefixes=[https://h/, https://h/../x]"],
            "claim_check.allowed_prefixes.1",
            "has a dot segment",
        ),
        (
            ["claim_check.allowed_prefixes=['file:///']"],
            "claim_check.allowed_prefixes.0",
            "name a folder",
        ),
        (
            ["claim_check.allowed_networks=[10.1.2.3/16]"],
            "claim_check.allowed_networks.0",
            "no network such as",
        ),
        (
            [*CLAIMS, "claim_check.timeout_ms=15000"],
            "claim_check.timeout_ms",
            "lifecycle.revoke_timeout_ms (15000)",
        ),
        ([*CLAIMS, "claim_check.max_bytes=999999999"], "claim_check.max_bytes", "flow.max_bytes"),
        (["claim_check.concurrency=0"], "claim_check.concurrency", ">= 1"),
        (["flow.max_bytes=100"], "flow.max_bytes", "limits.max_record_bytes"),
        (
            ["kafka.rebalance_timeout_ms=15000"],
            "kafka.rebalance_timeout_ms",
            "revoke_timeout_ms (15000)",
        ),
        (
            ["lifecycle.drain_timeout_ms=60000"],
            "kafka.rebalance_timeout_ms",
            "drain_timeout_ms (60000)",
        ),
        (["kafka.heartbeat_interval_ms=4000"], "kafka.heartbeat_interval_ms", "a third"),
        (["kafka.security_protocol=TLS"], "kafka.security_protocol", "PLAINTEXT, SSL"),
        (["kafka.sasl_mechanism=GSSAPI"], "kafka.sasl_mechanism", "PLAIN, SCRAM-SHA-256"),
        (["kafka.sasl_mechanism=PLAIN"], "kafka.sasl_mechanism", "has no effect"),
        (["kafka.ssl_cafile=x"], "kafka.ssl_cafile", "has no effect"),
        (
            ["kafka.security_protocol=SSL", "kafka.ssl_keyfile=x"],
            "kafka.ssl_keyfile",
            "ssl_certfile",
        ),
        (SASL, "kafka.sasl_password", "is needed by security_protocol SASL_SSL"),
        (["kafka.auto_offset_reset=newest"], "kafka.auto_offset_reset", "earliest, latest, none"),
        (["device.decoder=ffmpeg"], "device.decoder", "auto, opencv, dali"),
        (["device.slots=0"], "device.slots", ">= 1"),
        (["device.name=cuda:"], "device.name", "cuda:N"),
        (["log.format=text"], "log.format", "json, console"),
    ],
)
def test_a_value_that_cannot_work_is_explained(
    overrides: list[str], key: str, words: str, tmp_path: Path
) -> None:
    message = refusal(overrides=overrides, at=tmp_path)
    assert f": {key}" in message
    assert words in message


def test_of_two_keys_in_conflict_both_sources_are_named(tmp_path: Path) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text("kafka:\n  heartbeat_interval_ms: 3000\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_settings(file, env={}, overrides=["kafka.session_timeout_ms=6000"])
    message = str(refused.value)
    assert message.startswith(f"{file}:2: kafka.heartbeat_interval_ms = 3000: ")
    assert "(kafka.session_timeout_ms is from --set kafka.session_timeout_ms)" in message


def test_routes_do_not_share_an_input_or_feed_each_other(tmp_path: Path) -> None:
    text = (
        "routes:\n"
        "  - {name: a, input: x, output: o}\n"
        "  - {name: a, input: x, output: o}\n"
        "  - {name: c, input: o, output: p, dead_letter: q}\n"
    )
    message = refusal(text, at=tmp_path)
    assert "my.yaml:3: routes.1.name = 'a': is the name of another route" in message
    assert "my.yaml:3: routes.1.input = 'x': is the input of route a too" in message
    assert "my.yaml:2: routes.0.output = 'o': is the input of route c" in message


def test_routes_may_share_an_output() -> None:
    assert len(load(FRAMELOOM__ROUTES="[{name: a, input: x}, {name: b, input: y}]").routes) == 2


# --- secrets -----------------------------------------------------------------------------------

PASSWORD = "hunter2-#: {*&!%@`"


def test_a_password_is_taken_as_it_is_and_never_shown(tmp_path: Path) -> None:
    settings = load(*SASL, FRAMELOOM__KAFKA__SASL_PASSWORD=PASSWORD)
    assert settings.kafka.sasl_password == PASSWORD
    assert isinstance(settings.kafka.sasl_password, Secret)
    shown = [
        repr(settings),
        str(settings),
        f"{settings}",
        f"{settings.kafka!r}",
        str(describe(settings)),
    ]
    assert not [text for text in shown if "hunter2" in text]
    assert describe(settings)["kafka"]["sasl_password"] == "*" * 3


def test_a_description_is_plain_and_complete() -> None:
    assert describe(Settings()) == msgspec.to_builtins(Settings())
    assert describe(Settings())["kafka"]["sasl_password"] is None


@pytest.mark.parametrize(
    "text",
    [
        "kafka:\n  sasl_password: [hunter2]\n",
        "kafka:\n  sasl_password: {hunter2: 1}\n  x: 1\n",
        "kafka:\n  sasl_password: hunter2\n",
        "kafka:\n  sasl_pasword: hunter2\n",
        "kafka: hunter2\n",
        "kafka: 'sasl_password: hunter2'\n",
        "kafka:\n  sasl_password: *hunter2\n",
        "kafka:\n  sasl_password: !hunter2 x\n",
        "kafka:\n  sasl_password: !hunter2!x y\n",
        "kafka:\n  sasl_password: !<hunter2> y\n",
        "kafka:\n  sasl_password: 'hunter2\n",
        "kafka:\n  sasl_password: hunter2: x\n",
        'kafka:\n  sasl_password: "\\hunter2"\n',
        "kafka:\n  sasl_password: %hunter2\n",
        "kafka:\n  sasl_password: hunter2\n  sasl_password: x\n",
    ],
)
def test_no_refusal_shows_a_password(text: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / "my.yaml", env={})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("override", ["kafka.sasl_pasword=hunter2", "kafka.sasl_password:hunter2"])
def test_no_refused_option_shows_a_password(override: str, tmp_path: Path) -> None:
    assert "hunter2" not in refusal(overrides=[override], at=tmp_path)
    env = {"FRAMELOOM__KAFKA": "{sasl_password: hunter2, x: hunter2}"}
    assert "hunter2" not in refusal(env=env, at=tmp_path)


@pytest.mark.parametrize(
    "override", ["kafka.sasl_password=hunter2", "kafka={sasl_password: hunter2, group_id: g}"]
)
def test_a_password_may_not_be_an_argument(override: str, tmp_path: Path) -> None:
    message = refusal(overrides=[override], at=tmp_path)
    assert message.startswith("--set kafka")
    assert "FRAMELOOM__KAFKA" in message
    assert "kafka.sasl_password_file" in message
    assert "hunter2" not in message


def test_an_argument_may_take_a_password_back() -> None:
    settings = load("kafka.sasl_password=", FRAMELOOM__KAFKA__SASL_PASSWORD=PASSWORD)
    assert settings.kafka.sasl_password is None


def test_a_password_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\r\n".replace("\r\n", "\n"))
    settings = load(*SASL, f"kafka.sasl_password_file={tmp_path}/password")
    assert settings.kafka.sasl_password == PASSWORD
    assert isinstance(settings.kafka.sasl_password, Secret)


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        (None, {}, "No such file"),
        (b"", {}, "is empty"),
        (b"\n", {}, "is empty"),
        (b"\xff", {}, "not UTF-8"),
        (b"x", {"FRAMELOOM__KAFKA__SASL_PASSWORD": "hunter2"}, "keep one"),
    ],
)
def test_a_password_file_that_cannot_serve(
    content: bytes | None, more: dict[str, str], words: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load(*SASL, f"kafka.sasl_password_file={tmp_path}/password", **more)
    assert "--set kafka.sasl_password_file: kafka.sasl_password_file" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_a_text_for_whoever_needs_it() -> None:
    secret = Secret("x")
    assert str(secret) == secret == "x"
    assert secret.encode() == b"x"
    assert repr(KafkaSettings(sasl_password=secret)).count("'***'") == 1


# --- properties --------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(sorted({str(key[-1]) for key in known_keys()})) | st.text(max_size=5)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def only_config_error(**sources: Any) -> None:
    try:
        settings = load_settings(**{"env": {}, **sources})
    except ConfigError as error:
        problem = str(error)
    else:
        assert isinstance(settings, Settings)
        return
    assert problem


@given(st.text(max_size=60))
@example("? [a]\n: b")
@example("a: !!timestamp x")
@example("a: !!bool x")
@example("a: 0x_")
@example("a: " + "9" * 5000)
@example("[" * 1200)
@example("--- a\n--- b")
def test_no_file_raises_anything_else(text: str) -> None:
    try:
        read_yaml(text, "text")
    except ConfigError as error:
        assert str(error).startswith("text")  # noqa: PT017 (it may be read)


@given(
    st.dictionaries(st.sampled_from(list(fields_of(Settings))), TREES), NAMES, st.text(max_size=9)
)
def test_no_settings_raise_anything_else(tree: dict[str, Any], name: str, text: str) -> None:
    env = {
        f"FRAMELOOM__{section.upper()}": yaml.safe_dump(content)
        for section, content in tree.items()
    }
    env[f"FRAMELOOM__KAFKA__{name.upper()}"] = text
    only_config_error(env=env, overrides=[f"routes.0.{name}={text}", f"{name}{text}"])


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 300))
def test_what_is_in_range_is_taken(conf: float, iou: float, max_det: int) -> None:
    route = load(
        f"routes.0.conf={conf:f}", f"routes.0.iou={iou:f}", f"routes.0.max_det={max_det}"
    ).routes[0]
    assert route == RouteSettings(conf=float(f"{conf:f}"), iou=float(f"{iou:f}"), max_det=max_det)
