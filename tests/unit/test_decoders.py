"""The ladder and the choice of a decoder."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import pytest
import torch

from pipeline.decoders import LadderDecoder, make_decoder
from pipeline.item import Item
from schemas.errors import ConfigError, PoisonError, Reason, TransientError
from schemas.frame import Encoding
from tests.builders_pictures import bucket, item, jpeg, picture

INTO = bucket(32, 32)


class RungDecoder:
    """A decoder that writes its mark into the rows it takes, and refuses some attempt ids."""

    def __init__(self, mark: int, refuses: Collection[int] = ()) -> None:
        self.mark = mark
        self.refuses = refuses
        self.calls: list[list[int]] = []
        self.closed = 0

    @property
    def name(self) -> str:
        return f"rung-{self.mark}"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        assert out.is_contiguous()
        assert len(out) >= len(items)
        self.calls.append([item.attempt_id for item in items])
        errors: list[PoisonError | None] = []
        for row, order in enumerate(items):
            if order.attempt_id in self.refuses:
                errors.append(PoisonError(Reason.DECODE_FAILED, self.name, stage="decode"))
            else:
                out[row] = self.mark
                errors.append(None)
        return errors

    def close(self) -> None:
        self.closed += 1


def works(count: int) -> list[Item]:
    one = item(jpeg(picture(8, 8)), Encoding.JPEG, INTO)
    return [
        Item(
            attempt_id=number,
            coordinates=one.coordinates,
            epoch=1,
            route=one.route,
            frame=one.frame,
            header=one.header,
            bucket=one.bucket,
            geometry=one.geometry,
            received_at=0.0,
        )
        for number in range(count)
    ]


def rows(count: int) -> torch.Tensor:
    return torch.zeros((count, 32, 32, 3), dtype=torch.uint8)


def test_next_rungs_see_only_what_was_refused_in_contiguous_pieces() -> None:
    first, second = RungDecoder(1, {1, 2, 5}), RungDecoder(2, {5})
    out = rows(8)
    errors = LadderDecoder([first, second]).decode(works(6), out)
    assert first.calls == [[0, 1, 2, 3, 4, 5]]
    assert second.calls == [[1, 2], [5]]
    assert [int(row[0, 0, 0]) for row in out] == [1, 2, 2, 1, 1, 0, 0, 0]
    assert [error.detail if error else None for error in errors] == [None] * 5 + ["rung-2"]


def test_later_rungs_rest_when_nothing_was_refused() -> None:
    second = RungDecoder(2)
    assert LadderDecoder([RungDecoder(1), second]).decode(works(3), rows(3)) == [None] * 3
    assert second.calls == []


def test_a_third_rung_takes_what_the_second_leaves() -> None:
    third = RungDecoder(3)
    ladder = LadderDecoder([RungDecoder(1, {0, 1, 2}), RungDecoder(2, {1}), third])
    out = rows(3)
    assert ladder.decode(works(3), out) == [None] * 3
    assert third.calls == [[1]]
    assert [int(row[0, 0, 0]) for row in out] == [2, 3, 2]


def test_name_and_close() -> None:
    rungs = [RungDecoder(1), RungDecoder(2)]
    ladder = LadderDecoder(rungs)
    assert ladder.name == "rung-1"
    ladder.close()
    assert [rung.closed for rung in rungs] == [1, 1]
    with pytest.raises(ValueError, match="at least one"):
        LadderDecoder([])


def test_other_errors_pass_the_ladder() -> None:
    class OutOfMemory(RungDecoder):
        def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
            raise TransientError("out of memory")

    with pytest.raises(TransientError):
        LadderDecoder([OutOfMemory(1), RungDecoder(2)]).decode(works(1), rows(1))


@pytest.fixture
def without_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pipeline.decode_dali", raising=False)
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)


@pytest.mark.usefixtures("without_dali")
def test_dali_must_be_installed_when_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"frameloom\[dali\]"):
        make_decoder("dali", threads=1, device="cpu")


@pytest.mark.usefixtures("without_dali")
def test_auto_does_without_dali() -> None:
    decoder = make_decoder("auto", threads=1, device="cpu")
    assert decoder.name == "opencv"
    decoder.close()


def test_auto_chooses_a_decoder_that_works() -> None:
    decoder = make_decoder("auto", threads=1, device="cpu")
    assert decoder.name in {"opencv", "dali-cpu"}
    assert decoder.decode(works(2), rows(2)) == [None, None]
    decoder.close()


def test_threads_below_one() -> None:
    with pytest.raises(ConfigError, match="threads"):
        make_decoder("opencv", threads=0, device="cpu")
