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

from hydrator.reconcile.ads.site_ads import classad_string
from hydrator.submit.submit_text import escape_macros

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
TRIES = 5
GRACE_SECONDS = 300
"""A job that missed its data at every site that had it waits so long for another site, then it is held."""
SITE_ATTRIBUTES = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
)


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


def avoid_missed_sites_clause(site_attributes: Sequence[str] = SITE_ATTRIBUTES) -> str:
    """The clause for Requirements: not where this job lately missed its data; true for a job that never did.

    A job that was held for its misses and released tries all sites again.

    Where condor_chirp could not report, the site of the last run stands in for the list. (It is compared
    without ``MY.a ?: MY.b``: with that the negotiator of 23.9.6 matched jobs that the expression excludes.)

    Args:
        site_attributes: where a slot says its site, after DataLocalitySite, the first that it has.
    """
    names = _site_attribute_names(site_attributes)
    here = " ?: ".join(f"TARGET.{name}" for name in names)
    same = "true"  # the first attribute that the slot has decides; without any there is no site to go to
    for name in reversed(names):
        same = f"(TARGET.{name} isnt undefined ? TARGET.{name} =?= MY.MachineAttr{name}0 : {same})"
    return (
        f"(member(({here}), MY.{SITES_ATTRIBUTE}) =!= true || time() > MY.{AVOID_UNTIL_ATTRIBUTE}"
        f" || MY.LastHoldReasonSubCode =?= {MISSED_EXIT_STATUS})"
        f" && (MY.{SITES_ATTRIBUTE} isnt undefined || MY.ExitCode =!= {MISSED_EXIT_STATUS} || ! {same})"
    )


def path_known_clause(site_attributes: Sequence[str] = SITE_ATTRIBUTES) -> str:
    """The clause for Requirements: only at sites for which the wrapper has a path to every dataset.

    They stand in PATHS_ATTRIBUTE, with their letter case, as the wrapper looks them up.
    """
    here = " ?: ".join(f"TARGET.{name}" for name in _site_attribute_names(site_attributes))
    return f"identicalMember(({here}), MY.{PATHS_ATTRIBUTE}) =?= true"


def retry_elsewhere(
    requirements: str = "",
    *,
    tries: int = TRIES,
    site_attributes: Sequence[str] = SITE_ATTRIBUTES,
    data_sites: Sequence[str] = (),
    grace_seconds: int = GRACE_SECONDS,
) -> list[str]:
    """Lines of a submit description that make the schedd try a job of the wrapper elsewhere.

    A job that ends with MISSED stays in the queue and keeps away, for an hour,
    from the sites it missed at. It is held, with the sites in its reason,
    after *tries* such ends, when it misses again at a site that it came back
    to, or when it has missed at all *data_sites* and no other site took it for
    *grace_seconds*. Where the description has ``max_retries``, it is tried again
    for other exit codes too, and a miss after its last retry holds it. The
    lines set ``requirements`` and ``periodic_hold``: the description must not
    do so itself.

    Args:
        requirements: the job's own, an expression; empty for none.
        tries: 1 or more.
        site_attributes: as for :func:`avoid_missed_sites_clause`.
        data_sites: the sites that can give the job its data, as far as that is known; empty: not known.
        grace_seconds: how long after its last miss the job waits for a site that is none of *data_sites*.
    """
    own = f"({requirements}) && " if requirements.strip() else ""
    missed = f"ExitBySignal =!= true && ExitCode =?= {MISSED_EXIT_STATUS}"
    again = f"(JobMaxRetries is undefined && size({SITES_ATTRIBUTE}) < NumJobCompletions) =?= true"
    spent = "(NumJobCompletions > JobMaxRetries) =?= true"
    where = f'join(", ", {SITES_ATTRIBUTE}) ?: "several sites"'
    advice = "; see its stderr, tell the operator, then condor_release"
    return [
        f"requirements = {own}{avoid_missed_sites_clause(site_attributes)}",
        f"job_machine_attrs = {', '.join(_site_attribute_names(site_attributes))}",
        "job_machine_attrs_history_length = 1",
        # with max_retries, condor_submit adds its own reasons to leave the queue: they alone count then
        f"on_exit_remove = ! ({missed}) && JobMaxRetries is undefined",
        f"on_exit_hold = {missed} && (NumJobCompletions >= {tries} || {again} || {spent})",
        f'on_exit_hold_reason = strcat("its datasets could not be read at ", {where}, "{advice}")',
        f"on_exit_hold_subcode = {MISSED_EXIT_STATUS}",
        *(_hold_where_all_missed(data_sites, where, advice, grace_seconds) if data_sites else []),
    ]


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


def _site_attribute_names(site_attributes: Sequence[str]) -> tuple[str, ...]:
    return ("DataLocalitySite", *(name for name in site_attributes if name != "DataLocalitySite"))
