"""The list of `--devices`, and what each process is told."""

from __future__ import annotations

import re

import msgspec
import pytest

from schemas.errors import ConfigError
from schemas.settings import DeviceSettings, Settings, load_settings
from workers.device_list import MOST, Device, overrides_of, plan_devices


def never() -> int:
    raise AssertionError("no CUDA device was named")


def labels(text: str, present: int = 4) -> list[str]:
    return [device.label for device in plan_devices(text, lambda: present)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ["cuda:0"]),
        ("0,1", ["cuda:0", "cuda:1"]),
        (" cuda:3 , CUDA:0", ["cuda:3", "cuda:0"]),
        ("all", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("1,cpu", ["cuda:1", "cpu:0"]),
        ("cpu,0,cpu", ["cpu:0", "cuda:0", "cpu:1"]),
        ("0,0", ["cuda:0.0", "cuda:0.1"]),
        ("0,1,cuda:0", ["cuda:0.0", "cuda:1", "cuda:0.1"]),
    ],
)
def test_lists(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


def test_processors_alone_need_no_look_at_cuda() -> None:
    assert plan_devices("cpu,cpu", never) == [
        Device("cpu:0", "cpu", "", 2), Device("cpu:1", "cpu", "", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "present", "says"),
    [
        ("2", 2, "there is no cuda:2; this machine has cuda:0, cuda:1"),
        ("0", 0, "there is no cuda:0; this machine has no CUDA device"),
        ("all", 0, "no CUDA device was found"),
        ("", 2, "'' is no device"),
        ("0,", 2, "'' is no device"),
        ("gpu", 2, "'gpu' is no device"),
        ("cuda", 2, "'cuda' is no device"),
        ("-1", 2, "'-1' is no device"),
        ("all,cpu", 2, "'all' among others"),
        (",".join(["cpu"] * (MOST + 1)), 2, f"at most {MOST}"),
    ],
)
def test_what_cannot_be_is_named(text: str, present: int, says: str) -> None:
    with pytest.raises(ConfigError, match=f"--devices.*{re.escape(says)}"):
        labels(text, present)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1"]),
        ("4,6,7", ["4", "6"]),
        ("GPU-5a, GPU-6b", ["GPU-5a", "GPU-6b"]),
    ],
)
def test_each_process_sees_its_own_device_alone(visible: str | None, expected: list[str]) -> None:
    devices = plan_devices("0,1", lambda: 2, visible)
    assert [device.visible for device in devices] == expected
    assert [device.name for device in devices] == ["cuda", "cuda"]


def test_processes_on_one_device_share_its_memory() -> None:
    devices = plan_devices("0,1,0,0", lambda: 2, "4,7")
    assert [device.sharers for device in devices] == [3, 1, 3, 3]
    assert [device.visible for device in devices] == ["4", "7", "4", "4"]
    asked = msgspec.structs.replace(Settings(), device=DeviceSettings(memory_fraction=0.6))
    fractions = [
        load_settings(None, overrides=overrides_of(each, asked, 4, 8)).device.memory_fraction
        for each in devices
    ]
    assert fractions == pytest.approx([0.2, 0.6, 0.2, 0.2])


def told(label: str, name: str, asked: DeviceSettings, processes: int, cores: int) -> Settings:
    settings = msgspec.structs.replace(Settings(), device=asked)
    overrides = overrides_of(Device(label, name, ""), settings, processes, cores)
    return load_settings(None, overrides=overrides)


@pytest.mark.parametrize(
    ("processes", "cores", "share"), [(2, 8, 4), (2, 2, 1), (3, 2, 1), (1, 6, 6), (3, 8, 2)]
)
def test_processors_share_threads(processes: int, cores: int, share: int) -> None:
    got = told("cpu:1", "cpu", DeviceSettings(), processes, cores)
    assert (got.device.decode_threads, got.device.model_threads) == (share, share)
    assert (got.device.name, got.kafka.client_id) == ("cpu", "frameloom-cpu-1")


def test_what_was_asked_for_holds_for_each() -> None:
    got = told("cpu:0", "cpu", DeviceSettings(decode_threads=3, model_threads=5), 2, 2)
    assert (got.device.decode_threads, got.device.model_threads) == (3, 5)


def test_a_gpu_has_a_share_of_the_decoding_threads() -> None:
    got = told("cuda:1", "cuda", DeviceSettings(name="cpu"), 4, 16)
    assert (got.device.name, got.device.decode_threads, got.device.model_threads) == ("cuda", 4, 0)
