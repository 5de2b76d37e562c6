"""`hydrator why` over daemon_url gives the same answer as with the daemon's own state."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import pytest

from adapters.daemon_catalogue import DaemonCatalogue
from hydrator.cli.commands.why import _build_staging_explainer
from hydrator.config import parse
from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.nowhere import add_similar_names
from hydrator.diagnostics.why.pool_facts import SlotDatasetState
from hydrator.diagnostics.why.query import StagingExplainer
from hydrator.diagnostics.why.render import render_answer
from hydrator.domain.ads.dataset_sets import SetKey, hash_key, names_key, quote_key, set_key
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason, write_openings
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import (
    NO_PROVENANCE,
    DaemonKnowledge,
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Site,
    SiteFacts,
    Snapshot,
    to_unix,
)  # fmt: skip
from hydrator.domain.model import Provenance as Catalogued
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview, explain_for_job
from hydrator.staging.plan import NotAsked
from tests.deploy.page_world import request
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad, server_state
from tests.served import server_of
from tests.unit.diagnostics.test_why import JOB, MISSING, slots

pytestmark = pytest.mark.outside

RIGHT, TYPO = Did("lofar:L1234_SB001.ms"), Did("lofar:L1243_SB001.ms")
CLASHING, TWIN = Did("lofar:Case"), Did("lofar:case")
MISSPELT, EXISTING = Did("lofar:L1_uv"), Did("lofar:L1_UV")
SECRET = Did("secret:name")
WITHHELD = "c9.19@ap.example"
UNPACED = "the pool has no slots that take jobs"
BOTH = set_key([L1, L2])
UNSORTED, OF_CLUSTER = names_key([L2, L1]), SetKey("c7.19@ap.example")
KEYS = (BOTH, UNSORTED, OF_CLUSTER)
"""Keys of jobs that need both: of ``hydrator submit``, of a list in another order, of one cluster."""
SILENT, UNHEARD, OLD, NOWHERE = Did("ska:silent"), Did("ska:unheard"), Did("ska:old"), Did("x:y")
HELD = "5 of 6 datasets would leave the ad at once; 2 of 20 further polls confirm the loss"
TOLD = Catalogued("its rule waits", "5f3a", "ops", NOON + HOUR, NOON + 3 * HOUR)

REFUSED = "6.1 TB in 2 datasets exceed your 5 TB"
STAGING = StagingOverview(
    NOON,
    "request",
    requests=(request(L1, CAM, 0.5, minutes=20), request(RIGHT, RAL, 0.5, minutes=20)),
    not_asked=(
        NotAsked((L1, L2), "ann", 1, "7.0", REFUSED),
        NotAsked((L2,), "ann", 1, "8.0", "of other jobs"),
    ),
)


def view(no_openings_reason: str | None = None, told: Catalogued = TOLD) -> ServerState:
    facts = {
        CAM: SiteFacts(
            NOON,
            {
                L1: Fact(DatasetState.STAGING, NOON - MINUTE, 0.25, told),
                L2: Fact(DatasetState.AVAILABLE, NOON),
                OLD: Fact(DatasetState.UNKNOWN, NOON - 9 * HOUR),
            },
        ),
        RAL: SiteFacts(NOON, {RIGHT: Fact(DatasetState.AVAILABLE, NOON)}),
    }
    wanted = (L1, L2, OLD, RIGHT, TYPO, CLASHING, MISSPELT, SILENT, NOWHERE)
    snapshot = Snapshot(
        facts, {SILENT: "rucio: timed out"}, ((CLASHING, TWIN),), {L1: 400 * 10**9, L2: 7 * 10**9},
        {MISSPELT: (EXISTING,)},
    )  # fmt: skip
    sets = {set_key(wanted): wanted, **dict.fromkeys(KEYS, (L1, L2))}
    entries = tuple(DemandEntry(dids, 1, Origin.JOB, NOON, key) for key, dids in sets.items())
    wrong = {WITHHELD: None, "c9.20@ap.example": hash_key(wanted)}
    demand = Demand(entries, never=("secret:*",), lists_of_wrong_keys=wrong)
    ads = {CAM: replace(ad(), site=CAM), RAL: replace(ad(), site=RAL)}
    named = {str(key): Opening(240 + 10 * at, RAL, 203_500_000_000) for at, key in enumerate(KEYS)}
    shares = ";".join(f"{quote_key(key)}=0.5" for key in KEYS)
    content = (("DataLocalitySets", f"[{shares}]"),)
    until = NOON + 10 * MINUTE
    ads[CAM] = replace(ads[CAM], content=content, openings=write_openings(named, 4), open_until=until)
    return server_state(
        ads,
        snapshot,
        demand,
        None,
        NOON,
        held_reasons={CAM: HELD},
        omitted_dids={CAM: frozenset({L2})},
        openings=None
        if no_openings_reason
        else Openings(
            {CAM: named}, to_unix(until), {CAM: 4}, dict.fromkeys(KEYS, Outlook(Reason.OPEN, (CAM,), 2, (1,)))
        ),
        no_openings_reason=no_openings_reason,
        staging=STAGING,
    )


@contextmanager
def serve(get_state: Callable[[], ServerState]) -> Iterator[DaemonCatalogue]:
    with server_of(get_state) as running:
        assert running.url
        catalogue = DaemonCatalogue(running.url)
        yield catalogue
        catalogue.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonCatalogue]:
    with serve(view) as catalogue:
        yield catalogue


def said(known: DaemonKnowledge | None, did: Did, site: Site = CAM):
    job = replace(JOB, datasets=(did,))
    group = replace(slots(MISSING, site=site), dataset_states={did: SlotDatasetState(False)})
    return render_answer(explain(job, [group], known, now=NOON))


@pytest.mark.parametrize(
    "did",
    [L1, L2, OLD, RIGHT, TYPO, CLASHING, MISSPELT, SILENT, UNHEARD, NOWHERE],
    ids=lambda did: did.partition(":")[2],
)
def test_explanation_over_http_equals_that_from_the_state(daemon, did):
    local = view().knowledge
    assert local
    assert said(daemon.read_knowledge({did}, NOON), did) == said(add_similar_names(local, [did]), did)


def test_every_field_of_the_knowledge_over_http_is_that_from_the_state(daemon):
    """Each field, also a new one: about the datasets and keys that were asked for."""
    local = view(told=NO_PROVENANCE).knowledge
    dids = {L1, L2, OLD, RIGHT, CLASHING, MISSPELT, SILENT, NOWHERE}
    got = daemon.read_knowledge(dids, NOON, [*KEYS, WITHHELD])
    # the sentences above show what is public of the provenance
    sites = {
        site: replace(
            at, facts={did: replace(fact, provenance=NO_PROVENANCE) for did, fact in at.facts.items()}
        )
        for site, at in got.snapshot.sites.items()
    }
    got = replace(got, snapshot=replace(got.snapshot, sites=sites))
    for field in fields(DaemonKnowledge):
        expected = {"demanded_dids": dids, "lists_of_wrong_keys": {WITHHELD: None}}.get(
            field.name, getattr(local, field.name)
        )
        assert getattr(got, field.name) == expected, field.name


def test_sites_private_names_and_the_reason_without_openings_are_known_over_http():
    with serve(lambda: view(UNPACED)) as daemon:
        got = daemon.read_knowledge({SECRET, NOWHERE}, NOON, KEYS)
    assert (got.openings, got.no_openings_reason, got.private_dids) == (None, UNPACED, {SECRET})
    assert got.snapshot.sites.keys() == {CAM, RAL}, "also those without the job's data"


@pytest.mark.parametrize("key", KEYS)
def test_openings_over_http_are_those_of_the_job_s_own_key(daemon, key):
    made = daemon.read_knowledge({L1, L2}, NOON, [key]).openings
    local = view().knowledge.openings
    assert (made.open_until, made.backlog[CAM]) == (local.open_until, local.backlog[CAM])
    assert made.outlooks == {key: local.outlooks[key]}
    assert made.openings[CAM] == {key: local.openings[CAM][key]}


@pytest.mark.parametrize("key", KEYS)
def test_staging_over_http_equals_that_from_the_state(daemon, key):
    told = daemon.read_staging(key)
    assert told == explain_for_job(STAGING, (L1, L2), NOON)
    assert told == (
        f"{L1}: asked 11:00 UTC at CAM, request a1b2c3, 122 of 244 files",
        f"not asked: {REFUSED}",
    )
    assert daemon.read_staging(set_key([L1])) == (), "no queued job needs L1 alone"


def test_why_asks_the_daemon_about_staging_only_without_its_state(daemon, tmp_path):
    def explainer(daemon_url: str = "") -> StagingExplainer:
        submit = {"daemon_url": daemon_url} if daemon_url else {}
        table = {"catalogue": [{"type": "file", "path": "x"}], "submit": submit}
        settings = parse({**table, "daemon": {"state_dir": "none"}}, folder=tmp_path, origin="test")
        return _build_staging_explainer(settings, NOON)

    url = daemon.name.removeprefix("daemon ")
    assert explainer(url)((L1, L2), OF_CLUSTER) == explain_for_job(STAGING, (L1, L2), NOON)
    silent = explainer("http://127.0.0.1:9")
    assert silent((L1, L2), BOTH) == ()
    assert explainer()((L1, L2), BOTH) == (), "no daemon_url"


def test_answer_that_is_not_a_daemons_is_a_catalogue_error():
    away = DaemonCatalogue("http://127.0.0.1:9")
    with pytest.raises(CatalogueError):
        away.read_knowledge({L1}, NOON)
    away.close()
