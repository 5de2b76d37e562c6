"""Submit-file lines that send a job elsewhere after a miss."""

from collections.abc import Sequence

from hydrator.domain.misses import (
    AVOID_UNTIL_ATTRIBUTE,
    GRACE_SECONDS,
    MISSED_EXIT_STATUS,
    PATHS_ATTRIBUTE,
    SITES_ATTRIBUTE,
    _hold_where_all_missed,
)

TRIES = 5
SITE_ATTRIBUTES = (
    "GLIDEIN_ResourceName",
    "GLIDEIN_CMSSite",
    "GLIDEIN_Site",
    "GLIDEIN_SiteResource",
    "SiteLocation",
)


def avoid_missed_sites_clause(site_attributes: Sequence[str] = SITE_ATTRIBUTES) -> str:
    """Build the clause for Requirements that excludes sites where this job recently missed its data.

    A job that was held for its misses and then released tries all sites again. If condor_chirp could not
    report, the clause uses the site of the last run instead of the list. It avoids ``MY.a ?: MY.b``: with
    that the negotiator of 23.9.6 matched jobs that the expression excludes.

    Args:
        site_attributes: slot attributes with the site's name, after DataLocalitySite; the first one counts.
    """
    names = _site_attribute_names(site_attributes)
    site = " ?: ".join(f"TARGET.{name}" for name in names)
    same = "true"  # the first attribute that the slot has decides; a slot without any does not match
    for name in reversed(names):
        same = f"(TARGET.{name} isnt undefined ? TARGET.{name} =?= MY.MachineAttr{name}0 : {same})"
    return (
        f"(member(({site}), MY.{SITES_ATTRIBUTE}) =!= true || time() > MY.{AVOID_UNTIL_ATTRIBUTE}"
        f" || MY.LastHoldReasonSubCode =?= {MISSED_EXIT_STATUS})"
        f" && (MY.{SITES_ATTRIBUTE} isnt undefined || MY.ExitCode =!= {MISSED_EXIT_STATUS} || ! {same})"
    )


def path_known_clause(site_attributes: Sequence[str] = SITE_ATTRIBUTES) -> str:
    """Build the clause for Requirements that allows only sites with a path to every dataset.

    PATHS_ATTRIBUTE lists these sites. Their letter case counts, as in the wrapper.
    """
    site = " ?: ".join(f"TARGET.{name}" for name in _site_attribute_names(site_attributes))
    return f"identicalMember(({site}), MY.{PATHS_ATTRIBUTE}) =?= true"


def retry_elsewhere(
    requirements: str = "",
    *,
    tries: int = TRIES,
    site_attributes: Sequence[str] = SITE_ATTRIBUTES,
    data_sites: Sequence[str] = (),
    grace_seconds: int = GRACE_SECONDS,
) -> list[str]:
    """Return lines of a submit description with which the schedd runs the job elsewhere after a miss.

    A job that exits with MISSED_EXIT_STATUS stays in the queue and avoids, for an hour, the sites where it
    missed. The schedd holds it, with the sites in the reason, in three cases: after *tries* such exits; after
    a second miss at one site; or after misses at all *data_sites*, if no other site matched for
    *grace_seconds*. With ``max_retries`` in the description, other exit codes are retried too, and a miss
    after the last retry holds the job. The lines set ``requirements`` and ``periodic_hold``: the description
    must not set these itself.

    Args:
        requirements: the job's own expression; empty for none.
        tries: 1 or more.
        site_attributes: as for :func:`avoid_missed_sites_clause`.
        data_sites: the known sites with the job's data; empty: not known.
        grace_seconds: seconds after its last miss during which the job waits for a site not in *data_sites*.
    """
    own = f"({requirements}) && " if requirements.strip() else ""
    missed = f"ExitBySignal =!= true && ExitCode =?= {MISSED_EXIT_STATUS}"
    is_repeated = f"(JobMaxRetries is undefined && size({SITES_ATTRIBUTE}) < NumJobCompletions) =?= true"
    is_last_try = "(NumJobCompletions > JobMaxRetries) =?= true"
    sites = f'join(", ", {SITES_ATTRIBUTE}) ?: "several sites"'
    advice = "; see its stderr, tell the operator, then condor_release"
    return [
        f"requirements = {own}{avoid_missed_sites_clause(site_attributes)}",
        f"job_machine_attrs = {', '.join(_site_attribute_names(site_attributes))}",
        "job_machine_attrs_history_length = 1",
        # with max_retries, only condor_submit's own reasons to leave the queue count
        f"on_exit_remove = ! ({missed}) && JobMaxRetries is undefined",
        f"on_exit_hold = {missed} && (NumJobCompletions >= {tries} || {is_repeated} || {is_last_try})",
        f'on_exit_hold_reason = strcat("its datasets could not be read at ", {sites}, "{advice}")',
        f"on_exit_hold_subcode = {MISSED_EXIT_STATUS}",
        *(_hold_where_all_missed(data_sites, sites, advice, grace_seconds) if data_sites else []),
    ]


def _site_attribute_names(site_attributes: Sequence[str]) -> tuple[str, ...]:
    return ("DataLocalitySite", *(name for name in site_attributes if name != "DataLocalitySite"))
