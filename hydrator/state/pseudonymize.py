"""Pseudonyms in a state that was saved before its datasets were private."""

from dataclasses import replace

from hydrator.domain.model import Did
from hydrator.privacy.pseudonyms import Pseudonymizer, is_opaque
from hydrator.privacy.withheld import redact_names, redact_provenance, redact_reason
from hydrator.reconcile.snapshot.memory import DatasetRecord
from hydrator.reconcile.state import ReconcileState


def pseudonymize_state(state: ReconcileState, pseudonymizer: Pseudonymizer) -> ReconcileState:
    """Return *state* without the names of datasets that became private after it was saved.

    Demand under the plain name is kept; ads with the name are dropped and built again.
    """
    hides = pseudonymizer.privacy.is_private
    memories = {
        name: replace(
            memory,
            records={
                did: _redact_record(
                    did,
                    replace(
                        known, case_variants=frozenset(map(pseudonymizer.pseudonym, known.case_variants))
                    ),
                )
                for did, known in memory.records.items()
                if not hides(did)
            },
            unseen_reasons={
                did: redact_reason(why) if is_opaque(did) else pseudonymizer.redact(why)
                for did, why in memory.unseen_reasons.items()
                if not hides(did)
            },
            failure=memory.failure and redact_names(pseudonymizer.redact(memory.failure)),
        )
        for name, memory in state.memories.items()
    }
    wants = tuple(
        replace(want, dids=tuple(sorted(pseudonymizer.mask(did) if hides(did) else did for did in want.dids)))
        for want in state.demand.entries
    )
    refused = {pseudonymizer.privacy.redact(text): why for text, why in state.demand.rejected_texts.items()}
    return replace(
        state,
        memories=memories,
        demand=replace(state.demand, entries=wants, rejected_texts=refused),
        pattern_matches={
            name: frozenset(map(pseudonymizer.pseudonym, dids))
            for name, dids in state.pattern_matches.items()
        },
        held_losses={
            site: replace(
                held,
                missing_polls={did: polls for did, polls in held.missing_polls.items() if not hides(did)},
            )
            for site, held in state.held_losses.items()
        },
        audit=replace(
            state.audit,
            corrections={
                key: found for key, found in state.audit.corrections.items() if not hides(key[0].did)
            },
        ),
        rollbacks={
            site: one
            for site, one in state.rollbacks.items()
            if not any(pseudonymizer.privacy.find_mentions(literal) for _, literal in one.ad.content)
        },
        ads={
            site: ad
            for site, ad in state.ads.items()
            if not any(pseudonymizer.privacy.find_mentions(literal) for _, literal in ad.content)
        },
    )


def _redact_record(did: Did, record: DatasetRecord) -> DatasetRecord:
    """Return *record* without a catalogue's words about a private dataset that an older version saved."""
    if not is_opaque(did):
        return record
    here, before = (
        {site: replace(fact, provenance=redact_provenance(fact.provenance)) for site, fact in facts.items()}
        for facts in (record.facts, record.previous_facts)
    )
    return replace(record, facts=here, previous_facts=before)
