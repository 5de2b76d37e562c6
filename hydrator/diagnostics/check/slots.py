"""Examination of the slots: sites, attributes, hooks and START expressions."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from hydrator.diagnostics.check.findings import (
    CheckInputs,
    CheckPoolClient,
    Finding,
    advice,
    name_list,
    ok,
    warning,
)
from hydrator.domain.ads import contract
from hydrator.domain.model import Site
from hydrator.domain.text import format_count, group_pairs

_advice, _warning = partial(advice, "slots"), partial(warning, "slots")
SLOT_ATTRIBUTES = (
    "Name", "Start",
    contract.SOURCE, contract.SITE, contract.AS_OF, contract.GENERATION,
    contract.ERROR, "LastHeardFrom", contract.AUTO, "SlotBrokenReason",
)  # fmt: skip


def check_slots(
    pool: CheckPoolClient, inputs: CheckInputs, sites: set[Site], failed_subjects: AbstractSet[str]
) -> Iterator[Finding]:
    """Examine the slots. Leave out findings that the failure of one of *failed_subjects* explains."""
    listed = pool.slots([*SLOT_ATTRIBUTES, *inputs.slot_attributes], "DynamicSlot =!= true")
    if not listed:
        yield _warning("the collector lists no slot", "check htcondor.collector")
        return
    for reason, names in _group_by(listed, "SlotBrokenReason").items():
        yield _advice(
            f"{format_count(len(names), 'slot')} broken, {name_list(names)}: {reason}",
            "no job can run there: correct the startd's configuration",
        )
    slots = [slot for slot in listed if not slot.get("SlotBrokenReason")]
    yield from _check_sites(slots, inputs, sites, failed_subjects)
    if not (inputs.is_merging and any(name.startswith("collector ") for name in failed_subjects)):
        yield from _check_unhydrated(slots, inputs, sites)
    yield from _check_hook_sites(slots, inputs.slot_attributes, sites)
    for trouble, names in _group_by(slots, contract.ERROR).items():  # the startd's log does not show them
        yield _warning(
            f"the hook fails at {format_count(len(names), 'slot')}, {name_list(names)}: {trouble}",
            'see the section "When nothing arrives" of docs/operators/glideins.md',
        )
    yield from _check_start_expressions(slots, is_merging=inputs.is_merging)


def _check_sites(
    slots: Sequence[Mapping[str, Any]],
    inputs: CheckInputs,
    sites: AbstractSet[str],
    failed_subjects: AbstractSet[str],
) -> Iterator[Finding]:
    """Check that each slot names a site that a catalogue covers; *sites* are the catalogues' sites."""
    slot_sites = {site for slot in slots if (site := site_of(slot, inputs.slot_attributes))}
    yield ok("slots", f"{format_count(len(slots), 'slot')} at {name_list(slot_sites) or 'no site'}")
    homeless = [
        str(slot["Name"])
        for slot in slots
        if site_of(slot, inputs.slot_attributes) is None and not slot.get(contract.ERROR)
    ]
    if homeless:
        yield _warning(
            f"{len(homeless)} of the slots name no site: {name_list(homeless)}",
            f"advertise one of {', '.join(inputs.slot_attributes)}, or extend sites.slot_attributes",
        )
    if not failed_subjects.isdisjoint(catalogue.name for catalogue in inputs.catalogues):
        return
    same_name = (
        "if one of them has storage, give both names one site: [sites.aliases], docs/operators/sites.md"
    )
    if empty := sites - slot_sites:
        same_name += f"; no slot is at {name_list(empty)}, which the catalogues list"
    served = {site_of(slot, inputs.slot_attributes) for slot in slots if slot.get(contract.AS_OF) is not None}
    if reading := (slot_sites - sites) & served:
        yield _advice(
            f"no catalogue lists the sites {name_list(reading)}: they have slots and no storage, so"
            " their jobs read from elsewhere",
            same_name,
        )
    if bare := slot_sites - sites - served:
        yield _advice(
            f"no catalogue lists the sites {name_list(bare)}, and their slots have no attributes: jobs with"
            " datasets may not read from elsewhere there",
            f"install the hook there: docs/operators/glideins.md; {same_name}",
        )


def _group_by(slots: Sequence[Mapping[str, Any]], attribute: str) -> dict[str, list[str]]:
    """Return the names of *slots* by the value of *attribute*, of those that have it."""
    named = ((str(slot[attribute]), str(slot["Name"])) for slot in slots if slot.get(attribute))
    return dict(sorted(group_pairs(named).items()))


def _check_hook_sites(
    slots: Sequence[Mapping[str, Any]], attributes: Sequence[str], sites: AbstractSet[str]
) -> Iterator[Finding]:
    """Check that each hook prints the ad of its slot's own site, if the catalogues have it in *sites*."""
    names: dict[tuple[str | None, str], list[str]] = {}
    for slot in slots:
        own, given = site_of(slot, attributes), slot.get(contract.SITE)
        if own in sites and given and own != given:
            names.setdefault((own, str(given)), []).append(str(slot["Name"]))
    for (own, given), those in sorted(names.items()):
        slots_there = format_count(len(those), "slot")
        yield _warning(
            f"at {own} the hook of {slots_there} prints the ad of {given}: {name_list(those)}",
            "correct the hook's --site there: docs/operators/glideins.md",
        )


def _check_unhydrated(
    slots: Sequence[Mapping[str, Any]], inputs: CheckInputs, sites: AbstractSet[str]
) -> Iterator[Finding]:
    """Check that the slots at *sites* have the attributes, unless their hook reports a problem."""
    names = [
        str(slot["Name"])
        for slot in slots
        if site_of(slot, inputs.slot_attributes) in sites
        and slot.get(contract.AS_OF) is None
        and not slot.get(contract.ERROR)
        and not _is_merge_due(slot, inputs)
    ]
    if names:
        merge_advice = (
            "; or find out why the daemon does not merge these slots: docs/operators/other-pools.md"
        )
        yield _warning(
            f"{len(names)} of the slots at known sites have no DataLocality attributes: {name_list(names)}",
            "install the hook there: docs/operators/glideins.md"
            + (merge_advice if inputs.is_merging else ""),
        )


def _is_merge_due(slot: Mapping[str, Any], inputs: CheckInputs) -> bool:
    """Return True if the startd of *slot* sent an update so recently that the next merge may still be due."""
    updated_at = slot.get("LastHeardFrom")
    return (
        inputs.is_merging
        and isinstance(updated_at, int)
        and inputs.now - updated_at < 2 * inputs.merge_interval_seconds
    )


def _check_start_expressions(slots: Sequence[Mapping[str, Any]], *, is_merging: bool) -> Iterator[Finding]:
    """Check that START has the locality clause on all slots with a hook, and on no other slots.

    A startd without a hook has no dataset attributes. If *is_merging* is True, a slot without
    ``DataLocalitySource`` counts as a slot without a hook, into which the daemon merges attributes.
    """
    clause = contract.HERE.lower()
    has_clause = {str(slot["Name"]): clause in str(slot.get("Start")).lower() for slot in slots}
    via = {str(slot["Name"]): slot.get(contract.SOURCE) for slot in slots}
    unhooked = {"merge", None} if is_merging else {"merge"}
    refusing = [name for name, clause in has_clause.items() if clause and via[name] in unhooked]
    without_clause = [name for name, clause in has_clause.items() if not clause and via[name] == "hook"]
    if refusing:
        yield _warning(
            f"{len(refusing)} slots have a START with {contract.HERE} and no hook: their startds have no"
            f" dataset attributes and refuse every job with datasets: {name_list(refusing)}",
            "remove the clause from START there, or install the hook: docs/operators/other-pools.md",
        )
    if without_clause:
        yield _warning(
            f"{len(without_clause)} slots with a hook have a START without {contract.HERE}:"
            " after the data left the site, a claimed slot may still start jobs for CLAIM_WORKLIFE:"
            f" {name_list(without_clause)}",
            "install the output of hydrator pool-config --role startd",
        )


def site_of(slot: Mapping[str, Any], attributes: Sequence[str]) -> str | None:
    """Return the site of a slot: the value of the first of *attributes* that the slot has."""
    return contract.first_site(slot.get(name) for name in attributes)
