"""Datasets that a job did not find where the catalogue says they are, and how its schedd tries elsewhere.

The job-side wrapper (``job_start.py``) reports a miss in the job's ad and ends
with MISSED. The submit commands here make the schedd queue such a job again,
away from the sites it missed at, and hold it after some tries. Run on HTCondor
23.9.6 and 25.14.1 (tests/integration/test_job_start.py):

* a job may change its own ad through condor_chirp without more rights, but
  delayed updates only under names that CHIRP_DELAYED_UPDATE_PREFIX allows
  (``Chirp*``), each up to about 990 bytes; they survive the next start.
* a sandbox that lacks one of transfer_output_files holds the job before
  ``on_exit_remove`` is looked at; the wrapper leaves sockets in their place,
  which HTCondor's file transfer passes over.

Pure: values in, values out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.classad import classad_string, escape_macros

from .errors import BadDid
from .model import Did, Site, from_unix, parse_did

MISSED_EXIT_STATUS = 85
"""The wrapper's exit status where a dataset cannot be read."""
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
"""List of strings, the last miss first: ``WHEN DID,DID,+N SITE``; WHEN in Unix s, +N: so many more."""
FETCHED_ATTRIBUTE = "ChirpDataLocalityFetched"
"""List of strings of the same form: what the wrapper fetched, because it could not be read at the site.

What the slot had said was there stands in MISSES_ATTRIBUTE too, though the job went on.
"""
SITES_ATTRIBUTE = "ChirpDataLocalityMissed"
"""List of strings: the sites of those misses."""
AVOID_UNTIL_ATTRIBUTE = "ChirpDataLocalityMissedUntil"
"""Unix s: until then the job keeps away from them; an hour after the last miss, rounded up to 5 min."""
PATHS_ATTRIBUTE = "DataLocalityPathSites"
"""List of strings: the sites where the submitting host knows a path to every dataset of the job."""
MAX_MISSES_PER_JOB = 50
MAX_MISS_CHARS = 2000
"""So many misses of one job are read, and of each so many characters."""
GRACE_SECONDS = 300
"""A job that missed its data at every site that had it waits so long for another site, then it is held."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A job at *site* could not read *did*, at *when*."""

    site: Site
    did: Did
    missed_at: datetime


def parse_misses(job: Mapping[str, object]) -> tuple[Miss, ...]:
    """What the job's ad reports, in order of time, site and DID.

    A job writes its ad as its owner likes: what is not in the form of MISSES_ATTRIBUTE is passed over.
    """
    listed = job.get(MISSES_ATTRIBUTE)
    texts = listed if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()
    found = {miss for text in texts[:MAX_MISSES_PER_JOB] for miss in _parse_entry(str(text)[:MAX_MISS_CHARS])}
    return tuple(sorted(found, key=lambda miss: (miss.missed_at, miss.site, miss.did)))


def _parse_entry(text: str) -> list[Miss]:
    when, _, rest = text.partition(" ")
    dids, _, site = rest.partition(" ")
    if not (when.isascii() and when.isdigit() and len(when) <= 11 and site.strip() and site.isprintable()):
        return []
    moment = from_unix(int(when))
    return [Miss(Site(site), did, moment) for did in map(_parse_did_or_none, dids.split(",")) if did]


def _parse_did_or_none(text: str) -> Did | None:
    try:
        return parse_did(text)
    except BadDid:
        return None


def _hold_where_all_missed(
    sites: Sequence[str], sites_expression: str, advice: str, grace_seconds: int
) -> list[str]:
    """Hold an idle job that missed at all *sites*; one that was released after that is left to try again."""
    each = " && ".join(
        escape_macros(f"member({classad_string(site)}, {SITES_ATTRIBUTE})") for site in sorted(set(sites))
    )
    waited = f"time() < {AVOID_UNTIL_ATTRIBUTE} && time() - EnteredCurrentStatus >= {grace_seconds}"
    reason = f'"its datasets could not be read at any site that should have them (", {sites_expression}, "){advice}"'
    first = f"JobStatus == 1 && LastHoldReasonSubCode =!= {MISSED_EXIT_STATUS}"
    return [
        f"periodic_hold = {first} && ({each}) =?= true && {waited}",
        f"periodic_hold_reason = strcat({reason})",
        f"periodic_hold_subcode = {MISSED_EXIT_STATUS}",
    ]
