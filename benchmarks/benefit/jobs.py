"""Files of a pool's jobs: the data of each site, the job's program, and the records that jobs leave.

A job runs the project's job wrapper, which reads the dataset at the site or else fetches it from the
source's throttled link; then the job reads all bytes, computes (sleeps) and writes one record. Every arm
runs the same program: the stock pool too.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.submit import job_wrapper
from testbed.files import write_program

from .links import Source
from .workload import SITES, BenefitJob, Workload

START = """\
#!/bin/bash
# job NUMBER SECONDS: with datasets it runs under the project's job wrapper
export BENEFIT_NUMBER=$1 BENEFIT_SECONDS=$2 BENEFIT_BEGAN=$EPOCHREALTIME
here=${0%/*}
[ -e "$here/paths/$1.json" ] || exec "$here/compute"
exec "$here/wrapper" --paths "$here/paths/$1.json" -- "$here/compute"
"""
FETCH = """\
#!/bin/bash
# fetch DID FOLDER: read the dataset from its source's link; jobs share several sources evenly
here=${0%/*}
name=${1#*:}
mapfile -t sources < "$here/sources/$name"
read -r host port count < <(echo "${sources[BENEFIT_NUMBER % ${#sources[@]}]}")
exec 3<>"/dev/tcp/$host/$port" || exit 1
echo "$count" >&3
cat <&3 > "$2/$name" || exit 1
[ "$(stat -c %s "$2/$name")" = "$count" ]
"""
COMPUTE = """\
#!/bin/bash
# read all bytes, compute, and write one record: number site slot begun read ended remote_bytes
here=${0%/*}
remote=0
for name in "${!INPUT_@}"; do
    case $name in INPUT_[!0-9]*) continue ;; esac
    cat "${!name}" > /dev/null || exit 1
    case ${!name} in "$_CONDOR_SCRATCH_DIR"/*) remote=$((remote + $(stat -c %s "${!name}"))) ;; esac
done
read=$EPOCHREALTIME
sleep "$BENEFIT_SECONDS"
site=${_CONDOR_SCRATCH_DIR#*/execute/}
printf '%s %s %s %s %s %s %s\\n' "$BENEFIT_NUMBER" "${site%%/*}" "$_CONDOR_SLOT" "$BENEFIT_BEGAN" \\
    "$read" "$EPOCHREALTIME" "$remote" >> "$here/records"
"""


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one job: where it ran and when, in Unix seconds, and the bytes that it read remotely."""

    number: int
    site: str
    slot: str
    began_at: float
    read_at: float
    ended_at: float
    remote_bytes: int


def write_files(folder: Path, workload: Workload, sources: Mapping[str, Source]) -> None:
    """Write data, programs and the wrapper's path files of *workload* into *folder*, which it creates."""
    for name in ("paths", "sources", *(f"data/{site}" for site in SITES)):
        (folder / name).mkdir(parents=True)
    for name, text in (("job", START), ("fetch", FETCH), ("compute", COMPUTE)):
        _write_program(folder / name, text)
    _write_program(folder / "wrapper", Path(job_wrapper.__file__).read_text("utf-8"))
    (folder / "records").touch()
    (folder / "records").chmod(0o666)
    _write_data(folder, workload, sources)
    for job in workload.jobs:
        if job.datasets:
            entry = json.dumps(_paths(folder, workload, job))
            (folder / "paths" / f"{job.number}.json").write_text(entry, "utf-8")


def read_records(folder: Path) -> list[Record]:
    """Return the records so far, in the order of the jobs' ends."""
    records = []
    for line in (folder / "records").read_text("ascii").splitlines():
        number, site, slot, began, read, ended, remote = line.split()
        times = float(began), float(read), float(ended)
        records.append(Record(int(number), site, slot, *times, int(remote)))
    return records


def submissions(workload: Workload, folder: Path, lines: str) -> dict[str, list[dict[str, object]]]:
    """Return by user the orders for :mod:`benchmarks.benefit.submitter`, in the order of the queue.

    Consecutive jobs of one user, with the same number of datasets and the same time, are one cluster.

    Args:
        workload: the jobs.
        folder: the folder of :func:`write_files`.
        lines: submit commands for jobs with datasets; empty: their ads do not name the datasets.
    """
    orders: dict[str, list[dict[str, object]]] = {}
    last: tuple[object, ...] = ()
    items: list[dict[str, str]] = []
    for job in workload.jobs:
        group = (job.user, bool(job.datasets), job.submitted_at)
        if group != last:
            last, items = group, []
            text = _description(folder, lines if job.datasets else "")
            order: dict[str, object] = {"at": job.submitted_at, "text": text, "items": items}
            orders.setdefault(job.user, []).append(order)
        items.append(_item(workload, job))
    return orders


def _item(workload: Workload, job: BenefitJob) -> dict[str, str]:
    dids = [workload.datasets[each].did for each in job.datasets]
    item = {"number": str(job.number), "seconds": f"{job.seconds:.2f}"}
    if dids:
        item |= {"listed": ", ".join(f'"{did}"' for did in dids), "setkey": set_key(dids)}
    return item


def _description(folder: Path, lines: str) -> str:
    return (
        f"executable = {folder}/job\ntransfer_executable = False\narguments = $(number) $(seconds)\n"
        f"initialdir = {folder}\n"
        f"request_cpus = 1\nrequest_memory = 10\nrequest_disk = 1\n{lines}"
    )


def _paths(folder: Path, workload: Workload, job: BenefitJob) -> dict[str, object]:
    """Return the content of the wrapper's hydrator-paths.json for *job*."""
    datasets = [workload.datasets[each] for each in job.datasets]
    return {
        "version": job_wrapper.CONTRACT,
        "datasets": [{"did": each.did, "bytes": each.bytes} for each in datasets],
        "sites": {
            site: {
                each.did: str(_data_file(folder, site, each.did)) for each in datasets if site in each.sites
            }
            for site in SITES
        },
        "site_keys": ["GLIDEIN_Site"],
        "stage_in": f"{folder}/fetch {{did}} {{path}}",
    }


def _write_data(folder: Path, workload: Workload, sources: Mapping[str, Source]) -> None:
    """Write each dataset once, link it at each of its sites, and list its sources."""
    for dataset in workload.datasets:
        first, *others = (_data_file(folder, site, dataset.did) for site in dataset.sites)
        first.write_bytes(os.urandom(1024) * (dataset.bytes // 1024) + bytes(dataset.bytes % 1024))
        for other in others:
            os.link(first, other)
        found = [sources[site] for site in dataset.sites]
        lines = [f"{source.host} {source.port} {dataset.bytes}" for source in found]
        (folder / "sources" / dataset.did.partition(":")[2]).write_text("\n".join(lines) + "\n", "ascii")


def _data_file(folder: Path, site: str, did: str) -> Path:
    return folder / "data" / site / did.partition(":")[2]


def _write_program(path: Path, text: str) -> None:
    write_program(path, text)
