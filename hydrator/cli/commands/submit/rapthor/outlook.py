"""Output of ``--dry-run``, and the values that the exports of ``--as env`` extend."""

import shutil
import subprocess

from hydrator.cli.output.plain_table import print_table
from hydrator.cli.output.printing import print_json
from hydrator.domain.model import Unseen
from hydrator.domain.text import format_count, format_duration, shorten_list
from hydrator.submit.dataset_names.resolver import Resolution
from hydrator.submit.rapthor.outlook import Outlook, SiteOutlook

from .run import PreparedRun


def print_outlook(prepared: PreparedRun) -> None:
    """Print the sites, the best first, and the answer of each catalogue."""
    run, sites = prepared.run, prepared.sites
    answers = _catalogue_answers(prepared.resolution)
    dataset_count = len(set(run.dids))
    if prepared.options.as_json:
        print_json(Outlook(run.name, dataset_count, answers, sites))
        return
    rows = [
        (
            site.site,
            _verdict(site),
            f"{site.available_count} of {dataset_count}",
            "not known" if site.local_bytes is None else f"{site.local_bytes:,}",
            "" if site.oldest_age_seconds is None else format_duration(site.oldest_age_seconds),
            shorten_list([f"{did} {state}" for did, state in site.missing_states.items()]),
        )
        for site in sites
    ]
    print_table(("site", "matches now", "datasets", "bytes local", "facts", "missing"), rows)
    has_all_sizes = len(run.sizes) == dataset_count
    size = f"{sum(run.sizes.values()):,} bytes" if has_all_sizes else "not all sizes are known"
    print(f"{format_count(dataset_count, 'dataset')}, {size}, mode {run.options.mode or 'of the pool'}")
    print("asked: " + "; ".join(f"{name} ({answer})" for name, answer in answers.items()))


def _catalogue_answers(resolution: Resolution) -> dict[str, str]:
    """Return one text for each queried catalogue or daemon: answered, partly answered, or why it failed."""
    texts = {}
    for name, answer in resolution.answers.items():
        if isinstance(answer, Unseen):
            texts[name] = answer.reason
        else:
            unseen = sum(isinstance(reading, Unseen) for reading in answer.readings.values())
            texts[name] = (
                f"no answer for {unseen} of {len(answer.readings)} datasets" if unseen else "answered"
            )
    return texts


def _verdict(site: SiteOutlook) -> str:
    if site.missing_states:
        return "no"
    if site.has_paths:
        return "yes"
    return (
        "yes, and the job fetches its data"
        if site.can_run
        else "no: no [[storage]] gives the data's path there"
    )


def read_condor_values() -> dict[str, str | None]:
    """Query condor_config_val for the values that the exports would replace; an undefined value is None."""
    tool = shutil.which("condor_config_val")
    names = ("SUBMIT_ATTRS", "APPEND_REQ_VANILLA", "APPEND_RANK_VANILLA")
    values: dict[str, str | None] = dict.fromkeys(names)
    for name in names if tool else ():
        try:
            done = subprocess.run([str(tool), name], capture_output=True, text=True, check=False, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            break
        if done.returncode == 0:
            values[name] = " ".join(done.stdout.split())
    return values
