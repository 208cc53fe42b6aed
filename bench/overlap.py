"""How far the device's stages overlap: `python -m bench.overlap`.

Frames wait in memory; an engine runs them, and the sum of what the stages took (decode, model,
post) is held against the time on the clock. Two kinds of lane:

- *scripted*: every stage waits for a given time instead of computing. What is seen is the engine's
  own doing, whatever the machine: with two slots the makespan is the longest stage's, with one slot
  it is the sum's. From the first frame in to the last one out.
- *real*: the decoder and the model on the frames of the mixed streams, with one slot and with two,
  and with the machine's cores split between them in several ways. From one answer to another while
  the engine is kept full. All of it shares the same cores, and stages that overlap take longer:
  what overlap wins is not the sum over the makespan but the frames per second over those of one
  slot.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch

from bench.cpu_rig import EngineRun, Rig, items_of, rig_settings, run_engine
from bench.mixed_streams import mixed_loads
from bench.noop_lane import NoDecoder, NoModel, NoPostprocessor
from bench.report import (
    Bars,
    Cell,
    Document,
    Goal,
    check_files,
    machine,
    median,
    plan_of,
    show,
    spread,
    write,
)
from pipeline.bucket import Bucket
from pipeline.item import Item
from pipeline.letterbox import Letterbox
from pipeline.ports import Lane
from schemas.errors import PoisonError
from schemas.result import Detection
from schemas.settings import DEFAULT_BUCKETS, Backend, DeviceSettings, RouteSettings, Settings

DECODE_S, INFER_S, POST_S = 0.040, 0.040, 0.010
"""Of a scripted batch."""
GOAL = 0.95
SPLITS = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Decode threads and model threads."""
ONE_SLOT = (2, 2)
"""The split that one slot has, too: nothing overlaps there, and each stage may use both cores."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        frames: of the mixed streams, measured in each round.
        repeats: rounds of each case, all cases in turn.
        backend: of the real model.
        real: run the real lane, too.
        scripted: frames of a round of waiting stages: enough that its first and last batch, which
            overlap with nothing, weigh little.
        max_batch: of the real lane's buckets.
    """

    frames: int = 86
    repeats: int = 3
    backend: str = "auto"
    real: bool = True
    scripted: int = 400
    max_batch: int = 4


class WaitingDecoder(NoDecoder):
    """Takes its time."""

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        time.sleep(DECODE_S)
        return super().decode(items, out)


class WaitingModel(NoModel):
    """Takes its time."""

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        time.sleep(INFER_S)
        return super().infer(frames)


class WaitingPostprocessor(NoPostprocessor):
    """Takes its time."""

    def detections(
        self, raw: torch.Tensor, geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        time.sleep(POST_S)
        return super().detections(raw, geometries)


def scripted(items: Sequence[Item], slots: int) -> EngineRun:
    """A round of waiting stages."""
    lane = Lane(WaitingDecoder(), WaitingModel(), WaitingPostprocessor())
    return run_engine(Settings(), lane, items, slots=slots)


def measure(options: Options) -> Document:
    """All cases in turn."""
    about = machine()
    loads = mixed_loads(options.frames)
    one = [Bucket("one", 50_000_000, 32, 32, 8)]
    plain = list(islice(cycle(items_of(loads[:16], one)), options.scripted))
    found: dict[str, list[EngineRun]] = {}
    rigs = _rigs(options) if options.real else {}
    for _ in range(options.repeats):
        for slots in (1, 2):
            found.setdefault(_scripted(slots), []).append(scripted(plain, slots))
        for (decode, model), rig in rigs.items():
            items = items_of(loads, rig.buckets)
            for slots in (1, 2) if (decode, model) == ONE_SLOT else (2,):
                name = _real(slots, decode, model)
                found.setdefault(name, []).append(rig.run(items, slots=slots))
    backend = next((rig.backend for rig in rigs.values()), "")
    return document(options, about, found, backend)


def document(
    options: Options, about: dict[str, Cell], found: dict[str, list[EngineRun]], backend: str
) -> Document:
    """The figures of all cases."""
    rows: list[dict[str, Cell]] = []
    for name, runs in found.items():
        overlaps = [_overlap(run) for run in runs]
        spent = [run.spent for run in runs]
        alone = found[_real(1, *ONE_SLOT)] if name.startswith("real") else found[_scripted(1)]
        gains = [run.spent.rate / one.spent.rate for run, one in zip(runs, alone, strict=True)]
        rows.append(
            {
                "case": name,
                "sum/makespan": median(overlaps),
                "from-to": spread(overlaps),
                "longest/makespan": median([run.longest_s / run.spent.wall_s for run in runs]),
                "frames_per_s": median([each.rate for each in spent]),
                "×one slot": median(gains),
                "×one slot, from-to": spread(gains),
                "cpu_ms_per_frame": median([each.cpu_us / 1e3 for each in spent]),
                "cores_busy": median([each.cpu_s / each.wall_s for each in spent]),
                "batch": median([each.frames / max(1, each.batches) for each in spent]),
            }
        )
    two = [run.longest_s / run.spent.wall_s for run in found[_scripted(2)]]
    goals = [
        Goal(
            name="scripted, two slots: longest stage / makespan",
            value=median(two),
            goal=GOAL,
            part=True,
        )
    ]
    bars = Bars(
        title="Sum of the stages over the makespan (1 = one after the other)",
        axis="sum / makespan",
        groups=[name.replace(", ", "\n") for name in found],
        series={"overlap": [median([_overlap(run) for run in runs]) for runs in found.values()]},
    )
    plan = plan_of({**asdict(options), "backend_used": backend})
    return Document(bench="overlap", machine=about, plan=plan, rows=rows, goals=goals, bars=bars)


def _overlap(run: EngineRun) -> float:
    return run.stages_s / run.spent.wall_s


def _scripted(slots: int) -> str:
    return f"scripted, slots {slots}"


def _real(slots: int, decode: int, model: int) -> str:
    return f"real, slots {slots}, decode {decode}, model {model}"


def _rigs(options: Options) -> dict[tuple[int, int], Rig]:
    small = [
        msgspec.structs.replace(bucket, max_batch=options.max_batch) for bucket in DEFAULT_BUCKETS
    ]
    route = RouteSettings(backend=Backend(options.backend), buckets=small)
    return {
        (decode, model): Rig(
            rig_settings(
                route, DeviceSettings(name="cpu", decode_threads=decode, model_threads=model)
            )
        )
        for decode, model in SPLITS
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all goals are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--frames", type=int, default=86)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backend", default="auto", choices=[each.value for each in Backend])
    parser.add_argument("--scripted-only", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    check_files(asked.json, asked.plot)
    found = measure(Options(asked.frames, asked.repeats, asked.backend, not asked.scripted_only))
    show(found)
    write(found, asked.json, asked.plot)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
