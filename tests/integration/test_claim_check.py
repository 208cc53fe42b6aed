"""Claims through a worker on a broker: fetched, refused, slow, and in order."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path

import msgspec
import pytest

from pipeline import metrics as m
from schemas.errors import Reason
from schemas.frame import Claim, Encoding
from schemas.result import Status
from schemas.settings import ClaimCheckSettings, DeliverySettings, Guarantee
from tests.assertions import each_once
from tests.builders_video import a_segment
from tests.fakes import hostile_http as http
from tests.fakes.hostile_http import hostile_server
from tests.integration.kit import (
    DEADLINE_S,
    SMALL,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    a_worker,
    envelope,
    running,
    sources,
    until,
)
from workers.lifecycle import WorkerState

pytestmark = pytest.mark.broker

JPEG = a_jpeg()


def with_claims(bench: Bench, **claims: object) -> Bench:
    chosen = ClaimCheckSettings(enabled=True, **claims)
    return Bench(msgspec.structs.replace(bench.settings, claim_check=chosen))


def a_claim(stream: str, seq: int, uri: str, data: bytes = JPEG, **fields: object) -> Sent:
    claim = Claim(uri=uri, sha256=hashlib.sha256(data).hexdigest(), length=len(data))
    return Sent(envelope(stream, seq, claim=claim, **fields), key=stream.encode())


def once(released: asyncio.Event) -> http.Answer:
    """The picture, but not before that."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await released.wait()
        await http.body(JPEG)(writer)

    return answer


async def test_claims_are_answered_among_frames_in_order(
    broker: str, unique: Unique, tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG)
    async with hostile_server() as server:
        server.paths["/ok/a.jpg"] = [http.body(b"", status="503 Busy"), http.body(JPEG)]
        server.paths["/ok/gone"] = http.redirect("http://169.254.169.254/latest/meta-data")
        url = partial(server.url, host="127.0.0.1")
        bench = with_claims(
            await a_bench(broker, unique),
            allowed_prefixes=[url("/ok"), tmp_path.as_uri()],
            allowed_networks=["127.0.0.1"],
        )
        sent = await bench.send(
            a_claim("cam", 0, url("/ok/a.jpg")),
            Sent(envelope("cam", 1), key=b"cam"),
            a_claim("cam", 2, (tmp_path / "a.jpg").as_uri()),
            a_claim("cam", 3, url("/ok/gone")),
            a_claim("cam", 4, url("/ok/absent")),
            a_claim("cam", 5, (tmp_path / "a.jpg").as_uri(), JPEG + b"x"),
            a_claim("cam", 6, "http://10.0.0.1/a.jpg"),
            Sent(envelope("cam", 7), key=b"cam"),
        )
        worker = a_worker(bench)
        async with running(worker):
            results = await bench.results(4)
            letters = await bench.dead_letters(4)
    each_once(sources(results), [sent[n] for n in (0, 1, 2, 7)])
    assert [r.seq for r in results] == [0, 1, 2, 7]
    assert {(r.status, r.width) for r in results} == {(Status.OK, SMALL[0])}
    reasons = [dict(letter.headers)["fl-reason"].decode() for letter in letters]
    assert reasons == [
        Reason.CLAIM_REFUSED, Reason.CLAIM_MISSING, Reason.CLAIM_MISMATCH, Reason.CLAIM_REFUSED,
    ]  # fmt: skip
    assert b"data" not in msgspec.msgpack.decode(letters[0].value), "the claim, not the picture"
    assert await bench.committed() == 8
    assert worker.metrics.total(m.RECEIVED) == 8


async def test_a_slow_claim_holds_its_stream_and_nobody_else(broker: str, unique: Unique) -> None:
    release = asyncio.Event()
    async with hostile_server() as server:
        server.paths["/slow"] = once(release)
        uri = server.url("/slow", "127.0.0.1")
        bench = with_claims(
            await a_bench(broker, unique),
            allowed_prefixes=[uri], allowed_networks=["127.0.0.0/8"],
        )  # fmt: skip
        frames = [Sent(envelope(s, n), key=s.encode()) for n in (1, 2) for s in ("held", "free")]
        await bench.send(a_claim("held", 0, uri), *frames)
        async with running(a_worker(bench)):
            free = await bench.results(2)
            assert [(r.stream_id, r.seq) for r in free] == [("free", 1), ("free", 2)]
            assert await bench.committed() in (None, 0), "nothing past the claim"
            release.set()
            held = (await bench.results(5))[2:]
        assert [(r.stream_id, r.seq) for r in held] == [("held", n) for n in range(3)]


async def test_a_claim_that_hangs_is_left_to_the_next_worker(broker: str, unique: Unique) -> None:
    async with hostile_server() as server:
        server.paths["/a"] = [http.silent, http.body(JPEG)]
        uri = server.url("/a", "127.0.0.1")
        bench = with_claims(
            await a_bench(broker, unique),
            allowed_prefixes=[uri], allowed_networks=["127.0.0.1"],
        )  # fmt: skip
        lifecycle = msgspec.structs.replace(bench.settings.lifecycle, drain_timeout_ms=300)
        hasty = Bench(msgspec.structs.replace(bench.settings, lifecycle=lifecycle))
        await bench.send(a_claim("cam", 0, uri))
        worker = a_worker(hasty)
        task = asyncio.ensure_future(worker.run())
        await until(lambda: server.asked["/a"] == 1)
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            assert await task == 1, "it could not settle what it had"
        assert await bench.committed() in (None, 0)
        async with running(a_worker(bench)):
            (result,) = await bench.results(1)
        assert (result.seq, result.status) == (0, Status.OK)


async def test_a_claim_under_way_is_settled_when_the_worker_drains(
    broker: str, unique: Unique
) -> None:
    release = asyncio.Event()
    async with hostile_server() as server:
        server.paths["/slow"] = once(release)
        uri = server.url("/slow", "127.0.0.1")
        bench = with_claims(
            await a_bench(broker, unique), allowed_prefixes=[uri], allowed_networks=["127.0.0.1"]
        )
        await bench.send(a_claim("cam", 0, uri))
        worker = a_worker(bench)
        async with running(worker):
            await until(lambda: server.asked["/slow"] == 1)
            worker.request_stop()
            await until(lambda: worker.state is WorkerState.DRAINING)
            await asyncio.sleep(0.05)
            release.set()
        assert [result.status for result in await bench.results(1)] == [Status.OK]
        assert await bench.committed() == 1


async def test_exactly_once_holds_for_claims(
    real_kafka: str, unique: Unique, tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG)
    bench = with_claims(
        await a_bench(
            real_kafka, unique, delivery=DeliverySettings(guarantee=Guarantee.EXACTLY_ONCE)
        ),
        allowed_prefixes=[tmp_path.as_uri()],
    )
    here, absent = (tmp_path / "a.jpg").as_uri(), (tmp_path / "b.jpg").as_uri()
    await bench.send(*(a_claim(f"s{n % 3}", n, absent if n % 5 == 4 else here) for n in range(20)))
    async with running(a_worker(bench)):
        results = await bench.results(16)
        letters = await bench.dead_letters(4)
    assert [r.seq for r in results] == [n for n in range(20) if n % 5 != 4]
    assert len(letters) == 4
    assert await bench.committed() == 20


async def test_a_segment_may_be_claimed(broker: str, unique: Unique, tmp_path: Path) -> None:
    video = a_segment("mp4", 5)
    (tmp_path / "a.mp4").write_bytes(video)
    bench = with_claims(await a_bench(broker, unique), allowed_prefixes=[tmp_path.as_uri()])
    here, absent = (tmp_path / "a.mp4").as_uri(), (tmp_path / "b.mp4").as_uri()
    await bench.send(
        a_claim("cam", 0, here, video, encoding=Encoding.MP4),
        Sent(envelope("cam", 5), key=b"cam"),
        a_claim("cam", 6, absent, video, encoding=Encoding.MP4),
        Sent(envelope("cam", 11), key=b"cam"),
    )
    async with running(a_worker(bench)):
        results = await bench.results(7)
        (letter,) = await bench.dead_letters(1)
    assert [r.seq for r in results] == [*range(5), 5, 11]
    assert [r.source.frames for r in results[:5]] == [None] * 4 + [5]
    assert dict(letter.headers)["fl-reason"] == Reason.CLAIM_MISSING.encode()
    assert await bench.committed() == 4
