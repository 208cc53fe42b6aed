"""`frameloom doctor`: every check, each with a deadline of its own, whatever the others find."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import msgspec

from frameloom import doctor_broker
from frameloom.doctor_child import CHECKS
from frameloom.doctor_finding import Finding, State, problem, skipped, warning, worst
from frameloom.doctor_machine import machine
from frameloom.doctor_settings import configuration, unreadable
from schemas.errors import ConfigError, FrameloomError
from schemas.settings import Guarantee, Settings
from workers.kafka_facts import BrokerFacts, clock_offset, read_facts, transaction_fault

BROKER_START_S = 8.0
"""How long the first answer of the broker may take; asking it why it refuses takes 5 s more."""
KILL_S = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be looked at.

    Attributes:
        settings: of the worker, or why they cannot be read.
        options: those that lead another command to the same settings and broker.
        write: whether a topic may be made and removed, to compare clocks, and a transactional
            producer started.
        timeout_s: longest time of one check.
    """

    settings: Settings | ConfigError
    options: str
    write: bool
    timeout_s: float


async def diagnose(plan: Plan) -> AsyncIterator[Finding]:
    """Every finding, in the order of the table. Raises nothing for what it finds."""
    children = {
        name: asyncio.ensure_future(_in_process(name, plan))
        for name in CHECKS
        if isinstance(plan.settings, Settings) or name == "opencv"
    }
    try:
        facts: BrokerFacts | None = None
        if isinstance(plan.settings, Settings):
            for finding in configuration(plan.settings):
                yield finding
            facts, found = await _broker(plan, plan.settings)
        else:
            found = [*unreadable(plan.settings), *_without_settings()]
        for finding in (*found, *_machine(plan, facts)):
            yield finding
        for child in children.values():
            for finding in await child:
                yield finding
    finally:
        for child in children.values():
            child.cancel()
        await asyncio.gather(*children.values(), return_exceptions=True)


def _without_settings() -> list[Finding]:
    needs = "needs settings that can be read"
    checks = ("broker", "topics", "limits", "transactions", "clock", "dali", "device", "models")
    return [skipped(check, needs) for check in checks]


def _machine(plan: Plan, facts: BrokerFacts | None) -> Iterable[Finding]:
    # Without settings, the machine is judged by the defaults.
    settings = plan.settings if isinstance(plan.settings, Settings) else Settings()
    inputs = {route.input for route in settings.routes}
    topics = facts.topics if facts is not None else {}
    partitions = sum(topics[name].partitions for name in inputs if name in topics)
    return machine(settings, max(1, partitions))


async def _broker(plan: Plan, settings: Settings) -> tuple[BrokerFacts | None, list[Finding]]:
    names = [t for route in settings.routes for t in (route.input, route.output, route.dead_letter)]
    where = settings.kafka.bootstrap_servers
    try:
        async with asyncio.timeout(plan.timeout_s):
            facts = await read_facts(
                settings.kafka, names, start_timeout_s=min(BROKER_START_S, plan.timeout_s)
            )
    except (FrameloomError, TimeoutError) as error:
        why = str(error) or f"the broker at {where} did not answer in {plan.timeout_s:g} s"
        mend = f"start it or set kafka.bootstrap_servers ({where}); frameloom broker is a small one"
        if isinstance(error, ConfigError):
            mend = "mend the setting named"
        left = ("topics", "limits", "transactions", "clock")
        return None, [problem("broker", why, mend), *(skipped(c, "needs the broker") for c in left)]
    found = [
        *doctor_broker.broker(settings, facts),
        *doctor_broker.topics(settings, facts, plan.options),
        *doctor_broker.limits(settings, facts),
        *await _transactions(plan, settings, facts),
        await _clock(plan, settings),
    ]
    return facts, found


async def _transactions(plan: Plan, settings: Settings, facts: BrokerFacts) -> list[Finding]:
    found = list(doctor_broker.transactions(settings, facts))
    wanted = settings.delivery.guarantee is Guarantee.EXACTLY_ONCE
    if not (wanted and plan.write) or worst(found) is State.PROBLEM:
        return found
    timeout_ms = settings.delivery.produce_timeout_ms
    try:
        async with asyncio.timeout(plan.timeout_s):
            why = await transaction_fault(settings.kafka, timeout_ms=timeout_ms)
    except TimeoutError:
        why = f"no answer in {plan.timeout_s:g} s"
    return [doctor_broker.no_transactions(why)] if why else found


async def _clock(plan: Plan, settings: Settings) -> Finding:
    if not plan.write:
        return skipped(
            "clock",
            "no answer of Kafka's holds the time; a record that the broker stamps does",
            "frameloom doctor --write makes a topic for it, and removes it",
        )
    try:
        async with asyncio.timeout(plan.timeout_s):
            offset = await clock_offset(settings.kafka)
    except (FrameloomError, TimeoutError) as error:
        why = str(error) or f"no answer in {plan.timeout_s:g} s"
        return warning(
            "clock", why, "allow this user to create and delete topics, or compare by hand"
        )
    if offset is None:
        return skipped("clock", "this broker does not stamp records")
    return doctor_broker.clock(*offset)


async def _in_process(name: str, plan: Plan) -> list[Finding]:
    settings = plan.settings if isinstance(plan.settings, Settings) else Settings()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "frameloom.doctor_child", name,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(plan.timeout_s):
            said, noise = await process.communicate(_without_secrets(settings))
    except TimeoutError:
        longer = f"give it longer (--timeout), or see where it stands: {_by_hand(name)}"
        return [problem(name, f"no answer in {plan.timeout_s:g} s", longer)]
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait_for(process.wait(), KILL_S)
    if process.returncode == 0:
        return msgspec.json.decode(said, type=list[Finding])
    return [problem(name, _death(process.returncode or 0, noise), _by_hand(name))]


def _without_secrets(settings: Settings) -> bytes:
    kafka = msgspec.structs.replace(settings.kafka, sasl_password=None)
    return msgspec.json.encode(msgspec.structs.replace(settings, kafka=kafka))


def _death(code: int, noise: bytes) -> str:
    if code < 0:
        return f"the library crashed ({signal.Signals(-code).name})"
    lines = [line for line in noise.decode("utf-8", "replace").splitlines() if line.strip()]
    return f"failed: {lines[-1] if lines else f'exit code {code}'}"


def _by_hand(name: str) -> str:
    imports = {"opencv": "cv2", "dali": "nvidia.dali", "device": "torch", "models": "ultralytics"}
    return f"python -X faulthandler -c 'import {imports[name]}'"
