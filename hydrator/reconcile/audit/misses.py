"""Misses: datasets that a job did not find at its site, and how its schedd retries elsewhere.

The job wrapper (``job_wrapper.py``) reports a miss in the job's ad and exits
with MISSED_EXIT_STATUS. The submit commands make the schedd queue such a job
again, away from the sites of its misses, and hold it after some tries. Tested on
HTCondor 23.9.6 and 25.14.1 (tests/integration/test_job_start.py):

* a job may change its own ad through condor_chirp without more rights, but
  delayed updates only under names that CHIRP_DELAYED_UPDATE_PREFIX allows
  (``Chirp*``), each up to about 990 bytes; they survive the next start.
* a sandbox without one of transfer_output_files puts the job on hold before
  ``on_exit_remove`` is evaluated. The wrapper leaves sockets in their place,
  which HTCondor's file transfer skips.

Pure: values in, values out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, from_unix, parse_did

MISSED_EXIT_STATUS = 85
"""The wrapper's exit status if a dataset cannot be read."""
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
"""List of strings, the last miss first: ``WHEN DID,DID,+N SITE``; WHEN in Unix s, +N: N more datasets."""
FETCHED_ATTRIBUTE = "ChirpDataLocalityFetched"
"""List of strings of the same form: datasets that the wrapper fetched, because it could not read them there.

A dataset that the slot had listed is in MISSES_ATTRIBUTE too, although the job continued.
"""
SITES_ATTRIBUTE = "ChirpDataLocalityMissed"
"""List of strings: the sites of those misses."""
AVOID_UNTIL_ATTRIBUTE = "ChirpDataLocalityMissedUntil"
"""Unix s until which the job avoids these sites: an hour after the last miss, rounded up to 5 min."""
PATHS_ATTRIBUTE = "DataLocalityPathSites"
"""List of strings: the sites where the submit host has a path to every dataset of the job."""
MAX_MISSES_PER_JOB = 50
MAX_MISS_CHARS = 2000
"""Maximum characters read of each miss; at most MAX_MISSES_PER_JOB misses of a job are read."""
GRACE_SECONDS = 300
"""Seconds that a job waits for another site after a miss at every site of its data; then it is held."""


@dataclass(frozen=True, slots=True)
class Miss:
    """One failed read: a job at *site* could not read *did* at *missed_at*."""

    site: Site
    """site of the run"""
    did: Did
    """the dataset"""
    missed_at: datetime
    """time of the report"""


def parse_misses(job: Mapping[str, object]) -> tuple[Miss, ...]:
    """Return the misses in the ad of a job, ordered by time, site and DID.

    The owner of the job can write anything into its ad: entries in another form are skipped.
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
