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


def _site_attribute_names(site_attributes: Sequence[str]) -> tuple[str, ...]:
    return ("DataLocalitySite", *(name for name in site_attributes if name != "DataLocalitySite"))
