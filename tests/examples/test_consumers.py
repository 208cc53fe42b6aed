"""Each example consumer on results that the worker's codec wrote; the toolchains that are missing
are skipped by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from schemas.result import Status
from tests.examples.builds import CONSUMERS, MissingToolError, built
from tests.examples.kit import CAR, PERSON, committed, result, run, send, with_keys

# It is built first, once on a machine: minutes, on a busy core many.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(3_600)]

FAR_STREAM, LAST_SEQ = "höhe 北", 2**64 - 1
SHOWN = [
    "gate 7 ok car 0.91 [4.0, 8.5, 30.0, 24.3] person 0.50 [0.0, 1.0, 12.0, 40.0]",
    f"{FAR_STREAM} {LAST_SEQ} ok person 0.50 [0.0, 1.0, 12.0, 40.0]",
    "gate 8 expired",
]


@pytest.mark.parametrize("language", CONSUMERS)
def test_a_consumer_shows_what_it_knows_and_stops_at_what_it_does_not(
    real_kafka: str, unique: Callable[[str], str], language: str
) -> None:
    example = CONSUMERS[language]
    try:
        folder = built(example)
    except MissingToolError as missing:
        pytest.skip(f"the {language} consumer: {missing}")
    topic, group = unique("detections"), unique("group")
    send(
        real_kafka,
        topic,
        result(7, CAR, PERSON),
        with_keys(result(LAST_SEQ, PERSON, stream=FAR_STREAM), track={"id": 5}),
        result(8, status=Status.EXPIRED),
        with_keys(result(9), v=2, stream_id=17, detections="elsewhere"),
    )
    options = ("--bootstrap", real_kafka, "--topic", topic, "--group", group)

    some = run(example.start, folder, *options, "--count", "3")
    assert (some.returncode, some.stdout.splitlines()) == (0, SHOWN), some.stderr
    assert committed(real_kafka, topic, group) == 3

    rest = run(example.start, folder, *options)
    assert (rest.returncode, rest.stdout) == (1, "")
    assert f"{topic}/0/3 is of version 2" in rest.stderr
    assert committed(real_kafka, topic, group) == 3


def test_a_missing_toolchain_is_named() -> None:
    lacking = dataclasses.replace(CONSUMERS["node"], tools=("node-of-nowhere", "npm-of-nowhere"))
    with pytest.raises(MissingToolError, match=r"^node-of-nowhere/npm-of-nowhere not found$"):
        built(lacking)
