"""The doctor goes through all of its checks, whatever they meet."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from frameloom import doctor
from frameloom.cli import main
from frameloom.doctor import Plan, diagnose
from frameloom.doctor_finding import Finding, State
from schemas.errors import ConfigError
from schemas.settings import HttpSettings, KafkaSettings, Secret, Settings

NOWHERE = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"), http=HttpSettings(port=0))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs in place of the interpreter for checks in processes of their own."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'print(\"[]\")'\n")
    script.chmod(0o700)
    monkeypatch.setattr(doctor.sys, "executable", str(script))
    return script


async def found(settings: Settings | ConfigError, timeout_s: float = 60.0) -> dict[str, Finding]:
    plan = Plan(settings, "", write=False, timeout_s=timeout_s)
    return {finding.check: finding async for finding in diagnose(plan)}


def says(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\ncat > /dev/null\n{text}\n")


async def test_a_dead_broker_costs_the_checks_that_need_it_and_no_other(stand_in: Path) -> None:
    seen = await found(NOWHERE)
    assert seen["broker"].state is State.PROBLEM
    assert "127.0.0.1:1" in seen["broker"].remedy
    for check in ("topics", "limits", "transactions", "clock"):
        assert seen[check].state is State.SKIPPED
    assert {"configuration", "cpu", "memory", "disk", "journal", "http"} <= seen.keys()


async def test_a_broker_that_never_answers_costs_its_deadline(stand_in: Path) -> None:
    async def mute(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = msgspec.structs.replace(
        NOWHERE, kafka=KafkaSettings(bootstrap_servers=f"127.0.0.1:{port}")
    )
    try:
        seen = await found(settings, timeout_s=0.5)
    finally:
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    assert seen["broker"].state is State.PROBLEM
    assert "cpu" in seen


async def test_settings_that_cannot_be_read(stand_in: Path) -> None:
    seen = await found(ConfigError("c.yaml:1: x: unknown key"))
    assert (seen["configuration"].state, seen["broker"].state) == (State.PROBLEM, State.SKIPPED)
    assert seen["cpu"].state is not State.SKIPPED, "the machine is looked at all the same"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kill -SEGV $$", "crashed (SIGSEGV)"),
        ("echo ImportError: no such thing >&2; exit 1", "failed: ImportError: no such thing"),
        ("exit 3", "failed: exit code 3"),
        ("sleep 60", "no answer in 0.3 s"),
    ],
)
async def test_a_library_that_crashes_fails_or_hangs_is_one_finding(
    text: str, words: str, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"dali": doctor.CHECKS["dali"]})
    says(stand_in, f"exec {text}" if text.startswith("sleep") else text)
    seen = await found(NOWHERE, timeout_s=0.3 if "0.3" in words else 60.0)
    assert (seen["dali"].state, words in seen["dali"].found) == (State.PROBLEM, True), seen["dali"]
    assert "nvidia.dali" in seen["dali"].remedy
    assert ("--timeout" in seen["dali"].remedy) == ("no answer" in words)


async def test_secrets_stay_here() -> None:
    kafka = KafkaSettings(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="u",
        sasl_password=Secret("hunter2"),
    )  # fmt: skip
    sent = doctor._without_secrets(Settings(kafka=kafka))
    assert b"hunter2" not in sent
    assert msgspec.json.decode(sent, type=Settings).kafka.sasl_username == "u"


def test_the_command_ends_with_what_it_found(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("http: {port: 0}\n")
    assert main(["doctor", "-c", str(file), "-b", "127.0.0.1:1", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["state"] == "problem"
    assert {"check", "state", "found", "remedy"} == report["findings"][0].keys()

    file.write_text("flows: {}\nkafka: {group: x}\n")
    assert main(["doctor", "-c", str(file)]) == 2
    said = capsys.readouterr().out
    assert "did you mean flow" in said
    assert "problem" in said


def test_the_real_child_answers(capfd: pytest.CaptureFixture[str]) -> None:
    async def one() -> list[Finding]:
        return await doctor._in_process(
            "opencv", Plan(Settings(), "", write=False, timeout_s=600.0)
        )

    (finding,) = asyncio.run(one())
    assert (finding.check, finding.state) == ("opencv", State.OK)
