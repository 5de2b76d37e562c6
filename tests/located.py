"""A real pool with the generated configuration, whose sites advertise what a test sets.

The sites' ads come from a STARTD_CRON job that prints a file, so that each test sets each site's datasets.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import classad2
from classad2 import ClassAd

from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import SLOT_EXPRESSIONS
from hydrator.domain.model import Did
from hydrator.submit.pool_config import negotiator_config, schedd_config, startd_config
from testbed.files import write_program
from testbed.pool import Pool

HELD = "hold = true\n"
CRON = """#!/bin/sh
# the file, and time for the startd to read it
cat "$1"
sleep 0.5
"""
LONG = [Did(f"lofar:L667000_SAP000_SB{band:03}_uv") for band in range(244)]
QUICK = "PERIODIC_EXPR_INTERVAL = 3\nMAX_PERIODIC_EXPR_INTERVAL = 3\n"


def brisk_schedd_config(
    settings: Settings | None = None, *, rank_only: bool = False, job_rank: bool = False
) -> str:
    """Return the text for schedds, with multiples of 5 s as the ends of waits."""
    with patch("hydrator.submit.pool_config.ROUNDING_SECONDS", 5):
        return schedd_config(settings or Settings(), rank_only=rank_only, job_rank=job_rank)


def listed(dids: Sequence[Did]) -> str:
    """Return the list of *dids*, as a user writes it."""
    return "{" + ", ".join(f'"{did}"' for did in dids) + "}"


LISTED = listed(LONG)


def record(entries: Mapping[str, object]) -> str:
    """Return the nested ad of *entries* (name -> literal)."""
    return "[" + ";".join(f"'{key}'={value}" for key, value in entries.items()) + "]"


def same(found: classad2.ExprTree, wanted: str) -> bool:
    """Compare as HTCondor's tools print it: there, a backslash in a text has no meaning."""
    return str(found) == str(classad2.parseOne(f"X = {wanted}\n").lookup("X"))


class Located:
    """A pool with the generated configuration, and sites with the datasets that a test sets."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._counter = itertools.count(1)
        script = write_program(pool.shared / "print_ad", CRON)
        self._cron = "STARTD_CRON_JOBLIST = LOCALITY\nSTARTD_CRON_LOCALITY_PERIOD = 1s\n"
        self._cron += f"STARTD_CRON_LOCALITY_EXECUTABLE = {script}\n"
        for site in pool.sites:
            (pool.shared / f"{site.name}.ad").write_text("\n")
            self._cron += f"{site.name}.STARTD_CRON_LOCALITY_ARGS = {pool.shared / site.name}.ad\n"
        self.configure()

    def configure(
        self,
        settings: Settings | None = None,
        *,
        rank_only: bool = False,
        job_rank: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Apply the generated configuration, as an operator would; *more* is read after it, by role."""
        more = more or {}
        daemons = ["SchedLog", "negotiator", *(f"startd:{site.name}" for site in self.pool.sites)]
        self.pool.reconfig(
            read_by=daemons,
            schedd=QUICK
            + brisk_schedd_config(settings, rank_only=rank_only, job_rank=job_rank)
            + more.get("schedd", ""),
            startd=self._cron + startd_config(rank_only=rank_only) + more.get("startd", ""),
            negotiator=negotiator_config(rank_only=rank_only) + more.get("negotiator", ""),
        )

    def holds(self, **sites: Mapping[str, float | str]) -> None:
        """Set the share or the state of datasets at every site, and wait until the collector has them.

        AVAILABLE is a share of 1, any other state a share of 0. A site that is not in *sites* has nothing.
        """
        lines = {}
        for site in self.pool.sites:
            held = sites.get(site.name, {})
            entries = {
                set_key([did]): what if isinstance(what, float) else float(what == "AVAILABLE")
                for did, what in held.items()
            }
            states = {did: f'"{what}"' for did, what in held.items() if isinstance(what, str)}
            lines[site.name] = f"DataLocalitySets = {record(entries)}\nDatasetStates = {record(states)}\n"
        self.advertise(lines)

    def advertise(self, lines: Mapping[str, str]) -> None:
        """Let every site's slots advertise the *lines* of the site, with facts of now."""
        generation = next(self._counter)
        for site in self.pool.sites:
            text = f"\nDataLocalityAsOf = {int(time.time())}\n"
            text += "".join(f"{name} = {logic}\n" for name, logic in SLOT_EXPRESSIONS.items())
            text += (
                f"{lines.get(site.name, '')}DataLocalityGeneration = {generation}\n- locality update:true\n"
            )
            new = self.pool.shared / f"{site.name}.new"
            new.write_text(text)
            new.rename(self.pool.shared / f"{site.name}.ad")
        wanted = {generation}
        self.pool.wait(
            lambda: (
                {slot.get("DataLocalityGeneration") for slot in self.pool.slots("DataLocalityGeneration")}
                == wanted
            ),
            f"the slots to be of generation {generation}",
        )

    def submit(
        self, datasets: str | None, *lines: str, queue: str = "queue", run: str = "/bin/sleep 1"
    ) -> int:
        """Submit as alice with +RequiredDatasets = *datasets*; ToolFailed has the sentence of a rejection."""
        return self.pool.submit(description(datasets, *lines, queue=queue, run=run))

    def refusal(self, datasets: str | None, *lines: str) -> str:
        """Return condor_submit's message of a rejection; empty if it accepts the job."""
        done = self.pool.run(
            "condor_submit",
            "-",
            user="alice",
            input=description(datasets, HELD, *lines),
            check=False,
        )
        return done.stderr if done.returncode else ""

    def ad(self, cluster: int, proc: int = 0) -> ClassAd:
        """Return the job's ad with unevaluated expressions."""
        text = self.pool.run("condor_q", f"{cluster}.{proc}", "-long").stdout
        return classad2.parseOne(text)

    def clear(self) -> None:
        """Remove all jobs and wait until all cores are free again."""
        self.pool.empty_queue()
        self.pool.wait_free()


def description(datasets: str | None, *lines: str, queue: str = "queue", run: str = "/bin/sleep 1") -> str:
    executable, _, arguments = run.partition(" ")
    return "\n".join(
        (
            f"executable = {executable}\narguments = {arguments}\nlog = jobs.log\nshould_transfer_files = no",
            "request_cpus = 1\nrequest_memory = 16\nrequest_disk = 16",
            *([f"+RequiredDatasets = {datasets}"] if datasets is not None else []),
            *(line.strip() for line in lines),
            f"{queue}\n",
        )
    )


@contextmanager
def configured(located: Located, settings: Settings | None = None, **how) -> Iterator[None]:
    located.configure(settings, **how)
    try:
        yield
    finally:
        located.configure()
