"""Claims on their way through admission and delivery: order, credits, neighbours, revokes."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import metrics as m
from pipeline.claim_rules import ClaimRules, fault
from pipeline.ledger import PartitionId
from schemas.codec import read_result
from schemas.errors import Reason
from schemas.frame import Claim, Encoding
from schemas.record import RawRecord
from schemas.result import Status
from tests.builders_pictures import jpeg, picture
from tests.fakes.office import P0, P1, Office, a_claim_record, a_record, decode, uri
from workers.claim_turns import STREAM_SHARE, BytesGate, Turns
from workers.downloads import Bounds
from workers.tickets import OrderUnit

JPEG = jpeg(picture(16, 16))
RULES = ClaimRules.of(["memory://ok"], max_bytes=1_000_000)


def an_office(**options: object) -> Office:
    office = Office(claims=RULES, **options)
    office.delivery.assign([P0, P1])
    return office


async def turn() -> None:
    """Let every task that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def end(office: Office) -> None:
    await office.downloads.close()
    assert office.fetcher.closed
    assert office.failures == []


async def test_a_claim_goes_the_way_of_a_frame_once_it_is_fetched() -> None:
    office = an_office()
    office.delivery.take(P0, [record := a_claim_record(5)])
    assert (office.items, office.queue, office.delivery.in_flight) == ([], [], 1)
    assert office.books.flow.bytes == len(record.value or b"") + len(JPEG), "before it is fetched"
    assert office.downloads.waiting == 1
    await turn()
    office.clock.advance(2.0)
    office.fetcher.give(uri(5), JPEG)
    await turn()
    (item,) = office.items
    assert (bytes(item.frame.data), item.header.width) == (JPEG, 16)
    assert item.received_at == office.clock(), "it waits for company from now on"
    office.finish(item)
    (answer,) = office.acknowledge()
    result = read_result(answer.value or b"")
    assert (result.status, result.source.offset) == (Status.OK, 5)
    assert office.books.ledger.watermark(P0) == 6
    assert (office.books.flow.bytes, office.downloads.waiting) == (0, 0)
    assert office.downloads._downloads == {}
    assert office.downloads._gate.left == 1 << 20
    assert office.metrics.value(m.CLAIMED_BYTES, route="default") == len(JPEG)
    assert office.metrics.value(m.RECEIVED_BYTES, route="default") == len(record.value or b"")
    assert office.conserved()
    await end(office)


async def test_a_claim_keeps_its_streams_order_and_no_other_waits() -> None:
    office = an_office()
    office.delivery.take(
        P0, [a_claim_record(0), a_record(1), a_record(2, key=b"other"), a_record(3, key=b"x")]
    )
    office.finish(*office.items)
    assert [a.ticket.record.offset for a in office.queue] == [2, 3]
    await turn()
    office.fetcher.give(uri(0), JPEG)
    await turn()
    office.finish(*office.items)
    assert [a.ticket.record.offset for a in office.queue] == [2, 3, 0, 1]
    await end(office)


async def test_within_a_partition_all_wait_for_a_claim() -> None:
    office = an_office(unit=OrderUnit.PARTITION)
    office.delivery.take(P0, [a_claim_record(0), a_record(1, key=b"other")])
    office.finish(*office.items)
    assert office.queue == []
    await turn()
    office.fetcher.give(uri(0), fault(Reason.CLAIM_MISSING, "gone"))
    await turn()
    assert [a.ticket.record.offset for a in office.queue] == [0, 1]
    await end(office)


async def test_a_claim_that_fails_is_a_dead_letter_with_the_claim() -> None:
    office = an_office()
    office.delivery.take(P0, [record := a_claim_record(0)])
    await turn()
    office.fetcher.give(uri(0), fault(Reason.CLAIM_MISMATCH, "other bytes"))
    await turn()
    (answer,) = office.acknowledge()
    assert (answer.verdict, answer.value, answer.topic) == (
        Reason.CLAIM_MISMATCH, record.value, "dlq",
    )  # fmt: skip
    headers = dict(answer.headers)
    assert (headers["fl-stage"], headers["fl-reason"]) == (b"claim", b"claim_mismatch")
    assert office.conserved()
    await end(office)


async def test_a_bug_in_a_store_costs_one_record() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claim_record(0)])
    await turn()
    office.fetcher.give(uri(0), ZeroDivisionError("surprise"))
    await turn()
    assert office.queue[0].verdict is Reason.INTERNAL_ERROR
    await end(office)


async def test_a_bug_behind_the_downloads_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    office = an_office()
    office.delivery.take(P0, [a_claim_record(0)])
    await turn()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(office.delivery, "fetched", broken)
    office.fetcher.give(uri(0), JPEG)
    await turn()
    assert "ZeroDivisionError" in str(office.failures.pop())
    await end(office)


async def test_what_is_fetched_is_looked_at_like_any_picture() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claim_record(0), a_claim_record(1, stream="x")])
    await turn()
    office.fetcher.give(uri(0), b"GIF89a no jpeg")
    office.fetcher.give(uri(1), JPEG[:20])
    await turn()
    assert [a.verdict for a in office.queue] == [
        Reason.ENCODING_MISMATCH, Reason.TRUNCATED_HEADER,
    ]  # fmt: skip
    await end(office)


async def test_nothing_is_fetched_for_what_is_answered_unseen() -> None:
    office = an_office(sample_every=2)
    office.clock.advance(10.0)
    too_long = Claim(uri=uri("l"), sha256="0" * 64, length=1 << 62)
    elsewhere = Claim(uri="memory://no/x", sha256="0" * 64, length=1)
    office.delivery.take(
        P0,
        [
            a_claim_record(0, ttl_ms=9_999),
            a_claim_record(1),
            a_claim_record(2, claim=too_long),
            a_claim_record(4, claim=elsewhere),
        ],
    )
    await turn()
    assert office.fetcher.asked == []
    assert office.books.flow.bytes < 2_000, "a length that is refused costs no credit"
    verdicts = [a.verdict for a in office.queue]
    assert verdicts == [
        Status.EXPIRED, Status.SKIPPED, Reason.CLAIM_TOO_LARGE, Reason.CLAIM_REFUSED,
    ]  # fmt: skip
    await end(office)


async def test_claims_are_refused_unless_they_are_allowed() -> None:
    office = Office()
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_claim_record(0)])
    assert office.queue[0].verdict is Reason.CLAIM_REFUSED
    assert b"claim_check.enabled" in dict(office.queue[0].headers)["fl-detail"]
    await end(office)


async def test_a_frame_may_expire_while_it_is_fetched() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claim_record(0, ttl_ms=1_000)])
    await turn()
    office.clock.advance(1.5)
    office.fetcher.give(uri(0), JPEG)
    await turn()
    assert (office.items, office.queue[0].verdict) == ([], Status.EXPIRED)
    await end(office)


async def test_a_revoked_partition_gives_up_its_downloads() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claim_record(0), a_claim_record(1, stream="x"), a_record(2)])
    office.delivery.take(P1, [a_claim_record(0, partition=1, name="other")])
    await turn()
    office.fetcher.give(uri(1), JPEG)
    await turn()
    office.delivery.revoke([P0])
    await turn()
    assert office.fetcher.abandoned == [uri(0)]
    assert (office.downloads.waiting, office.delivery.in_flight) == (1, 3)
    office.finish(*office.items)
    office.fetcher.give(uri("other"), JPEG)
    await turn()
    office.finish(*office.items)
    office.acknowledge()
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert office.downloads._gate.left == 1 << 20
    assert office.metrics.total(m.ABANDONED) == 3
    assert office.conserved()
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_claim_record(0)])
    await turn()
    assert office.fetcher.asked.count(uri(0)) == 2, "received again in the new epoch"
    await end(office)


async def test_the_end_gives_up_all() -> None:
    office = an_office(bounds=Bounds(1, 1 << 20, 9))
    office.delivery.take(P0, [a_claim_record(n) for n in range(3)])
    await turn()
    await end(office)
    assert (office.fetcher.abandoned, office.downloads.waiting) == ([uri(0)], 0)
    assert office.queue == []


async def test_a_partition_with_many_slow_claims_is_full_and_others_are_not() -> None:
    office = an_office(max_held=3)
    office.delivery.take(P0, [a_claim_record(n, stream=f"s{n}") for n in range(4)])
    office.delivery.take(P1, [a_claim_record(0, partition=1, name="other")])
    assert office.delivery.full == {P0}
    await turn()
    for n in range(2):
        office.delivery.progress.clear()
        office.fetcher.give(uri(n), JPEG)
        await turn()
        assert office.delivery.progress.is_set(), "whoever polls looks again"
    assert office.delivery.full == frozenset()
    await end(office)


async def test_one_stream_leaves_places_to_others() -> None:
    office = an_office(bounds=Bounds(2 * STREAM_SHARE, 1 << 20, 99))
    office.delivery.take(P0, [a_claim_record(n) for n in range(9)])
    office.delivery.take(P1, [a_claim_record(9, partition=1, stream="other")])
    await turn()
    assert office.fetcher.asked == [uri(0), uri(1), uri(9)]
    office.fetcher.give(uri(1), JPEG)
    await turn()
    assert office.fetcher.asked[3:] == [uri(2)]
    await end(office)


async def test_bytes_are_bounded_until_they_are_settled() -> None:
    office = an_office(bounds=Bounds(16, 2 * len(JPEG) + 1, 99))
    office.delivery.take(P0, [a_claim_record(n, stream=f"s{n}") for n in range(4)])
    await turn()
    assert office.fetcher.asked == [uri(0), uri(1)]
    office.fetcher.give(uri(1), JPEG)
    await turn()
    assert len(office.fetcher.asked) == 2, "fetched, and not yet answered"
    office.finish(*office.items)
    office.acknowledge()
    await turn()
    assert office.fetcher.asked[2:] == [uri(2)]
    await end(office)


async def test_a_full_gate_and_a_stream_in_order_do_not_lock_each_other() -> None:
    """The later claim is fetched first; its bytes are let go only after the earlier one's."""
    office = an_office(bounds=Bounds(16, 2 * len(JPEG), 99))
    office.delivery.take(P0, [a_claim_record(n) for n in range(6)])
    for n in (1, 0, 3, 2, 5, 4):
        await turn()
        office.fetcher.give(uri(n), JPEG)
        await turn()
        office.finish(*office.items)
        office.acknowledge()
    assert office.books.ledger.watermark(P0) == 6
    await end(office)


# --- segments ----------------------------------------------------------------------------------


def a_claimed_segment(offset: int, **fields: object) -> RawRecord:
    return a_claim_record(offset, encoding=Encoding.MP4, **fields)


async def test_a_claimed_segment_is_read_once_it_is_fetched_and_its_partition_waits() -> None:
    office = an_office(bounds=Bounds(4, len(JPEG), 9))
    office.delivery.take(P0, [a_claimed_segment(0), a_record(1), a_record(2, key=b"x")])
    office.delivery.take(P1, [a_record(0, partition=1)])
    await turn()
    assert (office.segments, P0 in office.delivery.full) == ([], True)
    assert [item.coordinates.partition for item in office.items] == [1]
    office.fetcher.give(uri(0), JPEG)
    await turn()
    (segment,) = office.segments
    assert bytes(segment.message.data) == JPEG
    assert office.books.flow.bytes > len(JPEG)
    decode(office, segment, 0, 1, last=True)
    office.finish(*office.items)
    assert [a.ticket.place for a in office.queue if a.ticket.partition == P0] == [
        (0, 0), (0, 1), (1, 0), (2, 0),
    ]  # fmt: skip
    assert office.downloads._gate.left == 0, "until all of it is settled"
    office.acknowledge()
    assert office.books.ledger.to_commit() == {P0: 3, P1: 1}
    assert (office.downloads._gate.left, office.books.flow.bytes) == (len(JPEG), 0)
    assert (office.delivery.in_flight, len(office.delivery.segments)) == (0, 0)
    assert office.conserved()
    await end(office)


async def test_a_claimed_segment_that_cannot_be_fetched_is_one_dead_letter() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claimed_segment(0), a_record(1)])
    await turn()
    office.fetcher.give(uri(0), fault(Reason.CLAIM_MISSING, "gone"))
    await turn()
    office.finish(*office.items)
    assert [a.verdict for a in office.acknowledge()] == [Reason.CLAIM_MISSING, Status.OK]
    assert office.segments == []
    assert office.books.ledger.to_commit() == {P0: 2}
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert office.conserved()
    await end(office)


async def test_a_claimed_segment_that_is_not_allowed_is_not_fetched() -> None:
    office = Office()
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_claimed_segment(0), a_record(1)])
    assert office.queue[0].verdict is Reason.CLAIM_REFUSED
    assert len(office.items) == 1, "nobody waits behind it"
    await end(office)


async def test_a_partition_that_leaves_takes_its_claimed_segment_along() -> None:
    office = an_office()
    office.delivery.take(P0, [a_claimed_segment(0), a_record(1)])
    await turn()
    office.delivery.revoke([P0])
    await turn()
    assert office.fetcher.abandoned == [uri(0)]
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert (len(office.delivery.segments), office.downloads._gate.left) == (0, 1 << 20)
    assert office.downloads._downloads == {}
    assert office.conserved()
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_claimed_segment(0)])
    await turn()
    office.fetcher.give(uri(0), JPEG)
    await turn()
    decode(office, office.segments[0], 0, last=True)
    office.finish(*office.items)
    office.acknowledge()
    assert office.books.ledger.to_commit() == {P0: 1}
    await end(office)


# --- the bounds --------------------------------------------------------------------------------


async def test_a_gate_serves_in_turn_and_survives_those_who_leave() -> None:
    gate = BytesGate(10)
    await gate.take(8)
    large = asyncio.ensure_future(gate.take(5))
    small = asyncio.ensure_future(gate.take(1))
    await turn()
    assert not small.done(), "it would fit, but it came later"
    large.cancel()
    await turn()
    assert small.done()
    granted = asyncio.ensure_future(gate.take(2))
    await turn()
    gate.give(8)
    granted.cancel()
    await turn()
    assert granted.cancelled()
    assert gate.left == 9
    # Cancelled and passed over before it runs again.
    waiting = asyncio.ensure_future(gate.take(10))
    await turn()
    waiting.cancel()
    gate.give(1)
    await turn()
    assert gate.left == 10


async def test_turns_forget_streams_that_are_through() -> None:
    turns = Turns(1)
    async with turns.of("a"):
        assert list(turns._streams) == ["a"]
    assert turns._streams == {}


@given(data=st.data())
@settings(max_examples=25)
def test_nothing_is_lost_in_any_order(data: st.DataObject) -> None:
    """Claims and frames, fetched, refused, failed and revoked in any order: one account."""
    asyncio.run(_any_order(data))


async def _any_order(data: st.DataObject) -> None:
    office = an_office(bounds=Bounds(4, 3 * len(JPEG), 4))
    offsets: dict[PartitionId, int] = {P0: 0, P1: 0}
    left: dict[tuple[object, ...], tuple[int, int]] = {}
    serial = itertools.count()
    for _ in range(data.draw(st.integers(1, 25))):
        do = data.draw(
            st.sampled_from(["claim", "frame", "segment", "give", "read", "finish", "ack", "lose"])
        )
        where = data.draw(st.sampled_from([P0, P1]))
        if do in ("claim", "frame", "segment"):
            offset = offsets[where]
            offsets[where] += 1
            stream = data.draw(st.sampled_from(["a", "b"]))
            if do == "frame":
                office.delivery.take(
                    where, [a_record(offset, partition=where[1], key=stream.encode())]
                )
            else:
                encoding = Encoding.MP4 if do == "segment" else Encoding.JPEG
                record = a_claim_record(
                    offset, stream=stream, partition=where[1], name=next(serial), encoding=encoding
                )
                office.delivery.take(where, [record])
        elif do == "read":
            _read_segments(office)
        elif do == "give" and office.fetcher._waiting:
            chosen = data.draw(st.sampled_from(sorted(office.fetcher._waiting)))
            bad = fault(Reason.CLAIM_FAILED, "no")
            office.fetcher.give(chosen, data.draw(st.sampled_from([JPEG, JPEG[:9], bad])))
        elif do == "finish" and office.items:
            office.finish(data.draw(st.sampled_from(office.items)))
        elif do == "ack":
            _acknowledge(office, left)
        elif do == "lose":
            watermark = office.books.ledger.watermark(where)
            office.delivery.revoke([where])
            office.delivery.assign([where])
            offsets[where] = watermark or 0
        await turn()
        assert office.conserved()
    for _ in range(60):
        for waiting in list(office.fetcher._waiting):
            office.fetcher.give(waiting, JPEG)
        await turn()
        _read_segments(office)
        office.finish(*office.items)
        _acknowledge(office, left)
    assert len(office.delivery.segments) == 0
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert (office.downloads.waiting, office.downloads._gate.left) == (0, 3 * len(JPEG))
    assert office.conserved()
    await end(office)


def _read_segments(office: Office) -> None:
    while office.segments:
        decode(office, office.segments.pop(), 0, 1, last=True)


def _acknowledge(office: Office, left: dict[tuple[object, ...], tuple[int, int]]) -> None:
    for answer in office.acknowledge():
        ticket = answer.ticket
        place = (ticket.partition, ticket.epoch, ticket.stream)
        assert left.get(place, (-1, 0)) < ticket.place, "left out of order"
        left[place] = ticket.place
