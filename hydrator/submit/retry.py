"""Retry elsewhere: submit description lines that send a job to another site if it could not read its data."""

from collections.abc import Sequence

from hydrator.domain.ads.classad import classad_string, escape_macros
from hydrator.reconcile.misses import (
    AVOID_UNTIL_ATTRIBUTE,
    GRACE_SECONDS,
    MISSED_EXIT_STATUS,
    PATHS_ATTRIBUTE,
    SITES_ATTRIBUTE,
)

TRIES = 5
_MISSED_SITES = f'join(", ", {SITES_ATTRIBUTE}) ?: "several sites"'
_ADVICE = "; see its stderr, report it to the operator, then run condor_release"


def avoid_missed_sites_clause(site_attributes: Sequence[str]) -> str:
    """Build the clause for Requirements that excludes sites where this job recently could not read its data.

    If the schedd held the job because it could not read its data, and a user released the job, the clause
    allows all sites again. If the job wrapper could not write the list of sites into the job's ad, the clause
    excludes the site of the last run. A list of sites without an end time excludes none. The clause has no
    ``MY.a ?: MY.b``: with this operator the negotiator of HTCondor 23.9.6 matched jobs that the expression
    excludes.

    Args:
        site_attributes: slot attributes with the site's name, tried in this order after DataLocalitySite.
    """
    names = _site_attribute_names(site_attributes)
    # compare the first attribute that the slot has; a slot with none of them counts as the last run's site
    same = "true"
    for name in reversed(names):
        same = f"({_own(name)} isnt undefined ? TARGET.{name} =?= MY.MachineAttr{name}0 : {same})"
    return (
        f"(member(({_site_of(names)}), MY.{SITES_ATTRIBUTE}) =!= true"
        f" || (time() > MY.{AVOID_UNTIL_ATTRIBUTE}) isnt false"
        f" || MY.LastHoldReasonSubCode =?= {MISSED_EXIT_STATUS})"
        f" && (MY.{SITES_ATTRIBUTE} isnt undefined || MY.ExitCode =!= {MISSED_EXIT_STATUS} || ! {same})"
    )


def path_known_clause(site_attributes: Sequence[str]) -> str:
    """Build the clause for Requirements that allows only sites with a path to every dataset.

    The job attribute PATHS_ATTRIBUTE lists these sites. The comparison respects letter case, as in the job
    wrapper.
    """
    site = _site_of(_site_attribute_names(site_attributes))
    return f"identicalMember(({site}), MY.{PATHS_ATTRIBUTE}) =?= true"


def retry_elsewhere(
    clauses: Sequence[str], site_attributes: Sequence[str], *, data_sites: Sequence[str] = ()
) -> list[str]:
    """Return submit description lines that make the schedd run the job at another site after a miss.

    A miss is an exit with MISSED_EXIT_STATUS: the job could not read its data. The job then stays in the
    queue and avoids that site for an hour. In three cases the schedd holds the job, and names the sites in
    the hold reason: after TRIES misses; after a second miss at one site; after misses at all *data_sites*,
    if no other site matched for GRACE_SECONDS. If the description has ``max_retries``, HTCondor retries the
    job after other exit codes too, and the schedd holds the job if the last retry is a miss. The lines set
    ``requirements`` and ``periodic_hold``, so the description must not set them itself.

    Args:
        clauses: expressions for the job's Requirements; blank ones do not count.
        site_attributes: as for :func:`avoid_missed_sites_clause`.
        data_sites: the sites that have the job's data; empty if they are not known.
    """
    own = [f"({clause})" for clause in clauses if clause.strip()]
    requirements = " && ".join([*own, avoid_missed_sites_clause(site_attributes)])
    has_missed = f"ExitBySignal =!= true && ExitCode =?= {MISSED_EXIT_STATUS}"
    is_repeated = f"(JobMaxRetries is undefined && size({SITES_ATTRIBUTE}) < NumJobCompletions) =?= true"
    is_last_try = "(NumJobCompletions > JobMaxRetries) =?= true"
    return [
        f"requirements = {requirements}",
        f"job_machine_attrs = {', '.join(_site_attribute_names(site_attributes))}",
        "job_machine_attrs_history_length = 1",
        # with max_retries, condor_submit adds its own conditions to on_exit_remove
        f"on_exit_remove = ! ({has_missed}) && JobMaxRetries is undefined",
        f"on_exit_hold = {has_missed} && (NumJobCompletions >= {TRIES} || {is_repeated} || {is_last_try})",
        f'on_exit_hold_reason = strcat("its datasets could not be read at ", {_MISSED_SITES}, "{_ADVICE}")',
        f"on_exit_hold_subcode = {MISSED_EXIT_STATUS}",
        *(_hold_where_all_missed(data_sites) if data_sites else []),
    ]


def _hold_where_all_missed(sites: Sequence[str]) -> list[str]:
    """Return the lines that hold an idle job after misses at all *sites*, unless a user released the job."""
    each = " && ".join(
        escape_macros(f"member({classad_string(site)}, {SITES_ATTRIBUTE})") for site in sorted(set(sites))
    )
    has_waited = f"time() < {AVOID_UNTIL_ATTRIBUTE} && time() - EnteredCurrentStatus >= {GRACE_SECONDS}"
    text = "its datasets could not be read at any site that should have them"
    reason = f'"{text} (", {_MISSED_SITES}, "){_ADVICE}"'
    first = f"JobStatus == 1 && LastHoldReasonSubCode =!= {MISSED_EXIT_STATUS}"
    return [
        f"periodic_hold = {first} && ({each}) =?= true && {has_waited}",
        f"periodic_hold_reason = strcat({reason})",
        f"periodic_hold_subcode = {MISSED_EXIT_STATUS}",
    ]


def _site_attribute_names(site_attributes: Sequence[str]) -> tuple[str, ...]:
    return ("DataLocalitySite", *(name for name in site_attributes if name != "DataLocalitySite"))


def _own(name: str) -> str:
    """Return an expression for the slot attribute *name*; GlideinWMS writes None where it has no value."""
    return f'(TARGET.{name} =?= "None" ? undefined : TARGET.{name})'


def _site_of(names: Sequence[str]) -> str:
    """Return an expression for the site of a slot, from the first of the attributes *names* that it has."""
    return " ?: ".join(map(_own, names))
