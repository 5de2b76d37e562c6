"""Ads that are read back are untrusted: foreign ones are not adopted, are reported, and hide no other ad."""

import json
import math
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from adapters.condor.collector import CollectorPublisher
from adapters.files.ad_files import AdFilePublisher
from adapters.files.sites_file import SitesFilePublisher
from adapters.readback import MOST_REJECTED, read_back
from hydrator.daemon.logs import cycle_log_fields
from hydrator.daemon.metrics import Metrics
from hydrator.diagnostics.overview.saved import Status, load_view
from hydrator.diagnostics.problems import find_problems
from hydrator.domain.daemon_probe import Authorization
from hydrator.domain.errors import PoolError, PublishError
from hydrator.domain.model import DatasetState, PublishedAd, Replica, to_unix
from hydrator.domain.untrusted import MAX_AHEAD
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from tests.factories import CAM, L1, NOON, RAL, ad, settings_with, view_of
from tests.memory import MemoryCatalogue, MemoryPublisher

LATEST = to_unix(NOON) + int(MAX_AHEAD.total_seconds()) - 1
"""The last generation and time that are believed at NOON."""
US = "hydrator@example.org"
FORGED = 999_999_999_999_999
ODD_NUMBERS = [FORGED, LATEST + 1, -1, -(2**63), 2**63 - 1, True, 1.5, math.nan, math.inf, "7", None, [1]]


def site_row(name: object = "CAM", **given: object) -> dict[str, Any]:
    return {
        "Name": name,
        "DataLocalityGeneration": to_unix(NOON),
        "DataLocalityAsOf": to_unix(NOON),
        "DataLocalityOpenUntil": None,
        "LastHeardFrom": to_unix(NOON),
        "AuthenticatedIdentity": US,
        **given,
    }


class Pool:
    """A pool client with fixed answers: ads, and the daemon's identity at each collector."""

    def __init__(self, *rows: dict[str, Any], who: dict[str, str | None] | None = None) -> None:
        self.rows = list(rows)
        self.who = {"cm": US} if who is None else who
        self.pings = 0

    def site_ads(self) -> list[dict[str, Any]]:
        return self.rows

    def collectors(self) -> list[str]:
        return sorted(self.who)

    def ping(self, daemon: str, level: str, name: str) -> Authorization:
        self.pings += 1
        if self.who[name] == "down":
            raise PoolError(name, "no answer")
        return Authorization(True, self.who[name], "IDTOKENS")


def collector(pool: Pool) -> CollectorPublisher:
    lifetime = timedelta(minutes=15)
    client: Any = pool
    return CollectorPublisher(client, lifetime=lifetime, clock=lambda: NOON)


ODD_VALUES = [
    *({name: odd} for name in ("DataLocalityGeneration", "DataLocalityAsOf") for odd in ODD_NUMBERS),
    *({"LastHeardFrom": odd} for odd in (None, 2**63 - 1, -5, "now", math.nan)),
]


@pytest.mark.parametrize("given", ODD_VALUES, ids=str)
def test_a_number_that_cannot_be_costs_its_own_ad_alone(given):
    publisher = collector(Pool(site_row(**given), site_row("RAL")))
    assert set(publisher.published()) == {RAL}
    assert set(publisher.rejected) == {"CAM"}


def test_a_number_less_than_a_day_ahead_is_accepted():
    publisher = collector(Pool(site_row(DataLocalityGeneration=LATEST, DataLocalityAsOf=LATEST)))
    assert publisher.published()[CAM].generation == LATEST
    assert publisher.rejected == {}


@pytest.mark.parametrize("name", [None, 7, "", "x" * 100_000, True])
def test_an_impossible_site_name_rejects_only_its_ad_and_is_shortened(name):
    publisher = collector(Pool(site_row(name), site_row("RAL")))
    assert set(publisher.published()) == {RAL}
    assert len(str(publisher.rejected)) < 1000


@pytest.mark.parametrize("sender", ["evil@example.org", None, "unauthenticated@unmapped", 7])
def test_an_ad_from_another_identity_is_not_adopted(sender):
    publisher = collector(Pool(site_row(AuthenticatedIdentity=sender), site_row("RAL")))
    assert set(publisher.published()) == {RAL}
    assert "sent it, not this daemon" in publisher.rejected["CAM"]


def test_the_identity_is_queried_once_until_another_identity_appears():
    pool = Pool(site_row())
    publisher = collector(pool)
    for _ in range(3):
        assert set(publisher.published()) == {CAM}
    assert pool.pings == 1
    pool.rows, pool.who = [site_row(AuthenticatedIdentity="new@example.org")], {"cm": "new@example.org"}
    assert set(publisher.published()) == {CAM}
    assert pool.pings == 2


def test_the_daemon_identity_comes_from_any_collector_that_answers():
    pool = Pool(site_row(AuthenticatedIdentity="b@x"), who={"one": "a@x", "two": "b@x", "three": "down"})
    assert set(collector(pool).published()) == {CAM}


def test_an_identity_that_no_collector_reports_is_unknown():
    with pytest.raises(PublishError):
        collector(Pool(site_row(), who={"cm": "down"})).published()


def test_a_pool_without_authentication_goes_on_without_identities():
    pool = Pool(site_row(AuthenticatedIdentity=None), who={"cm": None})
    assert set(collector(pool).published()) == {CAM}


def read_odd() -> PublishedAd:
    raise ValueError("odd")


def test_a_hundred_rejected_ads_are_named_and_the_rest_counted():
    _, rejected = read_back((f"S{number}", read_odd) for number in range(MOST_REJECTED + 7))
    assert len(rejected) == MOST_REJECTED + 1
    assert "7 more" in rejected["others"]


def test_a_name_is_reported_without_its_escape_sequences():
    _, rejected = read_back([("\x1b[2J", read_odd)])
    assert list(rejected) == ["\\x1b[2J"]


# ------------------------------------------------------------------------------------ other publishers


def ad_file(folder: Path, name: str, generation: int, as_of: int) -> None:
    lines = {"DataLocalitySite": f'"{name}"', "DataLocalityAsOf": as_of, "DataLocalityGeneration": generation}
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    (folder / f"{name}.ad").write_text(text + "DataLocalityVersion = 1\n")


@pytest.mark.parametrize(
    ("generation", "as_of"), [(FORGED, 7), (LATEST + 1, 7), (7, LATEST + 1), (7, FORGED)]
)
def test_a_forged_ad_file_is_not_adopted(tmp_path, generation, as_of):
    ad_file(tmp_path, "CAM", generation, as_of)
    ad_file(tmp_path, "RAL", 7, 7)
    publisher = AdFilePublisher(tmp_path, lambda: NOON)
    assert set(publisher.published()) == {RAL}
    assert set(publisher.rejected) == {"CAM.ad"}


@pytest.mark.parametrize("bug", [KeyError, TypeError, AttributeError])
def test_bug_while_an_ad_is_read_is_not_called_a_foreign_ad(bug):
    def read_ad():
        raise bug("ours")

    with pytest.raises(bug):
        read_back([("CAM.ad", read_ad)])


def test_an_ad_file_with_an_impossible_time_is_not_adopted(tmp_path):
    ad_file(tmp_path, "CAM", 7, 7)
    os.utime(tmp_path / "CAM.ad", (-5, -5))
    assert AdFilePublisher(tmp_path, lambda: NOON).published() == {}


@pytest.mark.parametrize("number", [FORGED, LATEST + 1, -1, "7", None, True, "row"])
def test_a_forged_site_in_the_sites_file_is_the_only_one_rejected(tmp_path, number):
    path = tmp_path / "sites.json"
    publisher = SitesFilePublisher(
        path, valid_for=timedelta(hours=1), max_age=timedelta(hours=1), clock=lambda: NOON
    )
    publisher.publish([ad(L1), replace(ad(L1), site=RAL)])
    body = json.loads(path.read_text())
    row = body["sites"]["CAM"]
    body["sites"]["CAM"] = number if number == "row" else {**row, "generation": number}
    path.write_text(json.dumps(body))
    assert set(publisher.published()) == {RAL}
    assert set(publisher.rejected) == {"CAM"}
    publisher.publish([ad(L1)])
    assert set(publisher.published()) == {CAM, RAL}
    assert publisher.rejected == {}


# ------------------------------------------------------------------------------------- the daemon's state


class Forged(MemoryPublisher):
    """A publisher with an ad that another writer forged, beside a good ad."""

    rejected: ClassVar = {"EVIL": "evil@example.org sent it, not this daemon"}


def cycle_over(state: ReconcileState, publisher: MemoryPublisher, store: Store | None) -> Reconciler:
    held = [Replica(L1, CAM, DatasetState.AVAILABLE)]
    catalogue = MemoryCatalogue("memory", held, [CAM], clock=lambda: NOON)
    return Reconciler(
        catalogues=[catalogue],
        queues=None,
        targets=[PublishTarget(publisher)],
        settings=settings_with(pins={L1}),
        clock=lambda: NOON,
        state=state,
        store=store,
    )


def test_rejected_ads_are_in_the_report_the_status_the_log_the_metrics_and_the_check(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        cycle = cycle_over(ReconcileState(), Forged("collector", clock=lambda: NOON), store)
        report = cycle.run()
        view = load_view(store)
    assert [(one.name, one.rejected) for one in view.publishers] == [("collector", dict(Forged.rejected))]
    assert list(cycle_log_fields(view_of(report), 1.0)["rejected"]) == ["EVIL in collector"]
    registry = CollectorRegistry()
    Metrics(registry, "1").record_cycle(view_of(report), 1.0)
    assert registry.get_sample_value("hydrator_rejected_ads", {"publisher": "collector"}) == 1
    (finding,) = find_problems(Status(view, None, (), None, None), NOON)
    assert "EVIL" in finding.message
    assert finding.todo


@pytest.mark.parametrize(("damaged", "next_one"), [(FORGED, to_unix(NOON)), (LATEST, LATEST)])
def test_the_next_cycle_replaces_a_generation_that_cannot_be(damaged, next_one):
    cycle = cycle_over(ReconcileState(), MemoryPublisher(clock=lambda: NOON), None)
    cycle.run()
    publisher = MemoryPublisher(clock=lambda: NOON)
    ads = {CAM: replace(cycle.state.ads[CAM], generation=damaged)}
    cycle = cycle_over(replace(cycle.state, ads=ads), publisher, None)
    for _ in range(2):
        assert cycle.run().evaluation.ads[CAM].generation == next_one
    assert publisher.ads[CAM].generation == next_one
