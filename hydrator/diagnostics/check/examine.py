"""``hydrator check``: examine an installation and give advice on each problem.

Every examination queries the real service: the catalogue, the collector, the
schedds, the negotiator, the slots. No examination changes anything.
"""

import importlib.metadata
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from hydrator.diagnostics.check.findings import (
    CheckInputs,
    CheckPoolClient,
    Finding,
    Level,
    run_guarded,
)
from hydrator.diagnostics.check.installation import (
    check_catalogue,
    check_folder,
    check_held_changes,
    check_packages,
)
from hydrator.diagnostics.check.pool import (
    check_advertise_access,
    check_merge_access,
    check_negotiator,
    check_read_access,
    check_schedds,
)
from hydrator.diagnostics.check.slots import check_slots
from hydrator.diagnostics.check.staging import check_stager, check_switch
from hydrator.domain.model import Site

_POOL_STEP_COUNT = 4
"""Checks of the pool: collectors, schedds, negotiator, slots."""


def count_steps(inputs: CheckInputs) -> int:
    """Return how often :func:`examine` calls *on_step*; if no collector answers, the calls are fewer."""
    services = len(inputs.catalogues) + len(inputs.stagers)
    return services + (_POOL_STEP_COUNT if inputs.pool else 0)


def examine(inputs: CheckInputs, on_step: Callable[[], None] = lambda: None) -> list[Finding]:
    """Examine the whole installation and report each cause once. A failed check does not stop the others.

    Args:
        inputs: the parts of the installation.
        on_step: called after the check of each service; :func:`count_steps` says how often.
    """
    findings = _run_checks(inputs, on_step)
    failed_subjects = {finding.subject for finding in findings if finding.level is Level.FAIL}
    return [finding for finding in findings if finding.failed_part not in failed_subjects]


def _run_checks(inputs: CheckInputs, on_step: Callable[[], None]) -> list[Finding]:
    findings = list(check_packages(importlib.metadata.packages_distributions()))
    sites: set[Site] = set()
    for catalogue in inputs.catalogues:
        findings += run_guarded(catalogue.name, check_catalogue, catalogue, sites)
        on_step()
    for stager in inputs.stagers:
        is_asking = stager.name in inputs.asking_catalogues
        findings += run_guarded(f"staging {stager.name}", check_stager, stager, is_asking=is_asking)
        on_step()
    findings += check_switch(inputs.staging_stop_reason, inputs.stagers)
    findings += inputs.daemon_findings
    if inputs.ad_folder:
        findings += check_folder(inputs.ad_folder, "file", "publish.file.directory")
    if inputs.sites_file:
        findings += check_folder(inputs.sites_file.parent, "sites", "publish.sites_file")
    findings += [
        *check_held_changes(inputs.held_changes),
        *inputs.secret_findings,
    ]
    if inputs.pool:
        failed_subjects = {finding.subject for finding in findings if finding.level is Level.FAIL}
        findings += _check_pool(inputs.pool, inputs, sites, failed_subjects, on_step)
    return findings


def _check_pool(
    pool: CheckPoolClient,
    inputs: CheckInputs,
    sites: set[Site],
    failed_subjects: AbstractSet[str],
    on_step: Callable[[], None],
) -> list[Finding]:
    """Examine the pool; *sites* are the sites of the catalogues that answered."""
    collectors = inputs.collectors or {"collector": pool}
    findings, answering_collectors = _check_collectors(collectors, inputs)
    on_step()
    if not answering_collectors:  # only a collector has the addresses of the other daemons
        return findings
    if inputs.is_merging:
        findings += check_merge_access(pool, collectors.keys() - answering_collectors.keys())
    if inputs.queues:
        findings += run_guarded("schedds", check_schedds, pool, inputs.queues)
    on_step()
    findings += run_guarded("negotiator", check_negotiator, pool)
    on_step()
    all_failed_subjects = failed_subjects | {
        finding.subject for finding in findings if finding.level is Level.FAIL
    }
    findings += run_guarded("slots", check_slots, pool, inputs, sites, all_failed_subjects)
    on_step()
    return findings


def _check_collectors(
    collectors: Mapping[str, CheckPoolClient], inputs: CheckInputs
) -> tuple[list[Finding], dict[str, CheckPoolClient]]:
    """Return the findings of *collectors*, and the collectors that answer."""
    read_findings = {
        name: run_guarded(name, check_read_access, name, collector) for name, collector in collectors.items()
    }
    findings = [finding for each in read_findings.values() for finding in each]
    answering_collectors = {name: one for name, one in collectors.items() if not read_findings[name]}
    for name, one in answering_collectors.items() if inputs.is_advertising else ():
        findings += run_guarded(name, check_advertise_access, name, one, is_merging=inputs.is_merging)
    return findings, answering_collectors
