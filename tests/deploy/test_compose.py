"""The compose stack, as far as it can be judged without Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.footage import STREAMS
from frameloom.topics import topic_specs
from schemas.settings import load_settings
from tests.deploy.compose import (
    OURS,
    ROOT,
    command_of,
    env_file,
    kafka_properties,
    seconds,
    services,
)

ENV_FILES = (ROOT / ".env", ROOT / "deploy" / "gpu.env")
WORKERS = ("worker", "worker-gpu")


def settings_of(service: dict[str, Any]) -> Any:
    """Those that its command and its environment make."""
    words = command_of(service)
    config = ROOT / words[words.index("--config") + 1]
    return load_settings(config, env=service.get("environment", {}))


@pytest.mark.parametrize("env", ENV_FILES, ids=lambda path: path.name)
def test_compose_takes_the_file(env: Path) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("docker-compose not found")
    command = ["docker-compose", "--env-file", str(env), "config", "--quiet"]
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE_", "FRAMELOOM_"))}
    done = subprocess.run(
        command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=3000, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_profile_has_its_worker_and_one_image() -> None:
    for env, worker in zip(ENV_FILES, WORKERS, strict=True):
        variables = env_file(env)
        all_of_it = services(variables)
        assert all_of_it[worker]["profiles"] == [variables["COMPOSE_PROFILES"]]
        assert {all_of_it[name]["image"] for name in OURS} == {
            f"frameloom:{variables['COMPOSE_PROFILES']}"
        }
        extras = all_of_it[worker]["build"]["args"]["EXTRAS"] or ""
        assert extras == variables["FRAMELOOM_EXTRAS"]
    devices = services()["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_few_rights_and_bounds(name: str) -> None:
    service = services()[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["init"] is True
    assert [tmpfs.split(":")[0] for tmpfs in service["tmpfs"]] == ["/tmp"]  # noqa: S108 (in the container)
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert "privileged" not in service


def test_nothing_listens_beyond_this_host() -> None:
    for service in services().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_kafka_is_confined_and_kept() -> None:
    kafka = services()["kafka"]
    name, version = kafka["image"].split(":")
    assert (name, version.count(".")) == ("apache/kafka", 2)
    assert kafka["cap_drop"] == ["ALL"]
    assert kafka["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= kafka.keys()
    assert kafka["volumes"] == [f"kafka:{kafka['environment']['KAFKA_LOG_DIRS']}"]


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_has_time_to_drain_and_is_asked_where_it_answers(name: str) -> None:
    service, settings = services()[name], settings_of(services()[name])
    drain_s = settings.lifecycle.drain_timeout_ms / 1000
    assert drain_s + 5 <= seconds(service["stop_grace_period"])
    assert settings.http.host == "0.0.0.0"  # noqa: S104 # in its container
    assert f"http://127.0.0.1:{settings.http.port}/healthz" in service["healthcheck"]["test"][-1]
    assert service["ports"][0].endswith(f":{settings.http.port}")
    folders = [volume.split(":")[1] for volume in service["volumes"]]
    assert any(settings.lifecycle.journal_dir.startswith(f"{folder}/") for folder in folders)
    assert (ROOT / settings.routes[0].model).is_file()


def test_threads_of_the_model_are_the_containers() -> None:
    worker = services()["worker"]
    assert settings_of(worker).device.model_threads == worker["cpus"]


def test_both_workers_mean_the_same_broker_topics_and_limits() -> None:
    on_cpu, on_gpu = (settings_of(services()[name]) for name in WORKERS)
    for field in ("bootstrap_servers", "group_id"):
        assert getattr(on_cpu.kafka, field) == getattr(on_gpu.kafka, field)
    for field in ("input", "output", "dead_letter"):
        assert getattr(on_cpu.routes[0], field) == getattr(on_gpu.routes[0], field)
    assert on_cpu.limits == on_gpu.limits


def test_the_brokers_record_limit_is_above_every_topics() -> None:
    limits = [
        int(spec.configs["max.message.bytes"])
        for spec in topic_specs(
            settings_of(services()["topics"]), partitions=1, replication=1
        ).values()
    ]
    properties = kafka_properties(services()["kafka"]["environment"])
    assert int(properties["message.max.bytes"]) >= max(limits)
    assert int(properties["replica.fetch.max.bytes"]) >= max(limits)


def test_nothing_starts_before_what_it_needs() -> None:
    needs = {name: service.get("depends_on", {}) for name, service in services().items()}
    for name in ("worker", "worker-gpu", "producer"):
        assert needs[name]["topics"] == {"condition": "service_completed_successfully"}
    for name in OURS:
        assert needs[name]["kafka"] == {"condition": "service_healthy"}
    assert "healthcheck" in services()["kafka"]


def test_the_producer_sends_what_the_image_has() -> None:
    words = command_of(services()["producer"])
    assert [word for word in words if word.startswith("footage/")] == [
        f"footage/{stream}" for stream in STREAMS
    ]
    assert "bench.footage /app/footage" in (ROOT / "deploy" / "Dockerfile").read_text()
