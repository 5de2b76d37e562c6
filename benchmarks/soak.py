"""``python -m benchmarks.soak [--minutes 120] [--results FOLDER]``: check that the daemon does not grow.

A real pool, the real daemon as a process, a catalogue that changes every few seconds, hooks, jobs, clients,
and a fault now and then. Every ten seconds it records the resources of the daemon and its HTCondor child. It
writes the measurements every minute, so an interrupted run leaves a result.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec, ToolFailed

from .record import RESULTS, Figure, Result, update_readme

SITES = ("UK", "AU", "NL")
DIDS = tuple(f"soak:set{number:03}" for number in range(60))
KEPT = 240
"""Samples in the result, evenly chosen."""
POLL_SECONDS = 3.0
GOALS = {
    "daemon, memory": (2.0, "MiB/h"),
    "daemon, descriptors": (1.0, "1/h"),
    "daemon, threads": (1.0, "1/h"),
    "HTCondor child, memory": (2.0, "MiB/h"),
    "HTCondor child, descriptors": (1.0, "1/h"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources in use at one moment; the child's values are None without a child."""

    seconds: float
    rss: float
    fds: int
    threads: int
    child: int | None
    child_rss: float | None
    child_fds: int | None
    generation: int


@dataclass(slots=True)
class Course:
    """Samples and events so far; times are seconds since the start."""

    samples: list[Sample] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    highest: dict[str, int] = field(default_factory=dict)


class Every:
    """A timer that is due about every *seconds*; missed periods are not repeated."""

    def __init__(self, seconds: float, first: float | None = None) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + (seconds if first is None else first)

    def __call__(self) -> bool:
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._seconds * random.uniform(0.8, 1.2)
        return True


class Soak:
    """The installation, its load and faults, and the samples."""

    def __init__(self, pool: Pool, catalogue: ListedCatalogue, installed: Installation) -> None:
        self.course = Course()
        self._pool = pool
        self._catalogue = catalogue
        self._installed = installed
        self._begun = time.monotonic()
        self._here = {did: {site for site in SITES if random.random() < 0.7} for did in DIDS}
        self._tags: dict[str, str] = {}
        self._torn_until: float | None = None
        self._client = httpx.Client(base_url=installed.url, trust_env=False, timeout=5)
        self._quiet_until = 0.0

    def run(self, seconds: float, written: "Written") -> None:
        """Run all steps in turn until *seconds* have passed."""
        # demand all datasets from the start, so that demand does not grow
        self._installed.submit(DIDS, mode="require", more="requirements = false\n")
        faults = (
            (Every(240, seconds / 12), self._tear),
            (Every(900, seconds / 10), self._restart_collector),
            (Every(1800, seconds / 8), self._kill_child),
            (Every(1800, seconds / 6), self._reload),
        )
        work = (
            *((due, lambda fault=fault: self._fault(fault)) for due, fault in faults),
            (Every(4, 0), self._change),
            (Every(30, 0), self._submit),
            (Every(2, 0), self._look),
            (Every(15), lambda: self._get("/metrics")),
            (Every(60), self._look_at_collector),
            (Every(10, 0), lambda: self.course.samples.append(self._sample())),
            (Every(60), lambda: written.write(self.course)),
        )
        while time.monotonic() - self._begun < seconds:
            for due, what in work:
                if due():
                    what()
            time.sleep(0.25)
        self._client.close()
        written.write(self.course)

    def _fault(self, fault: Callable[[], None]) -> None:
        self.course.faults.append((self._seconds(), fault.__name__.strip("_")))
        fault()

    def _seconds(self) -> float:
        return round(time.monotonic() - self._begun, 1)

    def _list(self) -> None:
        self._catalogue.hold({did: dict.fromkeys(sorted(at), "available") for did, at in self._here.items()})

    def _change(self) -> None:
        if self._torn_until is not None and time.monotonic() < self._torn_until:
            return
        self._torn_until = None
        self._here[random.choice(DIDS)] ^= {random.choice(SITES)}
        self.course.done["catalogue changes"] += 1
        self._list()

    def _tear(self) -> None:
        file = self._pool.home / "catalogue.json"
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        self._torn_until = time.monotonic() + 20

    def _restart_collector(self) -> None:
        self._pool.kill_daemon("collector")
        self._quiet_until = time.monotonic() + 120

    def _kill_child(self) -> None:
        if child := self._child():
            os.kill(child, signal.SIGKILL)

    def _reload(self) -> None:
        os.kill(self._installed.pid, signal.SIGHUP)

    def _submit(self) -> None:
        try:
            self._installed.submit(random.sample(DIDS, 2), seconds=1)
            self.course.done["jobs"] += 1
        except ToolFailed:
            self.course.done["refused submissions"] += 1

    def _get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response | None:
        try:
            answer = self._client.get(path, headers=headers)
        except httpx.HTTPError as error:
            self._wrong(f"{path}: {error!r}")
            return None
        self.course.done["requests"] += 1
        if answer.status_code not in {200, 304}:
            self._wrong(f"{path}: {answer.status_code}")
        return answer

    def _look(self) -> None:
        for site in SITES:
            tag = {"If-None-Match": self._tags[site]} if site in self._tags else {}
            answer = self._get(f"/v1/sites/{site}/ad", tag)
            if answer is None or answer.status_code != 200:
                continue
            self._tags[site] = answer.headers["etag"]
            found = dict(line.split(" = ", 1) for line in answer.text.splitlines())
            self._generation("HTTP", site, int(found["DataLocalityGeneration"]))

    def _look_at_collector(self) -> None:
        if time.monotonic() < self._quiet_until:
            return
        ads = self._pool.ads('MyType == "DataLocality"', "DataLocalitySite", "DataLocalityGeneration")
        seen = {ad["DataLocalitySite"]: ad["DataLocalityGeneration"] for ad in ads}
        for site in SITES:
            if site not in seen:
                self._wrong(f"{site} is not in the collector")
            else:
                self._generation("collector", site, seen[site])
        slots = self._pool.slots("Name", constraint="PartitionableSlot && DataLocalityAsOf is undefined")
        if slots:
            self._wrong(f"slots without our attributes: {len(slots)}")

    def _generation(self, where: str, site: str, number: int) -> None:
        key = f"{where} {site}"
        if number < self.course.highest.get(key, 0):
            self._wrong(f"generation went back from {self.course.highest[key]} to {number}: {key}")
        self.course.highest[key] = max(number, self.course.highest.get(key, 0))

    def _wrong(self, what: str) -> None:
        print(f"   {self._seconds():.0f} s: {what}", file=sys.stderr, flush=True)
        self.course.wrong.append(f"{self._seconds():.0f} s: {what}")

    def _child(self) -> int | None:
        for task in Path(f"/proc/{self._installed.pid}/task").iterdir():
            for pid in (task / "children").read_text("utf-8").split():
                try:
                    if b"adapters.condor.bindings.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
                except OSError:
                    continue
        return None

    def _sample(self) -> Sample:
        child = self._child()
        rss, fds, threads = usage(self._installed.pid)
        child_rss: float | None = None
        child_fds: int | None = None
        if child:
            try:
                child_rss, child_fds, _ = usage(child)
            except OSError:
                child = None
        generation = max(self.course.highest.values(), default=0)
        return Sample(self._seconds(), rss, fds, threads, child, child_rss, child_fds, generation)


def usage(pid: int) -> tuple[float, int, int]:
    """Return resident MiB, open descriptors and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines())
    fds = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(status["VmRSS"].split()[0]) / 1024, fds, int(status["Threads"])


def slope(points: Sequence[tuple[float, float, object]]) -> float:
    """Return the least-squares growth of a value over time, in units an hour.

    A point is ``(seconds, value, life)``: each life has its own offset, since a restarted process starts low;
    the slope within a life counts.
    """
    above = below = 0.0
    for life in {life for _, _, life in points}:
        own = [(seconds, value) for seconds, value, its in points if its == life]
        middle = statistics.fmean(seconds for seconds, _ in own)
        level = statistics.fmean(value for _, value in own)
        above += sum((seconds - middle) * (value - level) for seconds, value in own)
        below += sum((seconds - middle) ** 2 for seconds, _ in own)
    return 3600 * above / below if below else 0.0


def figures(course: Course, warm: float) -> list[Figure]:
    """Return growth after *warm* seconds, extremes, and failures."""
    later = [sample for sample in course.samples if sample.seconds >= warm] or course.samples
    grown: dict[str, list[tuple[float, float, object]]] = {
        "daemon, memory": [(s.seconds, s.rss, 0) for s in later],
        "daemon, descriptors": [(s.seconds, s.fds, 0) for s in later],
        "daemon, threads": [(s.seconds, s.threads, 0) for s in later],
        # over all its lives: it leaks a little with each call, so it is replaced after some calls
        "HTCondor child, memory": [(s.seconds, s.child_rss, 0) for s in later if s.child_rss],
        "HTCondor child, descriptors": [(s.seconds, s.child_fds, s.child) for s in later if s.child_fds],
    }
    found = []
    for name, points in grown.items():
        goal, unit = GOALS[name]
        values = [value for _, value, _ in points] or [0]
        note = f"{min(values):,.1f} to {max(values):,.1f}, last {values[-1]:,.1f}"
        found.append(Figure(f"{name}, growth", slope(points), unit, goal, note))
    minutes = course.samples[-1].seconds / 60 if course.samples else 0
    faults = Counter(name for _, name in course.faults)
    found += [
        Figure("duration", minutes, "min", None, f"the first {warm / 60:.0f} min are warm-up"),
        Figure(
            "faults", len(course.faults), "", None, ", ".join(f"{n} {k}" for k, n in sorted(faults.items()))
        ),
        Figure("what went wrong", len(course.wrong), "", 0, "; ".join(course.wrong[:3])),
    ]
    return found + [Figure(name, count, "") for name, count in sorted(course.done.items())]


@dataclass(frozen=True, slots=True)
class Written:
    """The result file, with the values known beforehand."""

    folder: Path
    minutes: float
    version: str
    warm: float

    def write(self, course: Course) -> Result:
        chosen = course.samples[:: max(1, -(-len(course.samples) // KEPT))]
        raw = {
            "samples": [asdict(sample) for sample in chosen],
            "faults": course.faults,
            "wrong": course.wrong[:100],
        }
        result = Result(
            "soak",
            tuple(figures(course, self.warm)),
            " ".join(HOW.split()),
            raw,
            {"HTCondor": self.version},
            command=f"python -m benchmarks.soak --minutes {self.minutes:g}",
        )
        result.write(self.folder, quick=False)
        return result


HOW = """\
A real pool of three sites, `hydrator run` as a process (catalogue and schedd polled every 3 s, ads to the
collector, to files and over HTTP), the hook under every startd every 10 s by HTTP. One of 60 datasets,
all demanded from the start, arrives at or leaves one of three sites about every 4 s; a job that names two
of them is submitted every 30 s; a client requests all ads every 2 s (If-None-Match) and for /metrics
every 15 s. Faults: the catalogue's file incomplete for 20 s (about every 4 min), the collector killed (15
min), the child that holds the HTCondor bindings killed (30 min), SIGHUP (30 min). Resident memory,
descriptors and threads come from /proc every 10 s; growth is the least squares slope after the warm-up (a
tenth of the run), for the child's descriptors within each of its lives. `What went wrong` counts answers
other than 200 and 304, sites missing from the collector two minutes after it was killed, slots without
the attributes, and generations that went back."""


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; return 1 after growth or a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    seconds = options.minutes * 60
    release = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    with Pool.start(release, [SiteSpec(name, cpus=2) for name in SITES]) as pool:
        catalogue = ListedCatalogue(pool.home, SITES)
        installed = Installation(pool, catalogue, road="url", period_seconds=10, poll_seconds=POLL_SECONDS)
        with installed:
            written = Written(options.results, options.minutes, pool.version, seconds / 10)
            soak = Soak(pool, catalogue, installed)
            soak.run(seconds, written)
            result = written.write(soak.course)
    for figure in result.figures:
        missed = "  MISSED" if figure.met is False else ""
        print(f"   {figure.name}: {figure.value:.3g} {figure.unit}  {figure.note}{missed}", flush=True)
    if options.results == RESULTS:
        update_readme(RESULTS)
    flat = all(figure.met is not False for figure in result.figures)
    print("flat, and nothing went wrong" if flat else "NOT FLAT, or something went wrong", flush=True)
    print(json.dumps(soak.course.wrong[:20], indent=1) if soak.course.wrong else "", flush=True)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
