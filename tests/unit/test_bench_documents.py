"""What the benches make of their figures: rows of one shape, goals judged, files written."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from bench import ceiling, ceiling_report, ingest, overhead, overlap, peers, shapes
from bench.contender import Meter, Spent
from bench.cpu_rig import EngineRun
from bench.report import (
    Bars,
    Document,
    Goal,
    check_files,
    machine,
    median,
    show,
    spread,
    table_parts,
    write,
)
from schemas.errors import ConfigError

ABOUT = machine()


def spent(cpu_s: float, wall_s: float = 2.0, frames: int = 10) -> Spent:
    return Spent(frames=frames, cpu_s=cpu_s, wall_s=wall_s, note="a note")


def of_overhead() -> Document:
    found = {20: {"worker": [spent(3.0), spent(2.0)], "bare": [spent(1.0), spent(1.0)]}}
    return overhead.document(overhead.Options("b", sizes=(20,)), ABOUT, found)


def of_ceiling() -> Document:
    walls = {"ingest": 0.1, "decode": 1.0, "model": 3.0, "engine": 4.0, "end to end": 5.0}
    found = {part: [spent(wall, wall)] for part, wall in walls.items()}
    return ceiling_report.document({"frames": 10}, ABOUT, found)


def of_peers() -> Document:
    walls = dict(zip((*peers.PEERS, *peers.OURS), (4.0, 3.0, 2.0, 1.0), strict=True))
    found = {name: [spent(wall, wall)] for name, wall in walls.items()}
    return peers.document(peers.Options("b"), ABOUT, found, (10, 9, 0.99))


def of_overlap() -> Document:
    run = EngineRun(spent(0.5, 1.0, 8), 0.9, 0.8, 0.1)
    found = {"scripted, slots 1": [run], "scripted, slots 2": [run]}
    return overlap.document(overlap.Options(), ABOUT, found, "torch")


def of_ingest() -> Document:
    found = {1: [ingest.Round(100.0, 9.0)] * 2, 2: [ingest.Round(150.0, 9.5)] * 2}
    return ingest.document(ingest.Options("b"), ABOUT, found)


def of_shapes() -> Document:
    sides = {shapes.RECTANGLES: 2.0, shapes.SQUARE: 4.0, shapes.BY_SIZE: 1.0}
    found = {side: [EngineRun(spent(s, s), 0.1, 0.9, 0.1)] for side, s in sides.items()}
    return shapes.document({"frames": 10}, ABOUT, found, dict.fromkeys(sides, 100.0))


MADE = {
    document.bench: document
    for document in (
        of_overhead(),
        of_ceiling(),
        of_peers(),
        of_overlap(),
        of_ingest(),
        of_shapes(),
    )
}


@pytest.mark.parametrize("name", MADE)
def test_every_row_has_the_same_columns_and_every_bar_its_group(name: str) -> None:
    document = MADE[name]
    assert {tuple(row) for row in document.rows} == {tuple(document.rows[0])}
    for heights in document.bars.series.values():
        assert len(heights) == len(document.bars.groups)
    assert "bootstrap" not in document.plan


@pytest.mark.parametrize("name", MADE)
def test_a_document_is_written_and_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = MADE[name]
    show(document)
    printed = capsys.readouterr().out
    assert all(goal.name in printed for goal in document.goals)
    write(document, tmp_path / "new" / "figures.json", None)
    content = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert content["bench"] == name
    assert content["rows"] == document.rows
    assert content["machine"]["cores"] >= 1


def test_the_ratio_is_the_median_of_neighbouring_rounds() -> None:
    (goal,) = MADE["overhead"].goals
    assert (goal.value, goal.met) == (2.5, False)


def test_processes_together_last_from_the_first_partition_to_the_last_answer() -> None:
    parts = [
        Spent(frames=30, cpu_s=1.0, wall_s=3.0, ended_s=10.0),
        Spent(frames=30, cpu_s=2.0, wall_s=3.0, ended_s=12.0),
    ]
    assert ingest.together(parts) == ingest.Round(rate=12.0, cpu_us=50_000.0)


def test_the_gain_is_over_the_fewest_processes() -> None:
    rows = MADE["ingest"].rows
    assert [(row["processes"], row["gain"]) for row in rows] == [(1, 1.0), (2, 1.5)]


def test_the_ceilings_are_held_against_the_whole_way() -> None:
    whole, by_cpu, lowest, parts = MADE["ceiling"].goals
    assert (whole.value, by_cpu.value) == (0.8, 0.8)
    assert lowest.value == 0.6, "the model's is the lowest"
    assert parts.value == pytest.approx(4.1 / 5.0)


def test_peers_are_compared_with_both_loops_and_box_by_box() -> None:
    values = {goal.name: goal.value for goal in MADE["peers"].goals}
    assert values["frameloom, same shapes / per frame loop, frames per second"] == 2.0
    assert values["frameloom, default / per poll loop, frames per second"] == 3.0
    assert values["boxes found alike (9 of 10)"] == 0.9


@pytest.mark.parametrize(
    ("value", "at_most", "met"), [(1.4, True, True), (1.6, True, False), (1.6, False, True)]
)
def test_a_goal_is_a_floor_or_a_ceiling(value: float, *, at_most: bool, met: bool) -> None:
    assert Goal(name="x", value=value, goal=1.5, at_most=at_most).met is met


def test_a_plot_is_drawn_with_gaps_where_there_is_no_figure(tmp_path: Path) -> None:
    bars = Bars(title="t", axis="ms", groups=["a", "b"], series={"x": [1.0, None], "y": [2.0, 3.0]})
    document = Document(bench="t", machine={}, plan={}, rows=[], goals=[], bars=bars)
    write(document, None, tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_repeats_are_summed_up() -> None:
    assert median([1.0, 9.0, 2.0]) == 2.0
    assert spread([1.0, 9.0, 2.0]) == "1 to 9"
    assert not spread([1.0]), "one repeat has no spread"


@pytest.mark.parametrize("name", MADE)
def test_a_table_fits_a_terminal(name: str) -> None:
    rows = MADE[name].rows
    parts = table_parts(rows)
    lines = [line for part in parts for line in part.split("\n")]
    assert max(map(len, lines)) <= 80
    first, *others = rows[0]
    assert all(part.startswith(first) for part in parts)
    headings = " ".join(part.split("\n")[0] for part in parts)
    assert all(name in headings for name in others if any(row[name] != "" for row in rows))


def test_a_spread_stays_beside_its_figure_in_a_table_of_several_parts() -> None:
    cells = {"side": "a" * 40, "figure": 1.0, "rate": "r" * 20, "rate, from-to": "f" * 20}
    one, two = table_parts([cells])
    assert one.split("\n")[0].split() == ["side", "figure"]
    assert two.split("\n")[1].split() == ["a" * 40, "r" * 20, "f" * 20]


def test_every_part_of_a_table_says_which_row_is_which() -> None:
    rows = [
        {"format": "jpeg", "source": source, "KiB": 9, "x" * 40: 1.0, "y" * 40: 2.0}
        for source in ("small", "large")
    ]
    parts = table_parts(rows)
    assert len(parts) == 2
    for part in parts:
        assert [line.split()[:2] for line in part.split("\n")] == [
            ["format", "source"], ["jpeg", "small"], ["jpeg", "large"],
        ]  # fmt: skip


def test_more_than_can_be_is_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    doubtful = Goal(name="part / whole", value=2.57, goal=0.97, part=True)
    document = Document(
        bench="t",
        machine={"processor": "p", "cores": 2},
        plan={},
        rows=[],
        goals=[doubtful],
        bars=Bars(title="t", axis="ms", groups=[], series={}),
    )
    show(document)
    printed = capsys.readouterr().out
    assert not doubtful.met
    assert "DOUBT  part / whole: 2.57" in printed
    assert "warning: " in printed
    assert Goal(name="part / whole", value=1.04, goal=0.97, part=True).met, "noise"
    assert Goal(name="times", value=2.57, goal=2.0).met
    assert [goal.part for goal in MADE["ceiling"].goals] == [True, True, True, False]


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_file_that_cannot_be_written_is_refused_beforehand(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file" / "x.png", tmp_path, Path("/proc/x/y.png")):
        json, plot = (target, None) if option == "--json" else (None, target)
        with pytest.raises(ConfigError, match=f"{option} {target}: cannot be written"):
            check_files(json, plot)


def test_files_that_can_be_written_are_left_as_they_are(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("{}")
    check_files(old, tmp_path / "new" / "x.png")
    assert old.read_text() == "{}"
    assert not list((tmp_path / "new").iterdir())
    with pytest.raises(ConfigError, match=r"--plot .*\.png or"):
        check_files(None, tmp_path / "x.doc")


def test_a_meter_counts_this_process_alone() -> None:
    meter = Meter()
    meter.first()
    found = meter.spent(5, "n")
    assert (found.frames, found.note) == (5, "n")
    assert 0.0 <= found.cpu_s < 5.0
    assert "MainThread" in found.threads


@pytest.mark.parametrize("bench", [ceiling, overhead, overlap, peers, shapes])
def test_every_bench_explains_itself(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main(["--help"])
    assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out
