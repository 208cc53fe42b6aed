"""What `bench.ceiling` makes of its turns: parts side by side, and whose the processor time is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.contender import Spent
from bench.report import Bars, Cell, Document, Goal, median, spread

PARTS = ("ingest", "decode", "model", "engine", "end to end")
CEILINGS = PARTS[:3]
GOAL = 0.97
DECODING, MODEL, POST = "device-decode", "device-model", "device-post"
POOL = "decode_"
"""Threads of a decoder's pool are called so, with a number."""
NATIVE = "native"
"""Threads that libraries start: the model's."""


def document(
    plan: dict[str, Cell], about: dict[str, Cell], found: Mapping[str, Sequence[Spent]]
) -> Document:
    """The figures. Ratios are medians over the repeats, each of one turn of all parts.

    Args:
        plan: what was asked for.
        about: the machine.
        found: part → its turns.
    """
    turns = [dict(zip(found, turn, strict=True)) for turn in zip(*found.values(), strict=True)]
    bars = Bars(
        title="Three ceilings, the engine, and the whole way",
        axis="frames per second",
        groups=list(found),
        series={"rate": [median([s.rate for s in rounds]) for rounds in found.values()]},
    )
    return Document(
        bench="ceiling",
        machine=about,
        plan=plan,
        rows=[_row(part, rounds) for part, rounds in found.items()],
        goals=_goals(turns),
        bars=bars,
    )


def _row(part: str, rounds: Sequence[Spent]) -> dict[str, Cell]:
    shares = [_shares(spent) for spent in rounds]
    return {
        "part": part,
        "frames_per_s": median([spent.rate for spent in rounds]),
        "from-to": spread([spent.rate for spent in rounds]),
        "cpu_ms_per_frame": median([spent.cpu_us / 1e3 for spent in rounds]),
        "cores_busy": median([spent.cpu_s / spent.wall_s for spent in rounds]),
        "batch": median([spent.frames / max(1, spent.batches) for spent in rounds]),
        **{
            f"{name}_ms": median([share[name] for share in shares])
            for name in ("decode", "model", "post", "rest")
        },
        "broker_ms": median([spent.beside_s / spent.frames * 1e3 for spent in rounds]),
    }


def _shares(spent: Spent) -> dict[str, float]:
    """Processor milliseconds per frame by whose threads they are. Parts that run alone have no
    threads of their own: it is all `rest` there, but for what their libraries' threads do."""
    share = {"decode": 0.0, "model": 0.0, "post": 0.0, "rest": 0.0}
    for thread, seconds in spent.threads.items():
        if thread == DECODING or thread.startswith(POOL):
            name = "decode"
        elif thread in (MODEL, NATIVE):
            name = "model"
        else:
            name = "post" if thread == POST else "rest"
        share[name] += seconds / spent.frames * 1e3
    return share


def _goals(turns: Sequence[Mapping[str, Spent]]) -> list[Goal]:
    return [
        Goal(
            name="end to end / engine, frames per second",
            value=median([t["end to end"].rate / t["engine"].rate for t in turns]),
            goal=GOAL,
            part=True,
        ),
        Goal(
            name="engine / end to end, processor time per frame",
            value=median([t["engine"].cpu_us / t["end to end"].cpu_us for t in turns]),
            goal=GOAL,
            part=True,
        ),
        Goal(
            name="end to end / lowest of the three ceilings, frames per second",
            value=median(
                [t["end to end"].rate / min(t[part].rate for part in CEILINGS) for t in turns]
            ),
            goal=GOAL,
            part=True,
        ),
        # May be more than 1: alone, the model gets full batches, and where those cost more a frame
        # than small ones, the worker takes small ones.
        Goal(
            name="sum of the three parts / end to end, processor time per frame",
            value=median(
                [sum(t[part].cpu_us for part in CEILINGS) / t["end to end"].cpu_us for t in turns]
            ),
            goal=GOAL,
        ),
    ]
