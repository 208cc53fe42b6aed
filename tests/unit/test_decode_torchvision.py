"""Decoding and placing by torch alone. On this side of a GPU torchvision's decoder for processors
stands in for nvJPEG; everything around it is what runs there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decode_torchvision import TorchvisionDecoder, bytes_as_tensor
from pipeline.decoders import fills_gpu, make_decoder
from pipeline.item import Header, Item
from pipeline.letterbox import letterbox
from pipeline.place import place
from pipeline.place_torch import place_on_device
from schemas.errors import ConfigError, PoisonError, Reason, TransientError
from schemas.frame import Encoding
from tests.builders_pictures import bucket, item, jpeg, oriented, picture, png, raw_item
from tests.contract.subject import reference

INTO = bucket(64, 96)
CPU = torch.device("cpu")


def decoded(items: Sequence[Item]) -> tuple[list[PoisonError | None], npt.NDArray[np.uint8]]:
    out = torch.full((len(items), INTO.height, INTO.width, 3), 7, dtype=torch.uint8)
    return TorchvisionDecoder(CPU).decode(items, out), out.numpy()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_placing_is_opencvs_to_one_grey_level(width: int, height: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    geometry = letterbox(width, height, INTO.width, INTO.height)
    expected = np.zeros((INTO.height, INTO.width, 3), np.uint8)
    place(pixels, geometry, expected)
    row = torch.zeros((INTO.height, INTO.width, 3), dtype=torch.uint8)
    place_on_device(torch.from_numpy(pixels).permute(2, 0, 1), 1, geometry, row)
    assert np.abs(row.numpy().astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation(orientation: int) -> None:
    work = item(oriented(picture(61, 43), Encoding.JPEG, orientation), Encoding.JPEG, INTO)
    errors, rows = decoded([work])
    assert errors == [None]
    assert np.abs(rows[0].astype(int) - reference(work)).mean() <= 2.0


def test_a_broken_picture_costs_only_itself() -> None:
    good = jpeg(picture(61, 43))
    works = [
        item(good, Encoding.JPEG, INTO),
        item(good[: len(good) // 2], Encoding.JPEG, INTO, Header(Encoding.JPEG, 61, 43)),
        item(
            good, Encoding.JPEG, INTO, Header(Encoding.JPEG, 43, 61)
        ),  # another size than its header's
        item(good, Encoding.JPEG, INTO),
    ]
    errors, rows = decoded(works)
    assert [error and error.code for error in errors] == [
        None,
        Reason.DECODE_FAILED,
        Reason.DECODE_FAILED,
        None,
    ]
    for index in (0, 3):
        assert np.abs(rows[index].astype(int) - reference(works[index])).mean() <= 2.0


def test_what_it_does_not_take_is_left_to_the_next_decoder() -> None:
    works = [
        item(png(picture(61, 43)), Encoding.PNG, INTO),
        raw_item(picture(62, 44), Encoding.NV12, INTO),
        item(b"", Encoding.JPEG, INTO, Header(Encoding.JPEG, 61, 43)),
    ]
    errors, rows = decoded(works)
    assert all(error is not None and error.code is Reason.DECODE_FAILED for error in errors)
    assert (rows == 7).all()


def test_a_shortage_of_memory_is_no_pictures_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.ops.image, "decode_jpeg", full)
    with pytest.raises(TransientError, match="memory"):
        decoded([item(jpeg(picture(61, 43)), Encoding.JPEG, INTO)])


def test_bytes_are_read_where_they_lie() -> None:
    data = bytes(range(16))
    tensor = bytes_as_tensor(memoryview(data)[4:8])
    assert tensor.tolist() == [4, 5, 6, 7]


def test_it_is_for_gpus() -> None:
    assert TorchvisionDecoder(CPU).name == "torchvision-cpu"
    assert TorchvisionDecoder(torch.device("cuda")).name == "torchvision-gpu"
    assert fills_gpu(TorchvisionDecoder(torch.device("cuda")))
    assert not fills_gpu(TorchvisionDecoder(CPU))
    with pytest.raises(ConfigError, match="CUDA only"):
        make_decoder("torchvision", threads=1, device="cpu")
    make_decoder("torchvision", threads=1, device="cuda").close()


def test_nvjpeg_is_given_the_list_and_its_failures_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its operator needs a GPU; here a stand-in takes the same arguments."""
    cuda = torch.device("cuda", 0)
    sizes: list[int] = []

    def decode(encoded: list[torch.Tensor], mode: int, device: torch.device) -> list[torch.Tensor]:
        assert device == cuda
        sizes.append(len(encoded))
        if any(bytes(each.numpy()[-3:]) == b"bad" for each in encoded):
            raise RuntimeError("nvjpegDecode failed")
        return [torch.ops.image.decode_jpeg(each, mode, False) for each in encoded]

    monkeypatch.setattr(torch.ops.image, "decode_jpegs_cuda", decode)
    good = jpeg(picture(61, 43))
    works = [item(data, Encoding.JPEG, INTO) for data in (good, good + b"bad", good)]
    out = torch.zeros((3, INTO.height, INTO.width, 3), dtype=torch.uint8)
    errors = TorchvisionDecoder(cuda).decode(works, out)
    assert [error is None for error in errors] == [True, False, True]
    assert sizes == [3, 1, 1, 1]
    assert np.abs(out[2].numpy().astype(int) - reference(works[2])).mean() <= 2.0

    def lost(*_: object) -> list[torch.Tensor]:
        raise torch.AcceleratorError("device lost")

    monkeypatch.setattr(torch.ops.image, "decode_jpegs_cuda", lost)
    with pytest.raises(torch.AcceleratorError):
        TorchvisionDecoder(cuda).decode(works, out)
