"""Claims against a server that does all it should not, and stores that are not hosts."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import fsspec
import pytest

from pipeline.retry import Backoff
from schemas.errors import ConfigError, PoisonError, Reason
from schemas.frame import Claim
from schemas.settings import ClaimCheckSettings
from tests.fakes import hostile_http as http
from tests.fakes.hostile_http import HostileServer, hostile_server
from tests.rig.certificates import Authority, missing_openssl
from workers import claim_fetch, claim_files
from workers.claim_fetch import ClaimFetcher, claim_rules
from workers.claim_threads import ClaimThreads

DATA = bytes(range(256)) * 4


def a_claim(uri: str, data: bytes = DATA, **changes: object) -> Claim:
    known: dict[str, object] = {
        "uri": uri, "sha256": hashlib.sha256(data).hexdigest(), "length": len(data),
    }  # fmt: skip
    return Claim(**(known | changes))


class Resolver:
    """Names that mean what the test says; `looked_up` counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers or (["127.0.0.1"],))
        self.looked_up = 0

    async def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.looked_up += 1
        return self.answers[min(self.looked_up, len(self.answers)) - 1]


class Shop:
    """A server, and a fetcher that is allowed to go there."""

    def __init__(self, server: HostileServer, resolver: Resolver, **settings: object) -> None:
        self.server = server
        self.resolver = resolver
        known: dict[str, object] = {
            "enabled": True, "allowed_prefixes": [server.url("/ok")], "timeout_ms": 120_000,
            "allowed_networks": ["127.0.0.1"], "retries": 2,
        }  # fmt: skip
        chosen = ClaimCheckSettings(**(known | settings))
        self.turns = 0
        self.fetcher = ClaimFetcher(
            chosen, claim_rules(chosen), clock=time.monotonic, resolve=resolver
        )

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self.turns += 1
        yield

    async def fetch(self, claim: Claim | str) -> bytes:
        if isinstance(claim, str):
            claim = a_claim(self.server.url(claim))
        return bytes(await self.fetcher.fetch(claim, self.turn))

    async def refusal(self, claim: Claim | str) -> PoisonError:
        with pytest.raises(PoisonError) as caught:
            await self.fetch(claim)
        assert caught.value.stage == "claim"
        return caught.value


@asynccontextmanager
async def a_shop(*addresses: Sequence[str], **settings: object) -> AsyncIterator[Shop]:
    async with hostile_server() as server:
        shop = Shop(server, Resolver(*addresses), **settings)
        try:
            yield shop
        finally:
            await shop.fetcher.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_fetch, "BACKOFF", Backoff(0.001, 0.001, lambda: 0.0))


async def test_the_bytes_come_as_they_are() -> None:
    async with a_shop() as shop:
        shop.server.paths["/ok/a?sig=1%2F2"] = http.body(DATA)
        shop.server.paths["/ok/chunked"] = http.chunked(DATA[:7], DATA[7:])
        shop.server.paths["/ok/zip"] = http.body(DATA, more="Content-Encoding: gzip\r\n")
        assert await shop.fetch("/ok/a?sig=1%2F2") == DATA
        assert await shop.fetch("/ok/chunked") == DATA
        assert await shop.fetch("/ok/zip") == DATA, "never unpacked: the digest is of what was sent"
        got = await shop.fetcher.fetch(a_claim(shop.server.url("/ok/chunked")), shop.turn)
        assert got.readonly
        head = shop.server.requests[0].lower()
        assert f"host: store.test:{shop.server.port}\r\n" in head
        assert "accept-encoding: identity\r\n" in head


@pytest.mark.parametrize(
    ("answer", "claimed", "why"),
    [
        (http.body(DATA), {"sha256": "0" * 64}, "sha256"),
        (http.body(DATA[:-1]), {}, "1023 bytes"),
        (http.body(DATA + b"x"), {}, "1025 bytes"),
        (http.body(DATA, length=1 << 60), {}, "bytes, length is"),
        (http.chunked(DATA, b"x"), {}, "more than the 1024"),
        (http.chunked(DATA[:-1]), {}, "1023 bytes"),
        (http.chunked(end=False), {}, "more than the 1024"),
    ],
)
async def test_other_bytes_are_a_mismatch(
    answer: http.Answer, claimed: dict[str, object], why: str
) -> None:
    async with a_shop() as shop:
        shop.server.paths["/ok/a"] = answer
        error = await shop.refusal(a_claim(shop.server.url("/ok/a"), **claimed))
        assert (error.code, shop.server.asked["/ok/a"]) == (Reason.CLAIM_MISMATCH, 1)
        assert why in error.detail


@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden", "410 Gone", "204 No Content"])
async def test_what_is_not_handed_out_is_missing_at_once(status: str) -> None:
    async with a_shop() as shop:
        shop.server.paths["/ok/a"] = http.body(b"", status=status)
        error = await shop.refusal("/ok/a")
        assert (error.code, shop.server.asked["/ok/a"]) == (Reason.CLAIM_MISSING, 1)


@pytest.mark.parametrize(
    "trouble",
    [
        http.reset,
        http.nonsense,
        http.body(b"", status="503 Busy"),
        http.body(b"", status="429 Slow Down"),
        http.body(DATA[:9], length=len(DATA)),
    ],
)
async def test_what_may_pass_is_tried_again(trouble: http.Answer) -> None:
    async with a_shop() as shop:
        shop.server.paths["/ok/a"] = [trouble, trouble, http.body(DATA)]
        assert await shop.fetch("/ok/a") == DATA
        shop.server.paths["/ok/b"] = trouble
        error = await shop.refusal("/ok/b")
        assert (error.code, shop.server.asked["/ok/b"]) == (Reason.CLAIM_FAILED, 3)
        assert "3 attempts" in error.detail
        assert shop.turns == 6, "each attempt has a turn of its own"


@pytest.mark.parametrize("answer", [http.silent, http.trickle])
async def test_a_host_that_keeps_us_waiting(answer: http.Answer) -> None:
    async with a_shop(timeout_ms=100) as shop:
        shop.server.paths["/ok/a"] = answer
        error = await shop.refusal("/ok/a")
        assert error.code is Reason.CLAIM_TIMEOUT
        assert shop.server.asked["/ok/a"] <= 1, "not again: the time is up"
        assert "claim_check.timeout_ms (100)" in error.detail


async def test_attempts_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_shop(timeout_ms=100_000, retries=20) as shop:
        shop.server.paths["/ok/a"] = http.body(b"", status="500 No")
        ticks = iter(range(1_000))
        monkeypatch.setattr(shop.fetcher, "_clock", lambda: next(ticks) * 30.0)
        error = await shop.refusal("/ok/a")
        assert (error.code, shop.server.asked["/ok/a"]) == (Reason.CLAIM_TIMEOUT, 4)


async def test_redirects_stay_within_the_rules() -> None:
    async with a_shop() as shop:
        paths, url = shop.server.paths, shop.server.url
        paths["/ok/a"] = http.redirect("b")
        paths["/ok/b"] = http.redirect(url("/ok/c"), "308 Permanent Redirect")
        paths["/ok/c"] = http.body(DATA)
        assert await shop.fetch("/ok/a") == DATA
        paths["/ok/loop"] = http.redirect("/ok/loop")
        for to in (
            url("/secret"), "../secret", url("/ok/c", "other.test"), "//169.254.169.254/latest/",
            "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "http://[", "",
            f"http://store.test:{shop.server.port}@169.254.169.254/ok/",
        ):  # fmt: skip
            paths["/ok/out"] = http.redirect(to)
            error = await shop.refusal("/ok/out")
            # An empty target is the same place again.
            assert error.code is Reason.CLAIM_REFUSED, to
        error = await shop.refusal("/ok/loop")
        assert (error.code, shop.server.asked["/ok/loop"]) == (Reason.CLAIM_REFUSED, 4)


async def test_a_redirect_to_an_allowed_name_is_judged_by_its_address() -> None:
    async with hostile_server() as server:
        prefixes = [server.url("/ok"), "http://metadata.test/"]
        resolver = Resolver(["127.0.0.1"], ["169.254.169.254"])
        shop = Shop(server, resolver, allowed_prefixes=prefixes)
        server.paths["/ok/a"] = http.redirect("http://metadata.test/latest")
        error = await shop.refusal("/ok/a")
        assert error.code is Reason.CLAIM_REFUSED
        assert "metadata" in error.detail
        await shop.fetcher.close()


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.0.0.1"], ["::1"], ["169.254.169.254"], ["::ffff:169.254.169.254"],
        ["127.0.0.1", "10.0.0.1"],
    ],
)  # fmt: skip
async def test_an_address_that_is_not_allowed_is_not_connected_to(addresses: list[str]) -> None:
    async with a_shop(addresses) as shop:
        error = await shop.refusal("/ok/a")
        assert error.code is Reason.CLAIM_REFUSED
        assert "claim_check.allowed_networks" in error.detail
        assert (shop.resolver.looked_up, shop.server.requests) == (1, [])


async def test_loopback_is_not_public() -> None:
    async with a_shop(allowed_networks=[]) as shop:
        assert (await shop.refusal("/ok/a")).code is Reason.CLAIM_REFUSED


async def test_a_name_that_changes_its_mind_is_asked_once() -> None:
    """DNS rebinding: the address that was judged is the one that is connected to."""
    async with a_shop(["127.0.0.1"], ["169.254.169.254"]) as shop:
        shop.server.paths["/ok/a"] = http.body(DATA)
        assert await shop.fetch("/ok/a") == DATA
        assert shop.resolver.looked_up == 1


async def test_a_host_is_tried_by_each_of_its_addresses() -> None:
    async with a_shop(["127.0.0.2", "127.0.0.1"], allowed_networks=["127.0.0.0/8"]) as shop:
        shop.server.paths["/ok/a"] = http.body(DATA)
        assert await shop.fetch("/ok/a") == DATA


async def test_nobody_at_home() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with a_shop(allowed_prefixes=[f"http://store.test:{port}/"]) as shop:
        error = await shop.refusal(a_claim(f"http://store.test:{port}/x"))
        assert (error.code, shop.turns) == (Reason.CLAIM_FAILED, 3)


async def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    chosen = ClaimCheckSettings(enabled=True, allowed_prefixes=["https://store.test/"], retries=0)
    fetcher = ClaimFetcher(chosen, claim_rules(chosen), clock=time.monotonic)
    shop = Shop(HostileServer(), Resolver())
    with pytest.raises(PoisonError, match="cannot be looked up") as caught:
        await fetcher.fetch(a_claim("https://store.test/x"), shop.turn)
    assert caught.value.code is Reason.CLAIM_FAILED
    await fetcher.close()


async def test_rules_come_before_everything() -> None:
    async with a_shop(max_bytes=1_000) as shop:
        assert (await shop.refusal("/ok/a")).code is Reason.CLAIM_TOO_LARGE
        assert (await shop.refusal("/no/a")).code is Reason.CLAIM_REFUSED
        bad = await shop.refusal(a_claim("http://h/%2e%2e/"))
        assert "dot segment" in bad.detail
        assert (shop.turns, shop.server.requests) == (0, [])
    off = ClaimCheckSettings(allowed_prefixes=["http://store.test/"])
    with pytest.raises(PoisonError, match="claims are off here"):
        claim_rules(off).check(a_claim("http://store.test/"))


def test_a_certificate_file_that_is_none(tmp_path: Path) -> None:
    for content in (None, b"no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_bytes(content)
        chosen = ClaimCheckSettings(
            enabled=True, allowed_prefixes=["https://h/"], ssl_cafile=str(file)
        )
        with pytest.raises(ConfigError, match=r"claim_check\.ssl_cafile"):
            ClaimFetcher(chosen, claim_rules(chosen), clock=time.monotonic)


# --- files and objects -------------------------------------------------------------------------


def a_folder_shop(folder: Path, **settings: object) -> Shop:
    prefixes = [folder.joinpath("ok").as_uri(), "memory://frames"]
    return Shop(HostileServer(), Resolver(), allowed_prefixes=prefixes, **settings)


async def test_files_below_a_prefix(tmp_path: Path) -> None:
    ok = tmp_path / "ok"
    ok.mkdir()
    (ok / "a b.jpg").write_bytes(DATA)
    (ok / "link").symlink_to("a b.jpg")
    shop = a_folder_shop(tmp_path)
    assert await shop.fetch(a_claim((ok / "a b.jpg").as_uri())) == DATA
    assert await shop.fetch(a_claim((ok / "link").as_uri())) == DATA
    wrong = await shop.refusal(a_claim((ok / "link").as_uri(), DATA + b"x"))
    assert wrong.code is Reason.CLAIM_MISMATCH
    wrong = await shop.refusal(a_claim((ok / "link").as_uri(), sha256="1" * 64))
    assert wrong.code is Reason.CLAIM_MISMATCH


async def test_files_that_are_not(tmp_path: Path) -> None:
    ok = tmp_path / "ok"
    ok.mkdir()
    (tmp_path / "secret").write_bytes(DATA)
    (tmp_path / "ok2").mkdir()
    (tmp_path / "ok2" / "a").write_bytes(DATA)
    (ok / "out").symlink_to(tmp_path / "secret")
    (ok / "up").symlink_to(tmp_path)
    (ok / "loop").symlink_to("loop")
    os.mkfifo(ok / "pipe")
    shop = a_folder_shop(tmp_path)
    for name in ("out", "up/secret", "pipe", "../secret", ".."):
        error = await shop.refusal(a_claim(f"{ok.as_uri()}/{name}"))
        assert error.code is Reason.CLAIM_REFUSED, name
    assert (await shop.refusal(a_claim((tmp_path / "ok2" / "a").as_uri()))).code is (
        Reason.CLAIM_REFUSED
    )
    for name in ("absent", "loop", "out/x", "x" * 300):
        error = await shop.refusal(a_claim(f"{ok.as_uri()}/{name}"))
        assert (error.code, shop.turns > 0) == (Reason.CLAIM_MISSING, True), name
    assert (await shop.refusal(a_claim(ok.as_uri()))).code is Reason.CLAIM_REFUSED, "a folder"


async def test_a_prefix_that_is_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(DATA)
    (tmp_path / "ok").symlink_to("real")
    shop = a_folder_shop(tmp_path)
    assert await shop.fetch(a_claim((tmp_path / "ok" / "a").as_uri())) == DATA


async def test_objects_by_fsspec(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/frames/a b", DATA)
    shop = a_folder_shop(tmp_path)
    assert await shop.fetch(a_claim("memory://frames/a%20b")) == DATA
    assert (await shop.refusal(a_claim("memory://frames/b"))).code is Reason.CLAIM_MISSING
    assert (await shop.refusal(a_claim("memory://other/b"))).code is Reason.CLAIM_REFUSED
    longer = await shop.refusal(a_claim("memory://frames/a%20b", DATA[:-1]))
    assert longer.code is Reason.CLAIM_MISMATCH
    store.rm("/frames", recursive=True)


async def test_a_store_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_scheme: str) -> None:
        raise ImportError("install s3fs")

    monkeypatch.setattr(fsspec, "filesystem", absent)
    shop = Shop(HostileServer(), Resolver(), allowed_prefixes=["s3://bucket/"])
    error = await shop.refusal(a_claim("s3://bucket/key"))
    assert error.code is Reason.CLAIM_REFUSED
    assert "install s3fs" in error.detail


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("no credentials"), Reason.CLAIM_MISSING),
        (OSError("the store is busy"), Reason.CLAIM_FAILED),
        (RuntimeError("a bug"), None),
    ],
)
async def test_a_store_that_fails(
    error: Exception, reason: Reason | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Store:
        def open(self, *_: object, **__: object) -> None:
            raise error

    monkeypatch.setattr(fsspec, "filesystem", lambda _scheme: Store())
    shop = Shop(HostileServer(), Resolver(), allowed_prefixes=["s3://bucket/"])
    if reason is None:
        with pytest.raises(RuntimeError):
            await shop.fetch(a_claim("s3://bucket/key"))
        return
    assert (await shop.refusal(a_claim("s3://bucket/key"))).code is reason


async def test_a_call_that_hangs_keeps_its_place_and_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(*_: object) -> memoryview:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
        return memoryview(DATA)

    (tmp_path / "ok").mkdir()
    monkeypatch.setattr(claim_fetch, "read_file", hang)
    shop = a_folder_shop(tmp_path, timeout_ms=50, concurrency=1)
    for _ in range(2):
        error = await shop.refusal(a_claim((tmp_path / "ok" / "a").as_uri()))
        assert error.code is Reason.CLAIM_TIMEOUT, "the second waits for the first one's thread"
    released.set()
    monkeypatch.undo()
    (tmp_path / "ok" / "a").write_bytes(DATA)
    async with asyncio.timeout(180):
        while True:
            with suppress(PoisonError):
                assert await shop.fetch(a_claim((tmp_path / "ok" / "a").as_uri())) == DATA
                break


async def test_threads_hand_over_what_the_call_raises() -> None:
    threads = ClaimThreads(1)

    def broken() -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await threads.call(broken)
    assert await threads.call(lambda: 5) == 5


def test_reading_stops_when_nobody_waits_any_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    settings = ClaimCheckSettings(enabled=True, allowed_prefixes=[tmp_path.as_uri()])
    rules = claim_rules(settings)
    claim = a_claim((tmp_path / "a").as_uri())
    with pytest.raises(TimeoutError):
        claim_files.read_file(rules.check(claim), claim, rules.prefixes, until_at=0.0)


# --- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if lacking := missing_openssl():
        pytest.skip(lacking)
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.mark.parametrize(("name", "good"), [("store.test", True), ("other.test", False)])
async def test_the_certificate_is_checked_against_the_name_not_the_address(
    authority: Authority, name: str, *, good: bool
) -> None:
    made = authority.sign(name, f"DNS:{name}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    hostile = HostileServer()
    hostile.paths["/ok/a"] = http.body(DATA)
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0, ssl=context)
    hostile.port = server.sockets[0].getsockname()[1]
    uri = f"https://store.test:{hostile.port}/ok/a"
    shop = Shop(
        hostile, Resolver(), allowed_prefixes=[uri], retries=0,
        ssl_cafile=str(authority.own.certificate),
    )  # fmt: skip
    try:
        if good:
            assert await shop.fetch(a_claim(uri)) == DATA
        else:
            error = await shop.refusal(a_claim(uri))
            assert (error.code, hostile.requests) == (Reason.CLAIM_FAILED, [])
            assert "certificate" in error.detail
    finally:
        await shop.fetcher.close()
        server.close()
        await hostile.stop()
        await server.wait_closed()
