"""The ledger in domain words, and against a model that keeps everything."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.item import Coordinates
from pipeline.ledger import Ledger
from tests.assertions import committed_through, nothing_to_commit

FRAMES = ("frames", 0)
OTHER = ("frames", 1)


def at(offset: int, partition: int = 0) -> Coordinates:
    return Coordinates("frames", partition, offset)


def received(ledger: Ledger, *offsets: int) -> int:
    epoch = ledger.assign(FRAMES)
    for offset in offsets:
        ledger.receive(at(offset), epoch)
    return epoch


def test_nothing_is_committed_before_anything_is_settled() -> None:
    ledger = Ledger()
    ledger.assign(FRAMES)
    assert ledger.watermark(FRAMES) is None
    nothing_to_commit(ledger)

    received(ledger, 5, 6)
    assert ledger.watermark(FRAMES) == 5
    assert ledger.incomplete() == 2


def test_the_lowest_incomplete_offset_holds_the_watermark() -> None:
    ledger = Ledger()
    epoch = received(ledger, 10, 11, 12)

    ledger.settle(at(12), epoch)
    ledger.settle(at(11), epoch)
    committed_through(ledger, FRAMES, 9)

    ledger.settle(at(10), epoch)
    committed_through(ledger, FRAMES, 12)
    assert ledger.incomplete() == 0


def test_gaps_between_offsets_are_passed_over() -> None:
    ledger = Ledger()
    epoch = received(ledger, 3, 9, 400)

    ledger.settle(at(3), epoch)
    assert ledger.watermark(FRAMES) == 9, "the lowest incomplete one, beyond the gap"
    ledger.settle(at(400), epoch)
    ledger.settle(at(9), epoch)
    committed_through(ledger, FRAMES, 400)


def test_a_settlement_of_an_ended_epoch_changes_nothing_and_is_counted() -> None:
    ledger = Ledger()
    old = received(ledger, 1, 2)
    ledger.drop(FRAMES)
    assert not ledger.settle(at(1), old)

    new = received(ledger, 1)
    assert not ledger.settle(at(1), old)
    assert ledger.stale == 2
    assert ledger.watermark(FRAMES) == 1
    assert ledger.settle(at(1), new)
    committed_through(ledger, FRAMES, 1)


def test_a_partition_that_left_and_came_back_is_a_new_epoch() -> None:
    ledger = Ledger()
    old = received(ledger, 50)
    new = ledger.assign(FRAMES)

    assert new != old
    assert not ledger.is_open(FRAMES, old)
    assert ledger.is_open(FRAMES, new)
    with pytest.raises(ValueError, match="not open"):
        ledger.receive(at(51), old)
    ledger.receive(at(7), new)
    assert ledger.watermark(FRAMES) == 7, "another worker may have committed less than we saw"


def test_only_watermarks_above_the_commit_are_to_be_committed() -> None:
    ledger = Ledger()
    epoch = received(ledger, 0, 1)
    ledger.settle(at(0), epoch)
    assert ledger.to_commit() == {FRAMES: 1}

    ledger.committed(FRAMES, epoch, 1)
    nothing_to_commit(ledger)
    ledger.settle(at(1), epoch)
    assert ledger.to_commit([FRAMES, OTHER]) == {FRAMES: 2}


def test_a_commit_of_an_ended_epoch_does_not_hide_the_new_one() -> None:
    ledger = Ledger()
    old = received(ledger, 0)
    new = received(ledger, 0)
    ledger.committed(FRAMES, old, 100)
    ledger.settle(at(0), new)
    assert ledger.to_commit() == {FRAMES: 1}


@pytest.mark.parametrize("offset", [4, 6])
def test_settling_what_is_not_incomplete_is_a_bug(offset: int) -> None:
    ledger = Ledger()
    epoch = received(ledger, 5)
    with pytest.raises(ValueError, match=str(offset)):
        ledger.settle(at(offset), epoch)
    ledger.settle(at(5), epoch)
    with pytest.raises(ValueError, match="not incomplete"):
        ledger.settle(at(5), epoch)


def test_an_offset_that_was_passed_is_behind() -> None:
    ledger = Ledger()
    epoch = received(ledger, 5)
    assert ledger.is_behind(at(5))
    assert not ledger.is_behind(at(6))
    assert not ledger.is_behind(at(5, partition=1))
    with pytest.raises(ValueError, match="after offset 5"):
        ledger.receive(at(5), epoch)


class LedgerMachine(RuleBasedStateMachine):
    """Two partitions, any order of receiving, settling, losing and regaining them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.epochs: dict[int, int] = {}
        self.offsets: dict[int, list[int]] = {}
        self.open: dict[int, set[int]] = {}
        self.abandoned: list[tuple[Coordinates, int]] = []
        self.highest: dict[int, int] = {}

    @rule(partition=st.integers(0, 1))
    def assign(self, partition: int) -> None:
        self.drop(partition)
        self.epochs[partition] = self.ledger.assign(("frames", partition))
        self.offsets[partition], self.open[partition] = [], set()
        self.highest.pop(partition, None)

    @rule(partition=st.integers(0, 1))
    def drop(self, partition: int) -> None:
        if partition in self.epochs:
            epoch = self.epochs.pop(partition)
            self.abandoned += [(at(o, partition), epoch) for o in self.open[partition]]
            self.ledger.drop(("frames", partition))

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), gap=st.integers(1, 4))
    def receive(self, data: st.DataObject, gap: int) -> None:
        partition = data.draw(st.sampled_from(sorted(self.epochs)))
        offsets = self.offsets[partition]
        offset = offsets[-1] + gap if offsets else gap
        self.ledger.receive(at(offset, partition), self.epochs[partition])
        offsets.append(offset)
        self.open[partition].add(offset)

    @precondition(lambda self: any(self.open.get(p) for p in self.epochs))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from([p for p in sorted(self.epochs) if self.open[p]]))
        offset = data.draw(st.sampled_from(sorted(self.open[partition])))
        assert self.ledger.settle(at(offset, partition), self.epochs[partition])
        self.open[partition].remove(offset)

    @precondition(lambda self: self.abandoned)
    @rule()
    def settle_late(self) -> None:
        coordinates, epoch = self.abandoned.pop()
        before = self.ledger.stale
        assert not self.ledger.settle(coordinates, epoch)
        assert self.ledger.stale == before + 1

    @invariant()
    def watermark_is_lowest_incomplete_and_never_goes_back(self) -> None:
        for partition in self.epochs:
            offsets, open_ = self.offsets[partition], self.open[partition]
            watermark = self.ledger.watermark(("frames", partition))
            if not offsets:
                assert watermark is None
                continue
            assert watermark == (min(open_) if open_ else offsets[-1] + 1)
            assert watermark >= self.highest.get(partition, 0)
            self.highest[partition] = watermark

    @invariant()
    def incomplete_is_what_is_open(self) -> None:
        assert self.ledger.incomplete() == sum(len(self.open[p]) for p in self.epochs)
        assert self.ledger.partitions == {("frames", p) for p in self.epochs}


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=40, stateful_step_count=30)
