"""Demo: jobs with only ``+RequiredDatasets`` run where their data is (``make demo``).

    python -m testbed.demo [--catalogue file|rucio|dmapi] [--release 25.14|23.9]

Sets up a pool of three sites and the daemon, submits jobs, and checks each against the catalogue's content
when the job started. Then a dataset arrives at one site and another one leaves, and the checks are
repeated. Exit status 0 when every job ran at a site that has its data, 1 when one did not or no job could
be checked, 130 when it was interrupted. Nothing is left over.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn, Protocol, Self

import httpx
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

from .cached import Unavailable
from .dmapi_holdings import DmapiHoldings
from .dmapi_standin import DmapiStandIn
from .files import write_secret
from .installation import Installation, ListedCatalogue
from .pool import THREE_SITES, Pool, ToolFailed, site_of
from .rucio import RucioServer, server_python

State = Literal["available", "staging", "partial", "nearline"]
PRINT_FORMAT = Path(__file__).parents[1] / "deploy" / "condor" / "locality.cpf"

ONE, TWO, THREE, FOUR = (f"lofar:L667526_SB00{number}" for number in (1, 2, 3, 4))
AT_FIRST: Mapping[str, Mapping[str, State]] = {
    ONE: {"UK": "available", "NL": "nearline"},
    TWO: {"AU": "available", "NL": "partial"},
    THREE: {"NL": "available", "UK": "partial"},
    FOUR: {"AU": "available", "NL": "available"},
}
"""Datasets of the catalogue at the start of the demo: a stock pool would fill NL, the smallest, first."""
ON_SITE: Mapping[State, str] = {"available": "on disk", "nearline": "on tape", "partial": "in part"}
INTRODUCTION = "A real HTCondor pool of three sites. A job only names the datasets that it reads."
NEXT = "next: docs/operators/install.md for your pool, docs/users/submit.md for your jobs"

BRISK: Mapping[str, str] = {"startd": "UPDATE_INTERVAL = 5\n"}
"""HTCondor 23.9 shows what a hook printed only with the startd's next regular update, ``update:true``
or not (seen on 23.9.6; 25.14 sends it at once), and so it waits less here than with a real pool's 300 s."""

WAITING = '[jobs]\ndefault_mode = "wait"\n'
"""The demo shows jobs that wait for data on its way; jobs of mode ``auto`` would read it from elsewhere."""


# --- catalogues that can be changed, and asked for the truth ------------------------------------------


class Tellable(Protocol):
    """A source of the datasets that are available, by dataset."""

    def available(self) -> dict[str, frozenset[str]]:
        """By dataset, the sites where it is complete on disk, as the catalogue itself answers now."""


class Holdings(Tellable, Protocol):
    """A catalogue for the daemon whose content the demo changes.

    ``on_its_way`` is the state of a dataset in transfer, as far as the catalogue reports it.
    """

    on_its_way: str

    def section(self) -> str:
        """Its part of the daemon's configuration, in TOML."""

    def put(self, did: str, states: Mapping[str, State]) -> None:
        """A new dataset: by site, how it is there."""

    def send(self, did: str, site: str) -> None:
        """Begin to bring it to *site*: from now on it is staging there."""

    def arrive(self, did: str, site: str) -> None:
        """Let it be complete on disk at *site*."""

    def leave(self, did: str, site: str) -> None:
        """Take it from *site*."""


class ListedHoldings(ListedCatalogue):
    """:class:`Holdings` in the embedded ``file`` catalogue."""

    on_its_way = "STAGING"

    def put(self, did: str, states: Mapping[str, State]) -> None:
        self.add(did, **states)

    def send(self, did: str, site: str) -> None:
        self.add(did, **self._datasets[did]["sites"] | {site: "staging"})

    def arrive(self, did: str, site: str) -> None:
        self.add(did, **self._datasets[did]["sites"] | {site: "available"})

    def leave(self, did: str, site: str) -> None:
        self.add(did, **{at: state for at, state in self._datasets[did]["sites"].items() if at != site})

    def available(self) -> dict[str, frozenset[str]]:
        """Return the content of the file."""
        listed = json.loads(self._file.read_text("utf-8"))["datasets"]
        return {
            did: frozenset(site for site, state in entry["sites"].items() if state == "available")
            for did, entry in listed.items()
        }


class RucioHoldings:
    """:class:`Holdings` in a real Rucio server: rules, transfers and deletions at its storage elements.

    Each site has a disk and a tape element, which name it in their attribute ``site``; new
    datasets come from an element without a site. Everything is recounted at once
    (abacus), as a real server does within seconds.

    Args:
        server: one that is up; several holdings may share it when their *scope* differs.
        folder: where the daemon finds the password, in a file of its own.
        sites: the sites that have storage.
        scope: the scope of all datasets here, new to the server; capitals of it begin the elements' names.

    A dataset has four files. ``origin`` is the element without a site, and ``server`` takes commands for all
    that has no method here.
    """

    on_its_way = "STAGING"

    def __init__(self, server: RucioServer, folder: Path, sites: Sequence[str], scope: str = "lofar") -> None:
        self.scope = scope
        self.server = server
        self._dids: list[str] = []
        self.origin = f"{scope.upper()}-ORIGIN"
        self._disks = {site: f"{scope.upper()}-{site}-DISK" for site in sites}
        self._tapes = {site: f"{scope.upper()}-{site}-TAPE" for site in sites}
        self._password = write_secret(folder / f"rucio-password-{scope}", server.password)
        elements = [(rse, "DISK", site) for site, rse in self._disks.items()]
        elements += [(rse, "TAPE", site) for site, rse in self._tapes.items()]
        server.seed(
            ("add_scope", {"scope": scope}),
            ("add_rse", {"rse": self.origin}),
            *(
                ("add_rse", {"rse": rse, "rse_type": kind, "attributes": {"site": site}})
                for rse, kind, site in elements
            ),
        )

    @property
    def disks(self) -> Mapping[str, str]:
        """Return the disk element of each site."""
        return self._disks

    def section(self) -> str:
        return (
            f'[[catalogue]]\ntype = "rucio"\nname = "rucio"\nurl = "{self.server.url}"\n'
            f'account = "{self.server.account}"\nusername = "{self.server.username}"\n'
            f'password_file = "{self._password}"\n'
        )

    def put(self, did: str, states: Mapping[str, State]) -> None:
        self._dids.append(did)
        commands: list[tuple[str, Mapping[str, Any]]] = [("add_dataset", {"did": did, "rse": self.origin})]
        for site, state in states.items():
            commands += self._brings_about(did, site, state)
        self.server.seed(*commands, ("abacus", {}))

    def send(self, did: str, site: str) -> None:
        self.server.seed(*self._brings_about(did, site, "staging"), ("abacus", {}))

    def arrive(self, did: str, site: str) -> None:
        """Let the transfer that :meth:`send` began end well."""
        self.server.do("transferred", did=did, rse=self._disks[site])

    def promise(self, did: str, site: str) -> None:
        """Add a rule for *did* on disk at *site*; nothing is transferred before :meth:`convey`."""
        self.server.do("replicate", did=did, rse=self._disks[site])

    def convey(self, site: str, files: int) -> None:
        """Let Rucio's conveyor transfer the next *files* files that rules require at *site* (mocked)."""
        self.server.do("convey", rse=self._disks[site], most=files)

    def leave(self, did: str, site: str) -> None:
        self.server.do("remove", did=did, rse=self._disks[site])

    def available(self) -> dict[str, frozenset[str]]:
        """Rucio's true answer, which counts files, asked over HTTP without any of our adapter's code."""
        url, by_rse = self.server.url, {rse: site for site, rse in self._disks.items()}
        found = {}
        with httpx.Client(trust_env=False, timeout=60) as client:
            who = {"Account": self.server.account, "Username": self.server.username}
            login = {f"X-Rucio-{name}": value for name, value in who.items()}
            login["X-Rucio-Password"] = self.server.password
            token = client.get(f"{url}/auth/userpass", headers=login).raise_for_status()
            client.headers["X-Rucio-Auth-Token"] = token.headers["X-Rucio-Auth-Token"]
            for did in self._dids:
                scope, _, name = did.partition(":")
                answer = client.get(f"{url}/replicas/{scope}/{name}/datasets?deep=True").raise_for_status()
                rows = [json.loads(line) for line in answer.text.splitlines()]
                found[did] = frozenset(
                    by_rse[row["rse"]]
                    for row in rows
                    if row["rse"] in by_rse and 0 < row["length"] == row["available_length"]
                )
        return found

    def _brings_about(self, did: str, site: str, state: State) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the commands that put *did*, new at *site*, into *state*."""
        disk = {"did": did, "rse": self._disks[site]}
        tape = {"did": did, "rse": self._tapes[site]}
        half = {**disk, "files": 2}
        by_state: dict[State, list[tuple[str, Mapping[str, Any]]]] = {
            "available": [("place", disk), ("replicate", disk)],
            "staging": [("replicate", disk), ("transferred", half)],
            "partial": [("place", half)],
            "nearline": [("place", tape), ("replicate", tape)],
        }
        return by_state[state]


# --- what was true when, and what may be --------------------------------------------------------------


@dataclass
class Timeline:
    """A record of the catalogue's content, with times."""

    holdings: Tellable
    clock: Callable[[], float] = time.time
    _contents: list[tuple[int, dict[str, frozenset[str]]]] = field(default_factory=list)

    def change(self, *changes: Callable[[], None]) -> None:
        """Make *changes*, and record the catalogue's content from then on."""
        since = int(self.clock())
        for change in changes:
            change()
        self._contents.append((since, self.holdings.available()))

    @property
    def now(self) -> dict[str, frozenset[str]]:
        """Return the content since the last change."""
        return self._contents[-1][1]

    def at(self, moment: float) -> dict[str, frozenset[str]]:
        """Return the content at *moment* (Unix s)."""
        return next(content for since, content in reversed(self._contents) if since <= moment)


@dataclass(frozen=True, slots=True)
class Submitted:
    """One ``queue N`` and its datasets; *waits* if it cannot run at present."""

    name: str
    cluster: int
    datasets: tuple[str, ...]
    count: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One job's run: its site, and its start (Unix s)."""

    site: str
    started: int
    starts: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one submission."""

    job: Submitted
    held: Mapping[str, frozenset[str]]
    runs: tuple[Run, ...]
    wrong: tuple[str, ...]

    @property
    def text(self) -> str:
        if self.wrong:
            return "WRONG: " + "; ".join(self.wrong)
        if not self.runs:
            return "ok: waits for its data"
        return "ok" if self.job.datasets else "ok: may run anywhere"


def find_complete_sites(
    datasets: Iterable[str], held: Mapping[str, frozenset[str]], sites: Iterable[str]
) -> set[str]:
    """Return the sites that have all of *datasets*; all sites for a job without datasets."""
    return {site for site in sites if all(site in held.get(did, ()) for did in datasets)}


def judge(job: Submitted, runs: Sequence[Run], timeline: Timeline, sites: Sequence[str]) -> Verdict:
    """Check every run of *job* against the catalogue's content at its start."""
    wrong = []
    for run in runs:
        may = find_complete_sites(job.datasets, timeline.at(run.started), sites)
        if run.site not in may:
            wrong.append(f"ran at {run.site}, allowed {_names(may) or 'nowhere'}")
        elif run.starts != 1:
            wrong.append(f"started {run.starts} times, and only the last start can be judged")
    if not runs and not job.waits:
        wrong.append("did not run")
    held = timeline.at(runs[-1].started) if runs else timeline.now
    differences = tuple(
        f"{text} ({count} jobs)" if count > 1 else text for text, count in Counter(wrong).items()
    )
    return Verdict(job, {did: held.get(did, frozenset()) for did in job.datasets}, tuple(runs), differences)


# --- output ---------------------------------------------------------------------------------------------


_PLAIN: Mapping[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.ROUNDED}


class DemoOutput:
    """Terminal output: a line a step with the time since the start, and a spinner on a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._console = Console(highlight=False, width=None if terminal else 120)
        self._status: Status | None = self._console.status("starting") if terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        self.say(f"[{self.seconds:6.1f} s] {text}")
        if self._status:
            self._status.update(text.replace("[", r"\["))

    def say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, soft_wrap=True)
        self._console.file.flush()

    def states(self, title: str, by_site: Mapping[str, Mapping[str, str]]) -> None:
        """Print a row for each dataset, with its state at each site."""
        table = Table(title=title, **_PLAIN)
        for head in ("dataset", *by_site):
            table.add_column(head)
        for did in AT_FIRST:
            table.add_row(did, *(states.get(did, "-") for states in by_site.values()))
        self._console.print(table)

    def table(self, title: str, verdicts: Iterable[Verdict]) -> None:
        table = Table(title=title, **_PLAIN)
        for head in ("job", "datasets", "complete at", "ran at", "verdict"):
            table.add_column(head, overflow="fold")
        for verdict in verdicts:
            table.add_row(
                verdict.job.name,
                "\n".join(verdict.job.datasets) or "-",
                "\n".join(_names(sites) or "nowhere" for sites in verdict.held.values()) or "-",
                _places(verdict.runs) or "-",
                verdict.text,
                style="red" if verdict.wrong else None,
            )
        self._console.print(table)


def _names(sites: Iterable[str]) -> str:
    return " ".join(sorted(sites))


def _places(runs: Iterable[Run]) -> str:
    counts = Counter(run.site for run in runs)
    return ", ".join(f"{site} x {count}" if count > 1 else site for site, count in sorted(counts.items()))


# --- the demo -------------------------------------------------------------------------------------------


class Stuck(Exception):
    """A job did not start or end in time; *clusters* are those to be explained."""

    def __init__(self, what: str, clusters: Sequence[int]) -> None:
        super().__init__(what)
        self.clusters = tuple(clusters)


FAILURES = (Stuck, AssertionError, RuntimeError, OSError, subprocess.SubprocessError, httpx.HTTPError)
"""Expected failures of pool, Rucio server and daemon; any other is a bug here."""


@dataclass
class Demo:
    """The story, on an installation that is up."""

    installed: Installation
    holdings: Holdings
    output: DemoOutput
    timeline: Timeline
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def pool(self) -> Pool:
        return self.installed.pool

    @property
    def sites(self) -> list[str]:
        return [site.name for site in self.pool.sites]

    def play(self) -> bool:
        """Play the story; return False at the first job that ran where it should not."""
        listed = {
            site: {did: ON_SITE[states[site]] for did, states in AT_FIRST.items() if site in states}
            for site in self.sites
        }
        self.output.states("Where the data is", listed)
        waiting = self.submit("needs both, in one place", ONE, TWO, waits=True)
        jobs = [
            self.submit("one dataset", ONE),
            self.submit("one dataset", TWO),
            self.submit("one dataset", THREE),
            self.submit("one dataset, two copies", FOUR),
            self.submit("two datasets", TWO, FOUR),
            self.submit("burst, largest slot", ONE, count=6),
            self.submit("no datasets"),
        ]
        count = sum(job.count for job in [waiting, *jobs])
        reason = f"job {waiting.cluster} must wait, since no site has both of its datasets"
        self.output.step(f"{count} jobs submitted; {reason}")
        self.until_done(jobs)
        if not self.show("Jobs and their data", [*jobs, waiting]):
            return False
        self.slots("The slots before anything changes")

        self.output.step(f"a copy of {TWO} is on its way to UK")
        self.timeline.change(lambda: self.holdings.send(TWO, "UK"))
        self.installed.until_states(TWO, UK=self.holdings.on_its_way)
        self.output.step(f"the slots of UK advertise {self.holdings.on_its_way}; {self.mood(waiting)}")
        self.output.step(f"{TWO} arrives at UK, and {FOUR} leaves NL")
        self.timeline.change(lambda: self.holdings.arrive(TWO, "UK"), lambda: self.holdings.leave(FOUR, "NL"))
        self.installed.until_states(TWO, UK="AVAILABLE")
        self.installed.until_states(FOUR, NL=None)
        self.slots("The slots after")
        jobs = [
            self.submit("after it arrived", TWO),
            self.submit("after it left NL", FOUR, count=3),
            self.submit("arrived, and at UK only", ONE, TWO),
        ]
        count = sum(job.count for job in jobs)
        self.output.step(f"{count} more jobs submitted; UK has both datasets of job {waiting.cluster} now")
        self.until_done([waiting, *jobs])
        return self.show("Jobs after the change", [waiting, *jobs])

    def submit(self, name: str, *datasets: str, count: int = 1, waits: bool = False) -> Submitted:
        """Submit sleeping jobs with only their datasets, if any."""
        cluster = self.installed.submit(datasets, seconds=2, count=count)
        named = f"{name} x {count}" if count > 1 else name
        return Submitted(f"{cluster}: {named}", cluster, datasets, count, waits)

    def runs(self, job: Submitted) -> list[Run]:
        """Return the sites of the jobs of *job* that have started."""
        attributes = ("ProcId", "LastRemoteHost", "RemoteHost", "JobCurrentStartDate", "NumJobStarts")
        which = f"ClusterId == {job.cluster} && JobCurrentStartDate =!= undefined"
        found = [*self.pool.jobs(which, *attributes), *self.pool.history(which, *attributes)]
        runs = {}
        for ad in found:
            site = site_of(ad.get("RemoteHost") or ad["LastRemoteHost"])
            runs[int(ad["ProcId"])] = Run(
                site, int(ad["JobCurrentStartDate"]), int(ad.get("NumJobStarts", 1))
            )
        return [runs[number] for number in sorted(runs)]

    def mood(self, job: Submitted) -> str:
        ran = self.runs(job)
        return f"job {job.cluster} started at {_places(ran)}" if ran else f"job {job.cluster} still waits"

    def until_done(self, jobs: Sequence[Submitted]) -> None:
        """Wait until all *jobs* are complete.

        Raises:
            Stuck: some are held, or were not complete in time.
        """
        clusters = " || ".join(f"ClusterId == {job.cluster}" for job in jobs)

        def is_settled() -> bool:
            queued = self.pool.jobs(clusters, "ClusterId", "JobStatus", "HoldReason")
            if held := [job for job in queued if job["JobStatus"] == 5]:
                raise Stuck(f"a job is held: {held[0].get('HoldReason')}", [int(held[0]["ClusterId"])])
            return not queued and len(self.pool.history(clusters, "ProcId")) >= sum(job.count for job in jobs)

        try:
            self.pool.wait(is_settled, "all jobs to be done")
        except AssertionError as late:
            left = sorted({int(job["ClusterId"]) for job in self.pool.jobs(clusters, "ClusterId")})
            raise Stuck(str(late), left) from late

    def show(self, title: str, jobs: Sequence[Submitted]) -> bool:
        """Check *jobs* and print the table; return True if all are right."""
        verdicts = [judge(job, self.runs(job), self.timeline, self.sites) for job in jobs]
        self.verdicts += verdicts
        self.output.table(title, verdicts)
        return not any(verdict.wrong for verdict in verdicts)

    def slot_states(self) -> dict[str, Mapping[str, str]]:
        """Return the states that the slots of each site advertise, by dataset."""
        return {site: self.installed.states_at(site) for site in self.sites}

    def slots(self, title: str) -> None:
        """Show the slots by condor_status, with their state of each dataset."""
        format_file = self.pool.shared / PRINT_FORMAT.name
        shutil.copy(PRINT_FORMAT, format_file)
        printed = self.pool.run("condor_status", "-print-format", format_file).stdout
        table = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
        self.output.say(f"{title}\n$ condor_status -print-format {PRINT_FORMAT.name}", style="bold")
        self.output.say(table)
        self.output.states("DatasetStates of these slots", self.slot_states())


def explain(output: DemoOutput, installed: Installation, clusters: Sequence[int]) -> None:
    """Print what is needed to understand a failure; never raise."""
    pool = installed.pool

    def tool(*command: str) -> None:
        output.say(f"\n$ {' '.join(command)}", style="bold")
        try:
            done = pool.run(*command, check=False, timeout=30)
            output.say((done.stdout + done.stderr).strip())
        except (OSError, ToolFailed, subprocess.TimeoutExpired) as failure:
            output.say(str(failure))

    for cluster in clusters[:2]:
        tool("condor_q", "-allusers", "-better-analyze", f"{cluster}.0")
        shown = ["DataLocality", "DataLocalityTransformed", "RequiredDatasets", "Requirements"]
        tool("condor_q", "-allusers", str(cluster), "-limit", "1", "-af:ln", *shown)
        tool("condor_history", str(cluster), "-limit", "1", "-af:ln", *shown)
    tool("condor_status", "-af:jh", "GLIDEIN_Site", "DataLocalityAsOf", "DatasetStates")
    try:
        log = "\n".join(installed.log.splitlines()[-25:])
    except OSError:
        log = "it wrote none"
    output.say("\nThe end of the daemon's log", style="bold")
    output.say(log)


@contextmanager
def _holdings(kind: str, folder: Path, sites: Sequence[str], output: DemoOutput) -> Iterator[Holdings]:
    """Start the catalogue that was requested, with its server if it needs one."""
    if kind == "file":
        yield ListedHoldings(folder, sites)
        return
    if kind == "dmapi":
        with DmapiStandIn() as standin:
            output.step(f"a stand-in for SKA's DMAPI and Site Capabilities at {standin.root}")
            yield DmapiHoldings(standin, folder, sites)
        return
    with RucioServer.start(folder / "rucio") as server:
        output.step(f"a real Rucio server at {server.url}")
        yield RucioHoldings(server, folder, sites)


def _prepare(catalogue: str, release: str | None, output: DemoOutput) -> str:
    """Prepare the real parts that are not built in parallel; return HTCondor's version."""
    output.step(f"looking for HTCondor {release or ''}".rstrip())
    if catalogue != "rucio":
        return Pool.prepare(release, output.step)
    output.step("looking for a Rucio server (built once, about half a minute)")
    with ThreadPoolExecutor(1) as beside:
        rucio = beside.submit(server_python)
        version = Pool.prepare(release, output.step)
        rucio.result()
    return version


def run(catalogue: str, release: str | None) -> int:
    """Set everything up, play, check, and end everything; return the exit status."""
    names = [site.name for site in THREE_SITES]
    with ExitStack() as stack:
        output = stack.enter_context(DemoOutput())
        output.say(INTRODUCTION, style="bold")
        version = _prepare(catalogue, release, output)
        cores = ", ".join(f"{site.name} {site.cpus} cores" for site in THREE_SITES)
        output.step(f"starting a pool with HTCondor {version}: {cores}")
        pool = stack.enter_context(Pool.start(release, THREE_SITES, say=output.step))
        holdings = stack.enter_context(_holdings(catalogue, pool.home, names, output))
        timeline = Timeline(holdings)
        timeline.change(*(partial(holdings.put, did, states) for did, states in AT_FIRST.items()))
        installed = Installation(pool, holdings, extra=BRISK, settings=WAITING)
        output.step(f"starting the daemon on the {catalogue} catalogue, and its hook in every startd")
        try:
            stack.enter_context(installed)
            demo = Demo(installed, holdings, output, timeline)
            right = demo.play()
        except FAILURES as failure:
            output.say(f"\nThe demo failed: {failure}", style="red")
            explain(output, installed, failure.clusters if isinstance(failure, Stuck) else ())
            return 1
        wrong = [verdict for verdict in demo.verdicts if verdict.wrong]
        if not right:
            explain(output, installed, [verdict.job.cluster for verdict in wrong])
            output.say(f"\nFAILED: {len(wrong)} submissions ran where they should not", style="red")
            return 1
        ran = sum(len(verdict.runs) for verdict in demo.verdicts)
        output.step(f"all {ran} jobs ran where all their data was; taking everything down")
    print(f"done in {output.seconds:.0f} s; nothing is left running\n{NEXT}", flush=True)
    return 0


def _end_by_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """End by unwinding, once: a second signal must not interrupt the clean-up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit status 0, 1 failed, 2 wrong usage, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.demo", description="Jobs follow their data on a real HTCondor pool."
    )
    parser.add_argument(
        "--catalogue", choices=["file", "rucio", "dmapi"], default="file", help="(%(default)s)"
    )
    parser.add_argument("--release", default="25.14", help="25.14 or 23.9 (%(default)s)")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_by_signal)
    try:
        return run(options.catalogue, options.release)
    except Unavailable as reason:
        print(f"no demo here: {reason}", file=sys.stderr)
        return 1
    except FAILURES as failure:
        print(f"the demo failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
