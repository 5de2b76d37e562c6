"""Misses: datasets that a job did not find at its site.

The job wrapper (``job_wrapper.py``) reports a miss in the job's ad and exits with MISSED_EXIT_STATUS. With a
submit file from the submit commands, the schedd then queues the job again. The job avoids the sites of its
misses, and the schedd holds the job after some tries. Tested on HTCondor 23.9.6 and 25.14.1
(tests/integration/test_job_start.py):

* A job may change its own ad through Chirp without more permissions. A delayed update must have a name
  that CHIRP_DELAYED_UPDATE_PREFIX allows (``Chirp*``), and at most about 990 bytes. The attribute survives
  the next start of the job.
* If a file of transfer_output_files is missing in the sandbox, HTCondor holds the job before it evaluates
  ``on_exit_remove``. So the wrapper creates a socket in place of each missing file; HTCondor's file
  transfer skips sockets.

This module is pure: no socket, no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.ads import contract
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, from_unix, parse_did

MISSED_EXIT_STATUS = 85
"""The wrapper's exit status if a dataset cannot be read."""
MISSES_ATTRIBUTE = "ChirpDataLocalityMisses"
"""List of strings, the last miss first: ``WHEN DID,DID,+N SITE``; WHEN in Unix s, +N for N more datasets."""
SITES_ATTRIBUTE = "ChirpDataLocalityMissed"
"""List of strings: the sites of the misses in MISSES_ATTRIBUTE."""
AVOID_UNTIL_ATTRIBUTE = "ChirpDataLocalityMissedUntil"
"""Unix s until which the job avoids the sites of its misses: 1 h after the last miss, rounded up to 5 min."""
PATHS_ATTRIBUTE = contract.PATH_SITES
"""List of strings: the sites where the submit host has a path to every dataset of the job."""
MAX_MISSES_PER_JOB = 50
MAX_MISS_CHARS = 2000
"""Maximum characters that the daemon reads of each miss. It reads MAX_MISSES_PER_JOB misses of a job."""
GRACE_SECONDS = 300
"""Seconds that a job waits for another site if it had a miss at every site of its data.

Then the schedd holds the job.
"""


@dataclass(frozen=True, slots=True)
class Miss:
    """One failed read: a job at *site* could not read *did* at *missed_at*.

    Attributes:
        site: site where the job ran.
        did: dataset that the job could not read.
        missed_at: time when the job reported the miss.
    """

    site: Site
    did: Did
    missed_at: datetime


def parse_misses(job: Mapping[str, object]) -> tuple[Miss, ...]:
    """Return the misses in the ad of a job, ordered by time, site and DID.

    The job's owner can write any text into the job's ad. Skip entries that do not have the right form.
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
