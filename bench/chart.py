"""`python -m bench chart FILE`: bar charts (PNG) and tables (Markdown) of the results of `python -m bench peers`.

Matplotlib is no dependency of the package. Where it is missing, it is installed into an environment of its own, as the
peers are, and this module runs again in there. So it imports nothing of Penstock.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import targets
from bench.peers.install import environment_of
from bench.results import figure, read
from bench.systems import ROOT, System

INTO = ROOT / "docs" / "explanation" / "performance"
PAGE = "figures.md"
OURS, THEIRS, INK, FAINT = "#0b6e8f", "#b9c4ca", "#22303a", "#dfe5e8"
MATPLOTLIB = System("chart", "", "", "", "", packages=("matplotlib",))

Line = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """Chart of one workload, with a bar for each system that was measured."""

    file: str
    title: str
    storage: str
    workloads: tuple[str, ...]
    lowest_first: bool = False
    #: Workloads that are in the table only.
    also: tuple[str, ...] = ()


CHARTS = (
    Chart("drain", "Draining a full queue, one worker process", "redis", ("drain", "drain/default")),
    Chart("enqueue-one", "Enqueueing one job at a time", "redis", ("enqueue/one", "sync-enqueue")),
    Chart("enqueue-many", "Enqueueing many jobs in one call", "redis", ("enqueue/many",)),
    Chart("call", "Request and response through an idle worker, median", "redis", ("call/p50",), True, ("call/p99",)),
    Chart("pickup", "Pickup of a job by an idle worker, median", "redis", ("pickup/p50",), True, ("pickup/p99",)),
    Chart("sqlite-drain", "Draining a full queue on an SQLite file", "sqlite", ("drain", "drain/processes-2")),
    Chart("sqlite-enqueue", "Enqueueing on an SQLite file", "sqlite", ("enqueue/many", "sync-enqueue")),
)
NAMES = {
    "drain/default": "default options",
    "drain/processes-2": "two processes",
    "sync-enqueue": "sync",
    "enqueue/many": "many at once",
    "call/p99": "99th percentile",
    "pickup/p99": "99th percentile",
}
#: Where less is better, a bar is cut off at this multiple of the best one.
LONGEST_BAR = 12


def chosen(chart: Chart, lines: Sequence[Line], *, table: bool = False) -> list[Line]:
    """Return the lines of a chart, or of its table, the best first."""
    workloads = chart.workloads + (chart.also if table else ())
    found = [line for line in lines if line["storage"] == chart.storage and line["workload"] in workloads]
    sign = 1 if chart.lowest_first else -1
    return sorted(found, key=lambda line: (line["workload"] in chart.also, sign * line["median"]))


def label(line: Line, chart: Chart) -> str:
    more = [NAMES[line["workload"]]] if line["workload"] in NAMES and len(chart.workloads + chart.also) > 1 else []
    if not line["guarantee"].startswith("at least once"):
        more.append(line["guarantee"])
    name = f"{line['system']} {line['version']}"
    return f"{name} ({', '.join(more)})" if more else name


def draw(chart: Chart, lines: Sequence[Line], about: dict[str, Any], into: Path) -> Path:
    """Draw the bars from the best to the worst, the spread of the rounds as a thin line; return the file."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    height = 0.36 * len(lines) + 1.3
    picture, axes = pyplot.subplots(figsize=(9, height), dpi=140, layout="constrained")
    at = range(len(lines), 0, -1)
    medians = [line["median"] for line in lines]
    spread = [
        [line["median"] - line["spread"][0] for line in lines],
        [line["spread"][1] - line["median"] for line in lines],
    ]
    colours = [OURS if line["system"] == "penstock" else THEIRS for line in lines]
    axes.barh(at, medians, color=colours, height=0.68)
    axes.errorbar(medians, at, xerr=spread, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    widest: float = max(line["spread"][1] for line in lines)
    if chart.lowest_first:
        widest = min(widest, medians[0] * LONGEST_BAR)
    for position, line in zip(at, lines, strict=True):
        end, text = line["spread"][1], figure(line["median"])
        if end > widest:
            box = {"facecolor": colours[len(lines) - position], "edgecolor": "none", "pad": 2}
            axes.text(widest * 1.1, position, f"{text} →", va="center", ha="right", size=9, color=INK, bbox=box)
        else:
            axes.text(end + widest * 0.012, position, text, va="center", size=9, color=INK)
    axes.set_yticks(list(at), [label(line, chart) for line in lines], size=9.5, color=INK)
    axes.set_xlim(0, widest * 1.12)
    _remove_frame(axes)
    better = "less is better" if chart.lowest_first else "more is better"
    axes.set_title(chart.title, loc="left", size=12, weight="bold", color=INK, pad=22)
    axes.text(0, 1.02, f"{lines[0]['unit']}, {better}", transform=axes.transAxes, size=9, color=INK)
    where = f"{lines[0]['storage_version']}, {about['cores']} cores, {about['cpu']}, {about['date']}; median and spread"
    axes.set_xlabel(f"{where} of {len(lines[0]['values'])} rounds", size=8, color=INK, loc="left")
    path = into / f"{chart.file}.png"
    picture.savefig(path)
    pyplot.close(picture)
    return path


def _remove_frame(axes: Any) -> None:
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.tick_params(axis="x", labelsize=8, labelcolor=INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)


def rows(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in cells)]


def page(about: dict[str, Any], lines: Sequence[Line], charts: Sequence[Chart]) -> Iterator[str]:
    """Yield the figures in Markdown: the machine, the targets, then all measurements."""
    yield "# Figures\n"
    yield (
        f"Taken on {about['date']} on {about['cores']} cores ({about['cpu']}), {about['memory_gb']} GB,"
        f" {about['system']}, Python {about['python']}; load {about['load_before']} before. Servers on loopback,"
        " without persistence; client, worker and server share the cores. Each figure is the median of"
        f" {len(lines[0]['values'])} rounds in which all systems took turns; only ratios within one run count.\n"
    )
    yield "## Targets\n"
    cells = [
        [v.work, v.target, v.reached, "met" if v.met else "**not met**", v.against]
        for v in targets.target_results(lines)
    ]
    yield "\n".join(rows(("work", "target", "reached", "", "ours : theirs"), cells)) + "\n"
    for chart in charts:
        yield f"## {chart.title}\n\n![{chart.title}]({chart.file}.png)\n"
        yield "\n".join(rows(("system", "median", "spread", "unit", "promise", "CPU µs, producer or worker", "server"),
                             [_cells(line, chart) for line in chosen(chart, lines, table=True)])) + "\n"  # fmt: skip
    yield "## Ours alone\n"
    drawn = {(chart.storage, workload) for chart in charts for workload in chart.workloads + chart.also}
    mine = [line for line in lines if line["system"] == "penstock"]
    rest = [line for line in mine if (line["storage"], line["workload"]) not in drawn]
    cells = [[line["workload"], line["storage"], figure(line["median"]), _spread(line), line["unit"]] for line in rest]
    yield "\n".join(rows(("workload", "storage", "median", "spread", "unit"), cells)) + "\n"
    yield "## Settings\n"
    settings = {(line["system"], line["storage"]): line for line in lines}
    cells = [[system, storage, line["version"], line["guarantee"], line["settings"]]
             for (system, storage), line in settings.items() if system != "penstock"]  # fmt: skip
    yield "\n".join(rows(("system", "storage", "version", "promise", "settings"), cells)) + "\n"


def _spread(line: Line) -> str:
    return " – ".join(figure(value) for value in line["spread"])


def _cells(line: Line, chart: Chart) -> list[str]:
    costs = [figure(line["cpu_us_client"]), figure(line["cpu_us_server"])]
    return [label(line, chart), figure(line["median"]), _spread(line), line["unit"], line["guarantee"], *costs]


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench chart", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines from `python -m bench peers`")
    parser.add_argument("--into", type=Path, default=INTO, help="folder of the pictures and of figures.md")
    args = parser.parse_args(given)
    if importlib.util.find_spec("matplotlib") is None:
        environment = environment_of(MATPLOTLIB)
        command = [environment.python, "-m", "bench.chart", *given]
        return subprocess.run(command, env=environment.variables(), check=False).returncode
    about, lines = read(args.file)
    args.into.mkdir(parents=True, exist_ok=True)
    charts = [chart for chart in CHARTS if chosen(chart, lines)]
    for chart in charts:
        print(draw(chart, chosen(chart, lines), about, args.into))
    text = "\n".join(page(about, lines, charts))
    (args.into / PAGE).write_text(text)
    print(args.into / PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
