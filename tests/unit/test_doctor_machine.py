"""The machine and the settings as the doctor sees them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from frameloom import doctor_machine
from frameloom.doctor_finding import Finding, State, ok, skipped, warning, worst
from frameloom.doctor_machine import cores, disk, journal, memory, port
from frameloom.doctor_settings import configuration, unreadable
from schemas.errors import ConfigError
from schemas.settings import (
    ClaimCheckSettings,
    DeliverySettings,
    DeviceSettings,
    FlowSettings,
    HttpSettings,
    KafkaSettings,
    LifecycleSettings,
    Settings,
)


def a_cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def ill(settings: Settings) -> Finding:
    (found,) = [f for f in configuration(settings) if f.state is not State.OK]
    return found


def test_states_have_a_worst() -> None:
    assert worst([]) is worst([skipped("a", "b")]) is State.OK
    assert worst([ok("a", "b"), warning("a", "b", "c"), skipped("a", "b")]) is State.WARNING


def test_the_defaults_are_well(tmp_path: Path) -> None:
    assert {f.state for f in configuration(Settings())} == {State.OK}
    assert cores(Settings(), tmp_path).state is State.OK


def test_settings_that_cannot_be_read_are_a_finding_a_line() -> None:
    found = list(unreadable(ConfigError("c.yaml:3: a.b: unknown key\nc.yaml:9: c.d: is missing")))
    assert [f.found for f in found] == ["c.yaml:3: a.b: unknown key", "c.yaml:9: c.d: is missing"]
    assert {f.state for f in found} == {State.PROBLEM}


@pytest.mark.parametrize(
    ("settings", "words", "remedy"),
    [
        (
            Settings(device=DeviceSettings(stage_timeout_ms=70_000)),
            "taken for a stall", "at most 60000",
        ),
        (
            Settings(delivery=DeliverySettings(produce_timeout_ms=120_000)),
            "before it sends again", "below 120000",
        ),
        (
            Settings(kafka=KafkaSettings(max_poll_interval_ms=30_000)),
            "dropped for not polling", "at least 60000",
        ),
        (
            Settings(
                claim_check=ClaimCheckSettings(enabled=True, allowed_prefixes=["http://h/x"])
            ),
            "not encrypted", "https",
        ),
        (
            Settings(
                claim_check=ClaimCheckSettings(enabled=True, allowed_prefixes=["file:///no/where"])
            ),
            "not there", "/no/where",
        ),
        (
            Settings(claim_check=ClaimCheckSettings(enabled=True, allowed_prefixes=["oss://b"])),
            "needs the package ossfs", "pip install ossfs",
        ),
    ],
)  # fmt: skip
def test_settings_that_work_against_themselves(settings: Settings, words: str, remedy: str) -> None:
    found = ill(settings)
    assert words in found.found
    assert remedy in found.remedy


def test_claims_that_can_be_fetched(tmp_path: Path) -> None:
    prefixes = [tmp_path.as_uri(), "https://h/x", "memory://m"]
    settings = Settings(claim_check=ClaimCheckSettings(enabled=True, allowed_prefixes=prefixes))
    found = {f.check: f for f in configuration(settings)}
    assert found["claim_check"].state is State.OK


def test_a_container_with_less_than_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    found = cores(Settings(), a_cgroup(tmp_path, cpu_max="200000 100000"))
    assert (found.state, "to 2" in found.remedy) == (State.WARNING, True)
    assert cores(Settings(), a_cgroup(tmp_path, cpu_max="max 100000")).state is State.OK
    many = Settings(device=DeviceSettings(decode_threads=40))
    assert "ask for 40 threads" in cores(many, tmp_path).found


def test_memory_that_does_not_hold_what_may_be_in_flight(tmp_path: Path) -> None:
    gib = 1 << 30
    cgroup = a_cgroup(tmp_path, memory_max=str(2 * gib), memory_current=str(gib))
    settings = Settings(flow=FlowSettings(max_bytes=gib))
    found = memory(settings, 4, cgroup)
    assert (found.state, found.found.startswith("1.0 GiB free")) == (State.WARNING, True)
    assert f"flow.max_bytes to {gib // 4}" in found.remedy
    roomy = a_cgroup(tmp_path, memory_max="max", memory_current="0")
    assert memory(Settings(flow=FlowSettings(max_bytes=9 << 20)), 1, roomy).check == "memory"


def test_the_journals_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(folder: Path) -> Finding:
        return journal(Settings(lifecycle=LifecycleSettings(journal_dir=str(folder))))

    assert judged(tmp_path / "not" / "yet").state is State.OK
    assert not (tmp_path / "not").exists(), "nothing is made"
    (tmp_path / "file").write_text("x")
    assert "is a file" in judged(tmp_path / "file").found

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor_machine.tempfile, "TemporaryFile", refuse)
    found = judged(tmp_path)
    assert (found.state, "Permission denied" in found.found) == (State.PROBLEM, True)
    assert "lifecycle.journal_dir" in found.remedy


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(lifecycle=LifecycleSettings(journal_dir=str(tmp_path)))
    doctor_machine.journal_folder(settings).mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    found = journal(settings)
    assert (found.state, "chown -R 4242" in found.remedy) == (State.PROBLEM, True)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(lifecycle=LifecycleSettings(journal_dir=str(tmp_path)))
    assert disk(settings).check == "disk"
    monkeypatch.setattr(doctor_machine, "FREE_DISK_BYTES", 1 << 60)
    assert disk(settings).state is State.WARNING


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        found = port(Settings(http=HttpSettings(port=number)))
        assert (found.state, "http.port: 0" in found.remedy) == (State.PROBLEM, True)
    assert port(Settings(http=HttpSettings(port=0))).state is State.SKIPPED
    assert port(Settings(http=HttpSettings(enabled=False))).state is State.SKIPPED
