"""Results of a benchmark: figures with their goals, the method, and the files that store them."""

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
_BEGIN, _END = "<!-- figures: written by python -m benchmarks -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number; ``goal`` is an upper limit, if any."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Return True if the goal is met, None without a goal."""
        return None if self.goal is None else self.value <= self.goal


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of one run of one benchmark.

    ``how`` describes the method in sentences, and why it is fair; ``raw`` has the samples;
    ``versions`` those of other measured software, such as HTCondor; ``command`` repeats the run, if that
    is not ``python -m benchmarks NAME``.
    """

    name: str
    figures: tuple[Figure, ...]
    how: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None

    def write(self, folder: Path, *, quick: bool) -> Path:
        """Write it to *folder* as JSON, with the date, the machine and the command that repeats it."""
        folder.mkdir(parents=True, exist_ok=True)
        words = ["python", "-m", "benchmarks", self.name, *(["--quick"] if quick else [])]
        document = {
            "name": self.name,
            "date": datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": self.command or " ".join(words),
            "quick": quick,
            "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
            "versions": {"Python": platform.python_version(), **self.versions},
            "load_average": [round(load, 2) for load in os.getloadavg()],
            "how": self.how,
            "figures": [{**asdict(figure), "met": figure.met} for figure in self.figures],
            "raw": self.raw,
        }
        file = folder / f"{self.name}.json"
        file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        return file


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 99th percentile and extremes of some samples."""

    count: int
    p50: float
    p99: float
    least: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """Compute nearest-rank percentiles: p99 of fewer than 100 samples is the largest one."""
        ordered = sorted(samples)
        rank = max(0, math.ceil(0.99 * len(ordered)) - 1)
        return cls(len(ordered), statistics.median(ordered), ordered[rank], ordered[0], ordered[-1])


def round_samples(samples: Sequence[float], digits: int = 4) -> list[float]:
    """Round samples for storage."""
    return [round(sample, digits) for sample in samples]


def format_number(value: float) -> str:
    """Format *value* with some three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(document: Mapping[str, Any]) -> list[str]:
    """Format one result as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    machine = f"{document['machine']}, load {document['load_average'][1]:g} at its end"
    lines = [
        f"### {document['name']}",
        "",
        " · ".join((document["date"], versions, machine, f"`{document['command']}`")),
        "",
        document["how"],
        "",
        "| figure | measured | goal | |",
        "|---|---|---|---|",
    ]
    for figure in document["figures"]:
        goal = "" if figure["goal"] is None else f"≤ {format_number(figure['goal'])} {figure['unit']}"
        met = {None: "", True: "met", False: "**missed**"}[figure["met"]]
        remark = "; ".join(text for text in (met, figure["note"]) if text)
        lines.append(
            f"| {figure['name']} | {format_number(figure['value'])} {figure['unit']} | {goal} | {remark} |"
        )
    return [*lines, ""]


def update_readme(results: Path, readme: Path = README) -> None:
    """Write the tables of all *results* between the two marks in *readme*.

    ``benefit.json`` has cells instead of figures, and a page of its own.
    """
    documents = [json.loads(file.read_text("utf-8")) for file in sorted(results.glob("*.json"))]
    body = "\n".join(line for document in documents if "figures" in document for line in table(document))
    before, _, rest = readme.read_text("utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    readme.write_text(f"{before}{_BEGIN}\n\n{body}\n{_END}{after}", "utf-8")
