"""Checks: build the inputs of ``hydrator check`` from the parts and the daemon's state."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hydrator.config import RucioSource, Settings
from hydrator.diagnostics.check.findings import CheckInputs, Finding, failure, ok
from hydrator.diagnostics.check.installation import (
    check_memory,
    check_rates,
    check_virtual_organisations,
    examine_secrets,
)
from hydrator.diagnostics.overview.saved import load_status
from hydrator.diagnostics.problems import LAST_CYCLE, examine_credential, find_problems
from hydrator.domain.errors import StateError, StateMissing
from hydrator.domain.model import to_unix
from hydrator.domain.text import format_duration
from hydrator.reconcile.rates import RateTable
from hydrator.state.database import owner_of
from hydrator.state.reports import NETWORK_REPORT, NetworkRecord
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.secrets import find_files, read_credentials

from .assembly import Parts
from .catalogues import needed_memory


def build_check_inputs(settings: Settings, parts: Parts) -> CheckInputs:
    """Build the inputs of ``hydrator check``, with the state that the daemon saved on this host."""
    rucio = [one for one in settings.catalogue if isinstance(one, RucioSource)]
    return CheckInputs(
        catalogues=parts.catalogues,
        pool=parts.pool.client,
        collectors=parts.pool.collectors,
        queues=parts.queues,
        slot_attributes=settings.sites.slot_attributes,
        ad_folder=settings.publish.file.directory if settings.publish.file.enabled else None,
        sites_file=settings.publish.sites_file,
        is_advertising=settings.publish.collector.enabled,
        is_merging=settings.publish.slot_merge,
        merge_interval_seconds=settings.daemon.step_seconds,
        now=to_unix(system_clock()),
        daemon_findings=[
            *_examine_daemon(settings, parts),
            *check_memory(_memory_limit(), needed_memory(settings, len(parts.pool.collectors))),
            *check_virtual_organisations({one.name: (one.url, one.vo or "") for one in rucio}),
            *_examine_rates(settings),
            *examine_secrets(find_files(settings)),
            *(examine_credential(one, system_clock()) for one in read_credentials(settings, parts)),
        ],
        stagers=tuple(parts.staging.stagers.values()),
        asking_catalogues=frozenset(
            name for name in parts.staging.stagers if settings.staging.mode_at(name) == "request"
        ),
    )


def _examine_rates(settings: Settings) -> list[Finding]:
    """Check the rates between sites; return nothing if the state is there, but cannot be read."""
    record = NetworkRecord()
    try:
        with suppress(StateMissing), Store.open_to_read(settings.daemon.state_dir) as store:
            record = store.load_report(NETWORK_REPORT, NetworkRecord) or record
    except StateError:
        return []
    table = RateTable(record.samples, now=system_clock(), network=settings.network)
    rates = [table.rate(each.source, each.destination) for each in table.samples]
    is_measured = any(rate and rate.samples for rate in rates)
    return list(check_rates(settings.network, is_measured=is_measured))


def _memory_limit(file: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """Return the memory limit of this process's control group; None without one."""
    try:
        text = file.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() else None


def _examine_daemon(settings: Settings, parts: Parts) -> list[Finding]:
    """Return the problems in the state that the daemon saved on this host; nothing without a state.

    The check reads the credentials itself. It does not repeat what failed in an old cycle.
    """
    state_dir, now = settings.daemon.state_dir, system_clock()
    try:
        with Store.open_to_read(state_dir) as store:
            status = load_status(store, now, owner_of(state_dir), settings.daemon.poll_seconds)
    except StateMissing:
        return []
    except StateError as error:
        return [failure("daemon", f"{error}", "run hydrator check as the daemon's user, on its host")]
    if status.staging:
        status = replace(
            status, staging=replace(status.staging, stop_reason=parts.staging.control.stop_reason)
        )
    found = list(find_problems(replace(status, credentials=()), now))
    if status.daemon_problem:
        return [one for one in found if one.subject != LAST_CYCLE]
    if status.cycle and not any(one.subject == LAST_CYCLE for one in found):
        found.append(
            ok("daemon", f"its last cycle was {format_duration(to_unix(now) - status.cycle.at)} ago")
        )
    return found
