"""The map: tables in Markdown and a picture in SVG, made of ``benefit.json`` alone.

python -m benchmarks.benefit.map [BENEFIT_JSON]

It writes benchmarks/results/benefit.md and its picture.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .goals import describe_half
from .picture import COLUMNS_OF_ARMS, draw
from .workload import COMPUTE_SECONDS, JOBS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE, PICTURE = RESULTS / "benefit.md", RESULTS / "benefit.svg"
BEGIN, END = "<!-- benefit: written by make benefit -->", "<!-- end of benefit -->"

_SPEEDUP_TEXT = (
    "Against the stock pool of the same seeds. In brackets: the interval of 95 %; with five seeds or fewer"
    " the least and the largest. **Best** is computed."
)

Figures = Mapping[str, Any]
"""One cell and arm of the result file."""
Place = tuple[str, str, str, float]
"""Layout, mix, form of submission, and mean computing time of a job in seconds."""


def page_text(document: Figures) -> str:
    """Return the part of the page with figures: speed-ups, who waited longer, goals, and the machine."""
    cells = _whole_runs(document["cells"])
    parts = [
        _machine(document),
        "### Speed-up of the makespan",
        _SPEEDUP_TEXT,
        *_tables(cells, _speedup),
        *_commits(cells),
        *_halves(cells),
        "### Turnaround: mean, and 95th percentile",
        "Divided by the turnaround in the stock pool: below 1 is faster.",
        *_tables(cells, _turnaround),
        "### Bytes read at the job's own site",
        "The second number is the bytes read from other sites, divided by those of the stock pool.",
        *_tables(cells, _local),
        "### Who waited longer",
        "The share of jobs whose turnaround is longer than in the stock pool by a tenth or more.",
        *_tables(cells, _longer),
        *_no_data(cells),
        "### Load of the machine",
        "The mean load average during the runs. A high load lowers the figures of arms that keep slots busy.",
        *_tables([each for each in cells if each.get("load") is not None], _load),
        *_goals(document["goals"]),
    ]
    return "\n\n".join(parts)


def picture_text(document: Figures) -> str:
    """Return the picture as SVG."""
    return draw(_whole_runs(document["cells"]))


def _whole_runs(cells: Sequence[Figures]) -> list[Figures]:
    """Leave out cells with less work than the experiment's: those are tries."""
    return [each for each in cells if each["jobs"] * each["seconds"] >= JOBS * COMPUTE_SECONDS]


def _machine(document: Figures) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    least, mean, most = document["load_average"]
    return (
        f"{document['runs']} runs, {document['date']}, {document['machine']}, {versions},"
        f" commit {document['commit']}.\nLinks: {document['links']}."
        f" Load average during the runs: {mean:g} ({least:g} to {most:g}).{_failed(document)}"
    )


def _failed(document: Figures) -> str:
    failed = document.get("failed_runs", [])
    if not failed:
        return " No run failed."
    arms = ", ".join(sorted({f"{each['arm']} at x = {each['x']:g}" for each in failed}))
    count = "1 run failed and was" if len(failed) == 1 else f"{len(failed)} runs failed and were"
    return f" {count} repeated ({arms})."


def _tables(cells: Sequence[Figures], form: Any) -> list[str]:
    """Return a table for each place, with a heading line."""
    places: dict[Place, list[Figures]] = defaultdict(list)
    for each in cells:
        places[_place(each)].append(each)
    parts = []
    for place, rows in places.items():
        arms = [arm for arm in COLUMNS_OF_ARMS if any(each["arm"] == arm for each in rows)]
        parts += [f"*{_title(place)}*", _table(rows, arms, form)]
    return parts


def _table(rows: Sequence[Figures], arms: Sequence[str], form: Any) -> str:
    lines = [f"| x | {' | '.join(arms)} |", "|---" * (len(arms) + 1) + "|"]
    by_x: dict[float, dict[str, Figures]] = defaultdict(dict)
    for each in rows:
        by_x[each["x"]][each["arm"]] = each
    for x, found in sorted(by_x.items()):
        texts = [form(found[arm]) if arm in found else "" for arm in arms]
        lines.append(f"| {x:g} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _speedup(figures: Figures) -> str:
    if figures["arm"] == "off":
        return f"{figures['makespan_s']:.0f} s"
    low, high = figures["interval"]
    spread = f" ({low:.2f} to {high:.2f}; {len(figures['seeds'])} seeds)" if len(figures["seeds"]) > 1 else ""
    stuck = f", {figures['never_ran']} jobs never ran" if figures.get("never_ran") else ""
    return f"{figures['speedup']:.2f}{spread}{stuck}"


def _turnaround(figures: Figures) -> str:
    return f"{figures['turnaround_mean_ratio']:.2f}, {figures['turnaround_p95_ratio']:.2f}"


def _local(figures: Figures) -> str:
    remote = figures.get("remote_bytes_ratio")
    return f"{figures['bytes_local']:.0%}" + ("" if remote is None else f", {remote:.2f}")


def _longer(figures: Figures) -> str:
    return f"{figures['longer_share']:.0%}"


def _load(figures: Figures) -> str:
    return f"{figures['load']:.0f}"


def _no_data(cells: Sequence[Figures]) -> list[str]:
    """Return the table of the jobs without datasets; nothing if no cell has such jobs."""
    rows = [each for each in cells if each.get("no_data_ratio") is not None]
    if not rows:
        return []
    head = "### Jobs without datasets"
    text = "Their mean turnaround divided by the one in the stock pool: above 1, they waited longer."
    return [head, text, *_tables(rows, lambda figures: f"{figures['no_data_ratio']:.2f}")]


def _commits(cells: Sequence[Figures]) -> list[str]:
    """Return a warning that names the places where arms of one cell are of different commits."""
    by_cell: dict[tuple[Place, float], set[str]] = defaultdict(set)
    for each in cells:
        by_cell[_place(each), each["x"]].update(each.get("commits", ()))
    mixed: dict[Place, list[str]] = defaultdict(list)
    for (place, x), commits in by_cell.items():
        if len(commits) > 1:
            mixed[place].append(f"{x:g}")
    if not mixed:
        return []
    named = [f"- {_title(place)}: x = {', '.join(xs)}" for place, xs in mixed.items()]
    warning = "In these cells the runs are of different commits, so arms may differ because of the commits:"
    return [warning, "\n".join(named)]


def _halves(cells: Sequence[Figures]) -> list[str]:
    """Return the table of the experiment and its repetition; nothing if no arm has enough seeds."""
    rows = [each for each in cells if each["arm"] in ("require", "auto") and each.get("halves")]
    if not rows:
        return []
    lines = ["| cell | arm | first half of the seeds | second half |", "|---|---|---|---|"]
    for each in rows:
        first, second = map(describe_half, each["halves"])
        lines.append(f"| {_title(_place(each))}, x = {each['x']:g} | {each['arm']} | {first} | {second} |")
    text = "Speed-ups of the first half of the seeds, and of the second half, which repeats it."
    return ["### The experiment repeated", text, "\n".join(lines)]


def _goals(goals: Sequence[Figures]) -> list[str]:
    """Return the goals: how many are met, and each missed one with its reason."""
    if not goals:
        return ["### Goals", "The arms that the goals need have not run yet."]
    missed = [goal for goal in goals if not goal["met"]]
    lines = ["| missed goal | cell | measured | limit | reason |", "|---|---|---|---|---|"]
    for goal in missed:
        cell = _title(_place(goal))
        cell = f"{cell}, x = {goal['x']:g}"
        limit = f"{goal['value']:.2f} | {goal['sign']} {goal['limit']:g}"
        lines.append(f"| {goal['goal']} | {cell} | {limit} | {goal['reason']} |")
    text = f"{len(goals) - len(missed)} of {len(goals)} are met."
    return ["### Goals", text, *(["\n".join(lines)] if missed else [])]


def _place(figures: Figures) -> Place:
    return figures["layout"], figures["mix"], figures["submitted"], figures["seconds"]


def _title(place: Place) -> str:
    layout, mix, submitted, seconds = place
    length = "" if seconds == COMPUTE_SECONDS else f", jobs of {seconds:g} s"
    return f"{layout}, {'one dataset a job' if mix == 'one' else mix}, {submitted}{length}"


def fill(file: Path, text: str) -> None:
    """Replace what is between the two marks in *file* by *text*.

    Raises:
        ValueError: the file does not have both marks.
    """
    before, first, rest = file.read_text("utf-8").partition(BEGIN)
    _old, second, after = rest.partition(END)
    if not (first and second):
        raise ValueError(f"{file.name} has no marks for the figures")
    file.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def main(arguments: Iterable[str]) -> None:
    """Write page and picture."""
    path = next(iter(arguments), str(RESULTS / "benefit.json"))
    document = json.loads(Path(path).read_text("utf-8"))
    PICTURE.write_text(picture_text(document), "utf-8")
    fill(PAGE, page_text(document))


if __name__ == "__main__":
    main(sys.argv[1:])
