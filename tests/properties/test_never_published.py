"""Names that match ``[publish] never``: nothing that the daemon publishes, shows or logs has one of them."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from hydrator.daemon.logs import cycle_log_fields
from hydrator.daemon.metrics import Metrics
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import DatasetState, Did, Provenance, QueuedJobs, Replica, ScheddDemand, Survey
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.server.pages.overview import render_overview
from hydrator.server.view import ServerState, view_datasets, view_sets
from tests.factories import CAM, MINUTE, NOON, RAL, settings_with, view_of
from tests.memory import MemoryCatalogue, MemoryPool, MemoryPublisher

NEVER = ("embargo:*", "lofar:secret?")
PUBLIC = [Did("lofar:L1"), Did("lofar:l1"), Did("Embargo:A"), Did("lofar:secret"), Did("lofar:SECRET1")]
HIDDEN = [Did("embargo:A"), Did("embargo:a/b"), Did("lofar:secret1")]
all_dids = st.sampled_from(PUBLIC + HIDDEN)
replicas = st.lists(
    st.builds(Replica, all_dids, st.sampled_from([CAM, RAL]), st.sampled_from(DatasetState)),
    max_size=12,
    unique_by=lambda one: (one.did, one.site),
)
jobs = st.lists(st.tuples(st.lists(all_dids, min_size=1, max_size=3), st.booleans()), max_size=5)
rules = st.fixed_dictionaries(
    {
        "pins": st.frozensets(all_dids, max_size=2),
        "patterns": st.sampled_from([(), ("*",), ("embargo:*",)]),
    }
)


class TalkingCatalogue(MemoryCatalogue):
    """A catalogue whose error names a dataset."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        if self.is_broken:
            raise CatalogueUnreachable(self.name, "HTTP 500 for /replicas?did=lofar:secret1.")
        return super().read(dids)


def unmarked(text: str) -> str:
    """Return *text* with the names of datasets in place of the keys that have them."""
    return re.sub("@(.)", r"\1", text)


def shown_texts(report: CycleReport, publisher: MemoryPublisher) -> Iterator[str]:
    """Yield every text of a cycle that leaves the daemon."""
    for ad in publisher.ads.values():
        yield ad.text
        yield unmarked(ad.text)
    yield unmarked(str(view_of(report)))
    yield str(cycle_log_fields(view_of(report), 1))
    yield str([entry.changes for entry in report.history_entries])
    state = ServerState.of_cycle(report, view_of(report))
    registry = CollectorRegistry()
    Metrics(registry, "1").record_cycle(view_of(report), 1)
    yield unmarked(generate_latest(registry).decode())
    yield unmarked(str(view_sets(state)))
    assert state.knowledge
    yield str(view_datasets(state, state.knowledge, sorted(report.demand.dids)))
    yield unmarked(render_overview(state))


@given(replicas, jobs, rules, st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_published_text_has_a_name_that_matches(held, named, rules, was_public, is_broken):
    now = [NOON]
    rows = [replace(one, provenance=Provenance("its part embargo:A is incomplete")) for one in held]
    unseen = {Did("lofar:SECRET1"): "first embargo:A: HTTP 500"}
    catalogue = TalkingCatalogue("rucio", rows, (CAM, RAL), clock=lambda: now[0], unseen_reasons=unseen)
    publisher = MemoryPublisher(clock=lambda: now[0])
    groups = [QueuedJobs(tuple(dids), 1, set_key(dids) if keyed else None) for dids, keyed in named]
    wrong = (
        "embargo:not a DID",
        "lofar:L1,embargo:A",
        'RequiredDatasets = { "embargo:A",5 }',
        "L1, lofar:secret1",
        f"lofar:{'x' * 300},embargo:A",
    )
    groups += [QueuedJobs((text,), 1) for text in wrong]
    groups.append(QueuedJobs(("lofar:L1", "lofar:l1"), 1, set_key(HIDDEN)))  # a key that was copied
    queues = MemoryPool({"ap1": ScheddDemand(NOON, tuple(groups))})

    def run(never: tuple[str, ...], state: ReconcileState) -> tuple[CycleReport, ReconcileState]:
        target = PublishTarget(publisher, 5 * MINUTE)
        reconciler = Reconciler(
            catalogues=[catalogue], queues=queues, targets=[target],
            settings=settings_with(**rules, never=never),
            clock=lambda: now[0], state=state, store=None,
        )  # fmt: skip
        reconciler.refresh_demand()
        return reconciler.run(), reconciler.state

    state = ReconcileState()
    if was_public:  # the operator sets the patterns after names were published
        _, state = run((), state)
        now[0] += MINUTE
        catalogue.is_broken = is_broken
    report, _ = run(NEVER, state)
    found = {did for text in shown_texts(report, publisher) for did in HIDDEN if did in text}
    assert not found
    assert report.demand.dids <= set(PUBLIC)
