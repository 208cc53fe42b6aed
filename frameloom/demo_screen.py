"""What the demo shows: a live table while it runs, the report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from frameloom.console import out, print_json
from frameloom.demo_answers import Answers
from frameloom.demo_report import MIN_ACCURACY, Accuracy, Calibration, Report, StreamRow
from frameloom.demo_streams import StreamPlan
from frameloom.demo_traffic import Traffic

_BAR = 28
_WORTH_SAYING = 0.1


def live_view(
    streams: Sequence[str], traffic: Traffic, answers: Answers, progress: float, note: str
) -> RenderableType:
    """One picture of the run.

    Args:
        streams: ids in the order wanted.
        traffic, answers: as they stand.
        progress: 0..1 of the time to produce.
        note: what is going on.
    """
    answered = Counter(sent.stream for at, sent in traffic.sent.items() if at in answers.first)
    acknowledged = Counter(sent.stream for sent in traffic.sent.values())
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("stream", "sent", "answered", "waiting"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    for stream in streams:
        waiting = acknowledged[stream] - answered[stream]
        table.add_row(
            Text(stream), str(traffic.attempts.get(stream, 0)), str(answered[stream]),
            Text(str(waiting), style="yellow" if waiting else "dim"),
        )  # fmt: skip
    total = f"{len(answers.first)} of {len(traffic.sent)} answered"
    bar = ProgressBar(total=1.0, completed=min(progress, 1.0), width=40)
    head = Table.grid(padding=(0, 2))
    head.add_row(bar, Text(note), Text(total, style="bold"))
    return Group(head, Padding(table, (1, 0, 0, 0)))


def calibration_lines(calibration: Calibration, plans: Sequence[StreamPlan]) -> list[str]:
    """What was chosen for this machine, in words."""
    scale = calibration.scale
    lines: list[str] = []
    if calibration.others_busy > _WORTH_SAYING:
        lines.append(f"other programs take {calibration.others_busy:.0%} of this machine")
    kinds = {plan.kind.name: plan.kind.fps * scale for plan in plans}
    rates = ", ".join(f"{name} {fps:.2g}" for name, fps in kinds.items())
    lines.append(
        f"[bold]{scale:.0%}[/] of the nominal rates will keep it about "
        f"{calibration.predicted_busy:.0%} busy: {calibration.frames_per_s:.1f} frames/s ({rates})"
    )
    return lines


def show_report(report: Report, folder: Path, *, json: bool) -> None:
    """Print the report on standard output, as JSON or as tables for people."""
    if json:
        print_json(report, indent=True)
        return
    out.print()
    out.print(_stream_table(report))
    out.print()
    out.print(_side_by_side(out, _batch_sizes(report), _closed_by(report)))
    out.print()
    out.print(_side_by_side(out, _buckets(report), _stages(report)))
    out.print()
    for line in _summary(report, folder):
        out.print(line)


def _summary(report: Report, folder: Path) -> list[str]:
    balance, calibration = report.balance, report.calibration
    whole = "green" if not balance.lost and not balance.unknown else "bold red"
    lines = [
        (
            f"[bold]records[/]     received {balance.received}, answered {balance.answered}: "
            f"[{whole}]lost {len(balance.lost)}[/], duplicates {balance.duplicates}, "
            f"out of order {balance.out_of_order}"
        ),
    ]
    if report.dead_letters:
        reasons = ", ".join(f"{name} {n}" for name, n in report.dead_letters.items())
        lines.append(f"[bold]dead letters[/] {reasons}")
    lines.append(f"[bold]accuracy[/]    {_accuracy_text(report.accuracy)}")
    measured = calibration.measured_busy
    busy = "" if measured is None else f", the worker took {measured:.0%} of the machine"
    lines.append(
        f"[bold]load[/]        {calibration.frames_per_s:.1f} frames/s "
        f"({calibration.scale:.0%} of nominal), predicted busy "
        f"{calibration.predicted_busy:.0%}{busy}"
    )
    late = sum(row.expired for row in report.streams)
    if late > _WORTH_SAYING * balance.received:
        lines.append(
            f"[bold yellow]late[/]        {late} frames were answered expired: the machine had "
            "less to give than while it was measured. Are other programs busy?"
        )
    lines.append(f"[bold]model[/]       {calibration.model}, decoder {calibration.decoder}")
    lines.append(f"[bold]written[/]     {folder / 'contact-sheet.png'}, {folder / 'report.json'}")
    if report.failures:
        lines += [f"[bold red]failed:[/] {failure}" for failure in report.failures]
    else:
        lines.append("[bold green]passed[/]")
    return lines


def _accuracy_text(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return "not applicable: the model's labels are not the scenes' classes"
    shares = (("precision", accuracy.precision), ("recall", accuracy.recall))
    coloured = [
        f"{name} [{'green' if share >= MIN_ACCURACY else 'bold red'}]{share:.3f}[/]"
        for name, share in shares
    ]
    return (
        f"{', '.join(coloured)} against the scenes' truth "
        f"({accuracy.true_positives} found, {accuracy.missed} missed, "
        f"{accuracy.false_positives} wrong)"
    )


def _stream_table(report: Report) -> Table:
    # Narrow on purpose: all of it fits a terminal of 80 columns.
    table = _plain("Streams (times in ms)", "stream", "received", "ok", "expired", "skipped",
                   "dead", "interval", "p50", "p99", "prec", "rec")  # fmt: skip
    table.padding = (0, 1, 0, 0)
    for row in report.streams:
        table.add_row(*_stream_cells(row))
    return table


def _stream_cells(row: StreamRow) -> list[str | Text]:
    accuracy = row.accuracy
    return [
        Text(row.stream),
        str(row.received),
        str(row.ok),
        _quiet_zero(row.expired),
        _quiet_zero(row.skipped),
        _quiet_zero(row.dead_lettered),
        _ms(row.interval_ms),
        _ms(row.e2e_p50_ms),
        _ms(row.e2e_p99_ms),
        "-" if accuracy is None else f"{accuracy.precision:.2f}",
        "-" if accuracy is None else f"{accuracy.recall:.2f}",
    ]


def _batch_sizes(report: Report) -> Table:
    table = _plain("Batch sizes", "frames", "batches")
    most = max(report.batch_sizes.values(), default=1)
    for size, batches in report.batch_sizes.items():
        table.add_row(str(size), str(batches), _bar(batches / most))
    return table


def _closed_by(report: Report) -> Table:
    table = _plain("Closed by", "reason", "batches")
    most = max(report.closed_by.values(), default=1)
    for reason, batches in report.closed_by.items():
        table.add_row(reason, str(batches), _bar(batches / most))
    return table


def _buckets(report: Report) -> Table:
    # Not how full they were: a device that has nothing to do starts with what is there.
    table = _plain("Buckets", "bucket", "batches", "frames", "per batch")
    for row in report.buckets:
        per_batch = f"{row.frames / row.batches:.1f}"
        table.add_row(row.bucket, str(row.batches), str(row.frames), per_batch)
    return table


def _stages(report: Report) -> Table:
    table = _plain("Stages (ms)", "stage", "mean", "p50", "p99")
    for row in report.stages:
        table.add_row(row.stage, f"{row.mean_ms:.1f}", f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}")
    return table


def _plain(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right")
    return table


def _side_by_side(console: Console, left: Table, right: Table) -> RenderableType:
    if console.width < 90:
        return Group(left, Text(), right)
    grid = Table.grid(padding=(0, 6, 0, 0))
    grid.add_row(left, right)
    return grid


def _bar(share: float) -> Text:
    return Text("█" * max(round(share * _BAR), 1), style="cyan")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _quiet_zero(number: int) -> Text:
    return Text(str(number), style="" if number else "dim")
