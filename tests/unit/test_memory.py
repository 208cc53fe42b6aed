"""What a host has left, within the limits of its control groups."""

from __future__ import annotations

from pathlib import Path

import torch

from pipeline.memory import HostMemory, memory_of

MIB = 1024 * 1024


def groups(tmp_path: Path, lines: str, files: dict[str, str]) -> HostMemory:
    own = tmp_path / "own"
    own.write_text(lines)
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return HostMemory(tmp_path / "cgroup", own)


def test_without_limits_it_is_the_machines(tmp_path: Path) -> None:
    assert groups(tmp_path, "", {}).free_bytes() > 100 * MIB
    assert HostMemory(tmp_path / "none", tmp_path / "neither").free_bytes() > 100 * MIB


def test_a_group_of_version_2_and_those_above_it_limit(tmp_path: Path) -> None:
    memory = groups(
        tmp_path, "0::/pods/mine\n",
        {
            "pods/mine/memory.max": "max\n", "pods/mine/memory.current": "1\n",
            "pods/memory.max": f"{50 * MIB}\n", "pods/memory.current": f"{30 * MIB}\n",
            "pods/memory.stat": f"anon 1\ninactive_file {10 * MIB}\n",
        },
    )  # fmt: skip
    assert memory.free_bytes() == 30 * MIB


def test_a_group_of_version_1_limits(tmp_path: Path) -> None:
    memory = groups(
        tmp_path, "9:cpu:/x\n4:memory:/mine\n",
        {
            "memory/mine/memory.limit_in_bytes": f"{20 * MIB}\n",
            "memory/mine/memory.usage_in_bytes": f"{25 * MIB}\n",
            "memory/mine/memory.stat": "cache 5\n",
        },
    )  # fmt: skip
    assert memory.free_bytes() == 0


def test_damaged_files_limit_nothing(tmp_path: Path) -> None:
    memory = groups(
        tmp_path, "nonsense\n0::/\n", {"memory.max": "many\n", "memory.current": "few\n"}
    )
    assert memory.free_bytes() > 100 * MIB


def test_the_peak_of_a_run_is_seen_though_it_is_gone_afterwards() -> None:
    memory = memory_of(torch.device("cpu"))
    before = memory.held_bytes()

    def run() -> int:
        held = torch.ones(200 * MIB, dtype=torch.uint8)
        for _ in range(20):
            held.add_(1)
        return int(held[0])

    value, peak = memory.peak_of(run)
    assert value == 21
    assert peak >= before + 150 * MIB
    memory.release()
