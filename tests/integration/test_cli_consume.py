"""`topics`, `consume` and `dlq` against a broker, on results and dead letters written by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import pytest

from frameloom.cli import main
from schemas.codec import RawRecord, dead_letter_headers, write_frame, write_result
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding, FrameMessage
from schemas.result import Detection, ResultMessage, Source, Status, Times
from schemas.settings import KafkaSettings
from tests.builders_pictures import oriented, picture
from tests.builders_video import a_segment
from workers.kafka_clients import (
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
    stop_client,
)

pytestmark = pytest.mark.broker

CAR = Detection((4.0, 4.0, 30.0, 24.0), 0.91, 0, "car")


@dataclass(frozen=True, slots=True)
class Record:
    """What to send."""

    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


def send(broker: str, topic: str, *records: Record) -> list[int]:
    """Send to a topic of one partition, made if need be; the offsets."""

    async def go() -> list[int]:
        kafka = KafkaSettings(bootstrap_servers=broker)
        await create_topics(kafka, [TopicSpec(topic)])
        producer = make_producer(kafka)
        await start_client(producer, kafka)
        try:
            return [
                (
                    await producer.send_and_wait(
                        topic, record.value, key=record.key, headers=list(record.headers)
                    )
                ).offset
                for record in records
            ]
        finally:
            await stop_client(producer)

    return asyncio.run(go())


def a_frame(seq: int, data: bytes) -> Record:
    frame = FrameMessage(
        stream_id="cam",
        seq=seq,
        captured_at_us=1_000_000,
        encoding=Encoding.JPEG,
        data=memoryview(data),
    )
    return Record(b"cam", write_frame(frame))


def a_result(
    seq: int, source: Source, status: Status = Status.OK, size: tuple[int, int] = (60, 40)
) -> Record:
    result = ResultMessage(
        stream_id="cam",
        seq=seq,
        captured_at_us=1_000_000,
        status=status,
        width=size[0],
        height=size[1],
        detections=[CAR] if status is Status.OK else [],
        times=Times(
            received_us=1_000_000,
            batched_us=1_010_000,
            started_us=1_011_000,
            finished_us=1_040_000,
            decode_ms=1.0,
            infer_ms=2.0,
            post_ms=0.1,
        ),
        source=source,
    )
    return Record(b"cam", write_result(result))


@pytest.fixture
def frames(unique: Callable[[str], str]) -> str:
    return unique("frames")


@pytest.fixture
def detections(unique: Callable[[str], str]) -> str:
    return unique("detections")


def test_topics_are_created_once_and_listed(
    broker: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [unique("in"), unique("out"), unique("dlq")]
    config = tmp_path / "worker.yaml"
    config.write_text(
        f"kafka: {{bootstrap_servers: '{broker}'}}\n"
        f"routes: [{{name: r, input: {names[0]}, output: {names[1]}, dead_letter: {names[2]}}}]\n"
    )
    assert main(["topics", "list", "-c", str(config), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(t["name"], t["present"]) for t in listed[:3]] == [(name, False) for name in names]
    for created in (True, False):
        assert main(["topics", "create", "-c", str(config), "--json"]) == 0
        done = json.loads(capsys.readouterr().out)
        assert [(t["name"], t["created"]) for t in done] == [(name, created) for name in names]
    assert main(["topics", "list", "-c", str(config), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(t["name"], t["role"], t["present"]) for t in listed[:3]] == [
        (names[0], "input", True),
        (names[1], "output", True),
        (names[2], "dead_letter", True),
    ]
    assert main(["topics", "list", "-c", str(config)]) == 0
    assert main(["topics", "create", "-c", str(config)]) == 0


def test_results_are_json_lines(
    broker: str, detections: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Source("frames", 0, 0)
    send(broker, detections, a_result(0, source), a_result(1, source, Status.EXPIRED))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "2"]
    assert main([*arguments, "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["stream_id"], first["seq"], first["status"]) == ("cam", 0, "ok")
    assert first["detections"] == [
        {"box": [4.0, 4.0, 30.0, 24.0], "score": 0.91, "class_id": 0, "label": "car"}
    ]
    assert (second["status"], second["detections"]) == ("expired", [])


def test_results_are_rows_for_people(
    broker: str, detections: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, detections, a_result(7, Source("frames", 0, 0)))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "1"]
    assert main(arguments) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["stream", "seq", "status"]
    assert row.split()[:6] == ["cam", "7", "ok", "60x40", "1", "car"]


def test_fewer_results_than_asked_for_fail_after_the_timeout(
    broker: str, detections: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, detections, a_result(0, Source("frames", 0, 0)))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--timeout", "0.5"]
    assert main(arguments) == 0
    assert main([*arguments, "--count", "2"]) == 1
    # Without --from-start, what is there already is not shown.
    assert main(["consume", "-t", detections, "-b", broker, "--timeout", "0.5"]) == 0
    assert "0 results" in capsys.readouterr().err


def test_a_record_that_is_no_result_is_named_and_fails(
    broker: str, detections: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, detections, Record(b"k", b"junk"), a_result(1, Source("frames", 0, 0)))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--timeout", "1"]
    assert main([*arguments, "--json"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert f"{detections}/0/0" in said.err


def test_drawing_on_a_segment_decodes_the_very_frame(
    broker: str, frames: str, detections: str, tmp_path: Path
) -> None:
    keys = FrameMessage(
        stream_id="cam", seq=30, captured_at_us=0, encoding=Encoding.MP4,
        data=memoryview(a_segment("mp4", 6, size=(60, 40))),
    )  # fmt: skip
    (offset,) = send(broker, frames, Record(b"cam", write_frame(keys)))
    results = [a_result(30 + n, Source(frames, 0, offset, n, None)) for n in (0, 4, 60)]
    send(broker, detections, *results)
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "3"]
    main([*arguments, "--draw", str(tmp_path)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["cam-00000030.jpg", "cam-00000034.jpg"], "there is no frame 60"
    first, fifth = (cv2.imread(str(tmp_path / name)) for name in names)
    assert first is not None
    assert fifth is not None
    assert first.shape == (40, 60, 3)
    assert (first != fifth).any()


@pytest.mark.parametrize("orientation", [1, 6])
def test_drawing_fetches_the_very_frame(
    broker: str, frames: str, detections: str, tmp_path: Path, orientation: int
) -> None:
    pixels = picture(60, 40)
    pixels[:] = 200
    data = oriented(pixels, Encoding.JPEG, orientation)
    size = (40, 60) if orientation == 6 else (60, 40)
    other = a_frame(0, oriented(picture(24, 24), Encoding.JPEG, 1))
    offsets = send(broker, frames, other, a_frame(1, data), other)
    send(broker, detections, a_result(1, Source(frames, 0, offsets[1]), size=size))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "1"]
    assert main([*arguments, "--draw", str(tmp_path / "drawn")]) == 0
    (path,) = (tmp_path / "drawn").iterdir()
    assert path.name == "cam-00000001.jpg"
    drawn = cv2.imread(str(path))
    assert drawn is not None
    assert drawn.shape[:2] == (size[1], size[0])
    # The box's left side is there, the far corner is as it was.
    assert abs(int(drawn[20, 4].mean()) - 200) > 20
    assert abs(int(drawn[-3, -3].mean()) - 200) < 12


def test_two_frames_of_one_name_are_both_drawn(
    broker: str, frames: str, detections: str, tmp_path: Path
) -> None:
    wide, tall = (a_frame(0, oriented(picture(*size), Encoding.JPEG, 1)) for size in
                  ((60, 40), (40, 60)))  # fmt: skip
    first, second = send(broker, frames, wide, tall)
    once = a_result(0, Source(frames, 0, first))
    # An answer that comes twice is one frame still.
    send(broker, detections, once, a_result(0, Source(frames, 0, second), size=(40, 60)), once)
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "3"]
    assert main([*arguments, "--draw", str(tmp_path)]) == 0
    drawn = {path.name: cv2.imread(str(path)) for path in tmp_path.iterdir()}
    shapes = {name: None if pixels is None else pixels.shape for name, pixels in drawn.items()}
    assert shapes == {
        "cam-00000000.jpg": (40, 60, 3),
        f"cam-00000000-{frames}-0-{second}.jpg": (60, 40, 3),
    }


def test_a_frame_that_is_gone_is_a_note_and_not_a_failure(
    broker: str, frames: str, detections: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, frames, a_frame(0, oriented(picture(24, 24), Encoding.JPEG, 1)))
    gone, expired = Source(frames, 0, 99), Source(frames, 0, 0)
    send(broker, detections, a_result(0, gone), a_result(1, expired, Status.EXPIRED))
    arguments = ["consume", "-t", detections, "-b", broker, "--from-start", "--count", "2"]
    assert main([*arguments, "--json", "--draw", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert f"{frames}/0/99" in said.err
    assert "nothing to draw" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def dead_letters(broker: str, unique: Callable[[str], str]) -> str:
    """A topic of three dead letters: two reasons, two streams."""
    topic = unique("dlq")

    def letter(offset: int, key: bytes, reason: Reason, value: bytes) -> Record:
        record = RawRecord("frames", 0, offset, key, value, 0, (("traceparent", b"00-ab"),))
        error = PoisonError(reason, f"why [bold]{offset}[/bold]", stage="codec")
        headers = dead_letter_headers(error, record, worker="w", at_us=offset, attempts=1)
        return Record(key, value, headers)

    send(
        broker,
        topic,
        letter(0, b"north", Reason.BAD_ENVELOPE, b"first \x00 value"),
        letter(1, b"south", Reason.EMPTY_RECORD, b""),
        letter(2, b"south", Reason.BAD_ENVELOPE, b"x" * 600),
    )
    return topic


@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        ([], [0, 1, 2]),
        (["--reason", "bad_envelope"], [0, 2]),
        (["--stream", "south"], [1, 2]),
        (["--reason", "bad_envelope", "--stream", "south"], [2]),
        (["--limit", "1"], [2]),
        (["--reason", "crash_nobody_knows"], None),
    ],
)
def test_dead_letters_are_listed_and_filtered(
    broker: str,
    dead_letters: str,
    filters: list[str],
    offsets: list[int] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["dlq", "list", "-t", dead_letters, "-b", broker, *filters]
    assert main([*arguments, "--json"]) == (2 if offsets is None else 0)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["offset"] for line in lines] == (offsets or [])
    if offsets is not None:
        assert main(arguments) == 0


def test_one_dead_letter_is_shown_and_saved(
    broker: str, dead_letters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "value.bin"
    where = f"{dead_letters}/0/0"
    assert main(["dlq", "show", where, "-b", broker, "--out", str(saved)]) == 0
    said = capsys.readouterr().out
    assert saved.read_bytes() == b"first \x00 value"
    for part in ("bad_envelope", "frames/0/0", "north", "traceparent: 00-ab", "66 69 72 73 74"):
        assert part in said
    assert "why [bold]0[/bold]" in said
    assert main(["dlq", "show", f"{dead_letters}/0/2", "-b", broker, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["letter"]["nbytes"] == 600


def test_what_a_producer_chose_makes_no_lines_of_its_own(
    broker: str, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    topic = unique("dlq")
    send(broker, topic, Record(b"cam\nreason: none", b"value", (("trace", b"a\nkey: b"),)))
    assert main(["dlq", "show", f"{topic}/0/0", "-b", broker]) == 0
    shown = capsys.readouterr()
    assert "no dead letter" in shown.err
    lines = shown.out.splitlines()
    assert r"key: cam\nreason: none" in lines
    assert r"header trace: a\nkey: b" in lines


def test_a_dead_letter_that_is_not_there_fails(
    broker: str, dead_letters: str, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "show", f"{dead_letters}/0/55", "-b", broker]) == 1
    assert "0/55" in capsys.readouterr().err
    assert main(["dlq", "show", f"{unique('none')}/0/0", "-b", broker]) == 2
    capsys.readouterr()
    assert main(["dlq", "show", f"{dead_letters}/7/0", "-b", broker]) == 2
    assert "has no partition 7, but 0" in capsys.readouterr().err


def test_the_picture_of_a_dead_letter_is_saved(
    broker: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, data, saved = unique("dlq"), b"\xff\xd8\xff\xe0 cut short", tmp_path / "picture.jpg"
    send(broker, topic, a_frame(0, data), Record(b"cam", b"no frame"))
    assert main(["dlq", "show", f"{topic}/0/0", "-b", broker, "--picture", str(saved)]) == 0
    assert saved.read_bytes() == data
    assert main(["dlq", "show", f"{topic}/0/1", "-b", broker, "--picture", str(saved)]) == 1
    assert "picture" in capsys.readouterr().err
