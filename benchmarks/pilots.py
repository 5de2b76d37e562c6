"""Cost of the match policy for a GlideinWMS frontend: every entry against every kind of job.

``match`` is called as a frontend calls it, in a process of its own, once of the policy and once of one that
answers at once; the difference is the policy's.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .record import Figure, Result

POLICY = Path(__file__).parents[1] / "deploy" / "glideinwms" / "locality_policy.py"
ENTRIES, JOBS, DATASETS, SITES = 1_000, 10_000, 10_000, 20
GOAL_US = 1.0
"""Goal for one loop; a cycle has 6 to 7 of them, each in a process of its own."""
EMPTY = "def match(job, glidein):\n    return True\n"

_LOOP = """
import importlib.util, json, resource, sys, time
spec = importlib.util.spec_from_file_location("policy", sys.argv[1])
policy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(policy)
jobs, entries = json.load(open(sys.argv[2]))
begun = time.process_time()
first = sum(policy.match(job, entries[0]) for job in jobs)
loaded = time.process_time() - begun
begun = time.process_time()
matched = sum(policy.match(job, entry) for entry in entries for job in jobs)
spent = time.process_time() - begun
print(json.dumps([loaded, spent, matched, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def material(folder: Path, entries: int, jobs: int) -> tuple[Path, Path]:
    """Create the sites file, and entries with jobs that require 1 to 20 datasets each."""
    chance = random.Random(7)
    sites = [f"Site {number} (Côte)" for number in range(SITES)]
    dids = [f"lofar:L{number:07}_SB{number % 488:03}_uv.MS" for number in range(DATASETS)]
    home = {did: number % SITES for number, did in enumerate(dids)}
    datasets = {did: [sites[(home[did] + step) % SITES] for step in range(3)] for did in dids}
    now = int(time.time())
    file = folder / "sites_by_dataset.json"
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "written": now,
                "valid_until": now + 3600,
                "max_age": 3600,
                "sites": {site: {"as_of": now} for site in sites},
                "datasets": datasets,
            }
        )
    )
    wanted = []
    for number in range(jobs):
        near = dids[number % SITES :: SITES]
        wanted.append(",".join([dids[number % DATASETS], *chance.sample(near, chance.randrange(20))]))
    asked = [{"RequiredDatasetsCSV": csv, "RequestCpus": 1} for csv in wanted]
    offered = [
        {
            "attrs": {"GLIDEIN_Site": sites[number % SITES], "EntryName": f"entry_{number}"},
            "params": {},
            "monitor": {},
        }
        for number in range(entries)
    ]
    question = folder / "question.json"
    question.write_text(json.dumps([asked, offered]))
    return file, question


def measure_policy(policy: Path, file: Path, question: Path) -> tuple[float, float, int, float]:
    """Return CPU seconds of the look-ups, CPU seconds of the loop, matches, MiB of the process."""
    done = subprocess.run(
        [sys.executable, "-c", _LOOP, str(policy), str(question)],
        env={**os.environ, "HYDRATOR_SITES_BY_DATASET": str(file)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, spent, matched, mib = json.loads(done.stdout)
    return loaded, spent, matched, mib


def run(*, quick: bool) -> Result:
    """Compare the policy with one that always accepts."""
    entries, jobs = (50, 500) if quick else (ENTRIES, JOBS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, question = material(folder, entries, jobs)
        (folder / "yes.py").write_text(EMPTY)
        ours = measure_policy(POLICY, file, question)
        yes = measure_policy(folder / "yes.py", file, question)
    calls = entries * jobs
    assert 0 < ours[2] < yes[2] == calls
    each, empty = (spent / calls * 1e6 for spent in (ours[1], yes[1]))
    figures = (
        Figure(f"one call, {entries:,} entries x {jobs:,} kinds of jobs", each, "µs", GOAL_US),
        Figure("the same of a policy that always says yes", empty, "µs"),
        Figure("all calls of one loop, CPU", ours[1], "s", calls * GOAL_US / 1e6),
        Figure("reading the file and looking up every list, once a process", ours[0], "s"),
        Figure(
            "the process, with the jobs themselves",
            ours[3],
            "MiB",
            note=f"{yes[3]:.0f} without",
        ),
    )
    how = (
        f"deploy/glideinwms/locality_policy.py in a process of its own, called for each of"
        f" {entries:,} entries with each of {jobs:,} jobs that differ, as a frontend does for one category of"
        f" jobs; {DATASETS:,} datasets at 3 of {SITES} sites each, 1 to 20 a job. CPU time. GlideinWMS itself"
        " was not run."
    )
    return Result("pilots", figures, how, {"matched": ours[2], "calls": calls})
