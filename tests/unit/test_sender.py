"""What becomes of frames when the broker is slow or away."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError

from frameloom.cli_produce_screen import final_line
from frameloom.tally import Drop, Tally
from schemas.errors import TransientError
from tests.fakes.outlet import a_frame, an_outlet

DEADLINE_S = 180.0


async def test_a_live_stream_waits_at_its_own_bound() -> None:
    outlet, producer, sender = an_outlet(live=True, live_in_flight=2)
    sends = [asyncio.ensure_future(outlet.send(i, a_frame(i), 0)) for i in range(3)]
    await asyncio.wait(sends, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*sends[:2])
    assert not sends[2].done()
    producer.waiting[0].set_result(None)
    async with asyncio.timeout(DEADLINE_S):
        await sends[2]
    for future in producer.waiting[1:]:
        future.set_result(None)
    await sender.settle(DEADLINE_S)
    assert (sender.tally.sent, sender.tally.failed) == (3, 0)


async def test_a_live_stream_outlives_the_broker_and_counts_what_it_lost() -> None:
    outlet, producer, sender = an_outlet(live=True)
    await outlet.send(0, a_frame(0), 0)
    producer.waiting[0].set_exception(KafkaConnectionError())
    await asyncio.sleep(0)
    producer.refusal = KafkaConnectionError()
    await outlet.send(1, a_frame(1), 0)
    producer.refusal = None
    await outlet.send(2, a_frame(2), 0)
    await sender.settle(0.01)
    # The third was never acknowledged.
    assert sender.tally.dropped == {Drop.BROKER_AWAY: 3}
    assert (sender.tally.sent, sender.tally.failed) == (0, 0)


async def test_a_stream_of_files_ends_with_the_broker() -> None:
    outlet, producer, sender = an_outlet(live=False)
    await outlet.send(0, a_frame(0), 0)
    producer.waiting[0].set_exception(KafkaConnectionError())
    await asyncio.sleep(0)
    with pytest.raises(TransientError, match="takes no records"):
        await outlet.send(1, a_frame(1), 0)
    await sender.settle(0.01)
    assert sender.tally.failed == 1
    assert "f0" in sender.tally.failures


async def test_a_record_that_is_too_large_ends_nothing() -> None:
    for live in (True, False):
        outlet, producer, sender = an_outlet(live=live)
        await outlet.send(0, a_frame(0), 0)
        producer.waiting[0].set_exception(MessageSizeTooLargeError())
        await asyncio.sleep(0)
        await outlet.send(1, a_frame(1), 0)
        producer.waiting[1].set_result(None)
        await sender.settle(DEADLINE_S)
        assert (sender.tally.sent, sender.tally.failed) == (1, 1)


async def test_a_send_that_is_cut_short_leaves_its_place() -> None:
    outlet, producer, sender = an_outlet(live=True, live_in_flight=1, bytes_per_s=1.0)
    send = asyncio.ensure_future(outlet.send(0, a_frame(), 0))
    await asyncio.sleep(0)
    send.cancel()
    await asyncio.gather(send, return_exceptions=True)
    assert not producer.waiting
    await sender.settle(DEADLINE_S)
    assert sender.tally.failed == 0


def test_the_final_line_says_what_was_sent_dropped_and_why() -> None:
    tally = Tally()
    assert final_line(tally) == "sent 0 frames (0.0 MB), failed 0"
    tally.land("gate", 1_000_000, 25)
    tally.land("gate", 1_000_000, 25)
    tally.drop("gate", Drop.SLOW_BROKER, 3)
    tally.drop("yard", Drop.STOPPED, 1)
    tally.reconnect("gate")
    assert final_line(tally) == (
        "sent 50 frames in 2 records (2.0 MB), failed 0, "
        "dropped 4 (slow broker 3, not sent yet at the stop 1), reconnected once"
    )
