"""Pseudonymize a saved state whose datasets became private after the state was saved."""

from dataclasses import replace

from hydrator.domain.ads.dataset_sets import unmark_case
from hydrator.domain.model import Did, SiteAd
from hydrator.privacy.pseudonyms import Pseudonymizer, is_opaque
from hydrator.privacy.withheld import redact_names, redact_provenance, redact_reason
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRecord
from hydrator.reconcile.state import ReconcileState


def pseudonymize_state(state: ReconcileState, pseudonymizer: Pseudonymizer) -> ReconcileState:
    """Return *state* without the names of datasets that became private after *state* was saved.

    A job that names such a dataset by its real name still counts as demand; a placeholder replaces the name.
    Drop every ad with a real name: the next cycle builds a new ad.
    """
    is_private = pseudonymizer.privacy.is_private
    held_losses = {
        site: replace(
            held, missing_polls={d: polls for d, polls in held.missing_polls.items() if not is_private(d)}
        )
        for site, held in state.held_losses.items()
    }
    corrections = {key: one for key, one in state.audit.corrections.items() if not is_private(key[0].did)}
    return replace(
        state,
        memories={name: _redact_memory(memory, pseudonymizer) for name, memory in state.memories.items()},
        demand=_redact_demand(state.demand, pseudonymizer),
        pattern_matches={
            name: frozenset(map(pseudonymizer.pseudonym, dids))
            for name, dids in state.pattern_matches.items()
        },
        held_losses=held_losses,
        audit=replace(state.audit, corrections=corrections),
        ads={site: ad for site, ad in state.ads.items() if not _mentions_private(ad, pseudonymizer)},
    )


def _mentions_private(ad: SiteAd, pseudonymizer: Pseudonymizer) -> bool:
    has_private_did = pseudonymizer.privacy.has_private_did
    return any(has_private_did(literal) or has_private_did(unmark_case(literal)) for _, literal in ad.content)


def _redact_demand(demand: DemandMemory, pseudonymizer: Pseudonymizer) -> DemandMemory:
    privacy = pseudonymizer.privacy
    entries = tuple(
        replace(
            entry,
            dids=tuple(sorted(pseudonymizer.mask(d) if privacy.is_private(d) else d for d in entry.dids)),
            has_unkeyed_jobs=entry.has_unkeyed_jobs or any(map(privacy.is_private, entry.dids)),
        )
        for entry in demand.entries
    )
    rejected_texts = {privacy.redact(text): reason for text, reason in demand.rejected_texts.items()}
    return DemandMemory(entries, rejected_texts)


def _redact_memory(memory: CatalogueMemory, pseudonymizer: Pseudonymizer) -> CatalogueMemory:
    is_private = pseudonymizer.privacy.is_private
    return replace(
        memory,
        records={
            did: _redact_record(
                did,
                replace(record, case_variants=frozenset(map(pseudonymizer.pseudonym, record.case_variants))),
            )
            for did, record in memory.records.items()
            if not is_private(did)
        },
        unseen_reasons={
            did: redact_reason(reason) if is_opaque(did) else pseudonymizer.redact(reason)
            for did, reason in memory.unseen_reasons.items()
            if not is_private(did)
        },
        failure=memory.failure and redact_names(pseudonymizer.redact(memory.failure)),
    )


def _redact_record(did: Did, record: DatasetRecord) -> DatasetRecord:
    """Return *record*; if *did* is a pseudonym, keep only those texts of the catalogue that users may see.

    An older version saved all texts.
    """
    if not is_opaque(did):
        return record
    facts, previous_facts = (
        {site: replace(fact, provenance=redact_provenance(fact.provenance)) for site, fact in some.items()}
        for some in (record.facts, record.previous_facts)
    )
    return replace(record, facts=facts, previous_facts=previous_facts)
