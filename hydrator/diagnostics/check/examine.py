"""``hydrator check``: examine an installation and give advice on each problem.

Every examination queries the real service: the catalogue, the collector, the
schedds, the negotiator, the slots. No examination changes anything.
"""

from collections.abc import Iterable
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
)
from hydrator.diagnostics.check.pool import (
    check_advertise_access,
    check_merge_access,
    check_negotiator,
    check_read_access,
    check_schedds,
)
from hydrator.diagnostics.check.slots import check_slots
from hydrator.diagnostics.check.staging import check_stager
from hydrator.domain.model import Site


def examine(inputs: CheckInputs) -> list[Finding]:
    """Examine the whole installation and report each cause once. A failed check does not stop the others."""
    findings = [*inputs.daemon_findings]
    sites: set[Site] = set()
    for catalogue in inputs.catalogues:
        findings += run_guarded(catalogue.name, check_catalogue, catalogue, sites)
    for stager in inputs.stagers:
        is_asking = stager.name in inputs.asking_catalogues
        findings += run_guarded(f"staging {stager.name}", check_stager, stager, is_asking=is_asking)
    if inputs.ad_folder:
        findings += check_folder(inputs.ad_folder, "file", "publish.file.directory")
    if inputs.sites_file:
        findings += check_folder(inputs.sites_file.parent, "sites", "publish.sites_file")
    if inputs.pool:
        findings += _check_pool(inputs.pool, inputs, sites, _failed_subjects(findings))
    failed = _failed_subjects(findings)
    return [finding for finding in findings if finding.failed_part not in failed]


def _failed_subjects(findings: Iterable[Finding]) -> set[str]:
    return {finding.subject for finding in findings if finding.level is Level.FAIL}


def _check_pool(
    pool: CheckPoolClient, inputs: CheckInputs, sites: set[Site], failed_subjects: AbstractSet[str]
) -> list[Finding]:
    """Examine the pool; *sites* are the sites of the catalogues that answered."""
    collectors = inputs.collectors or {"collector": pool}
    findings: list[Finding] = []
    failed_collectors: set[str] = set()
    for name, collector in collectors.items():
        access = run_guarded(name, check_read_access, name, collector)
        if access:
            failed_collectors.add(name)
        elif inputs.is_advertising:
            access = run_guarded(name, check_advertise_access, name, collector, is_merging=inputs.is_merging)
        findings += access
    if failed_collectors == collectors.keys():  # only a collector has the addresses of the other daemons
        return findings
    if inputs.is_merging:
        findings += check_merge_access(pool, failed_collectors)
    if inputs.queues:
        findings += run_guarded("schedds", check_schedds, pool, inputs.queues)
    findings += run_guarded("negotiator", check_negotiator, pool)
    failed = failed_subjects | _failed_subjects(findings)
    return findings + run_guarded("slots", check_slots, pool, inputs, sites, failed)
