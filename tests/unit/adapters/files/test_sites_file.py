"""Sites file: its content after complete cycles."""

import json
from datetime import datetime, timedelta

import pytest

from adapters.files.sites_file import SitesFilePublisher
from hydrator.config import load
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.reconcile.state import ReconcileState
from hydrator.wiring import system_clock
from hydrator.wiring.assembly import assemble
from tests.factories import NOON


@pytest.fixture
def folder(tmp_path):
    """A folder with a catalogue of two datasets at UK."""
    rows = (f'[datasets."{did}"]\nsites.UK = "available"\n' for did in ("lofar:L1", "embargo:canary"))
    (tmp_path / "catalogue.toml").write_text('sites = ["UK", "AU"]\n' + "".join(rows))
    return tmp_path


class Daemon:
    """Cycles one after the other, with the time as an argument: *ahead* is added to the system's."""

    def __init__(self, folder, more: str = "") -> None:
        config = folder / "config.toml"
        config.write_text(
            '[daemon]\nstate_dir = "state"\n[[catalogue]]\ntype = "file"\npath = "catalogue.toml"\n'
            '[demand]\nask_schedds = false\npins = ["lofar:L1", "embargo:canary"]\n'
            "[publish.collector]\nenabled = false\n[publish.file]\nenabled = false\n"
            f'[publish]\nsites_file = "out/sites.json"\n{more}'
        )
        settings = load(config)
        self.ahead = timedelta()
        parts = assemble(settings, lambda: system_clock() + self.ahead)
        self.cycle = parts.build_reconciler(ReconcileState(), None, lambda: system_clock() + self.ahead)
        self.file = folder / "out" / "sites.json"

    def run(self, **ahead: float) -> dict:
        """Run one more cycle; return the content of the file."""
        self.ahead += timedelta(**ahead)
        report = self.cycle.run()
        assert not any(outcome.error or outcome.unconfirmed_sites for outcome in report.results)
        return json.loads(self.file.read_text())


def test_the_sites_file_has_demanded_datasets_and_sites_without_data(folder):
    content = Daemon(folder).run()
    assert content["datasets"] == {"embargo:canary": ["UK"], "lofar:L1": ["UK"]}
    assert set(content["sites"]) == {"UK", "AU"}
    assert (content["valid_until"] - content["written"], content["max_age"]) == (3600, 20700)


def test_names_that_are_never_published_leave_the_sites_file(folder):
    Daemon(folder).run()
    daemon = Daemon(folder, 'never = ["embargo:*"]\n')
    assert daemon.run()["datasets"] == {"lofar:L1": ["UK"]}
    assert "canary" not in daemon.file.read_text()


def test_a_failing_catalogue_keeps_the_sites_file_and_its_content(folder):
    daemon = Daemon(folder)
    before = daemon.run()
    (folder / "catalogue.toml").write_text("torn [")
    after = daemon.run(minutes=30)
    assert after["datasets"] == before["datasets"]
    assert after["valid_until"] >= before["valid_until"] + 1800
    assert after["sites"]["UK"]["as_of"] == before["sites"]["UK"]["as_of"]


def test_the_sites_file_is_not_written_if_switched_off(folder):
    daemon = Daemon(folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("sites_file", "# sites_file"))
    assemble(load(config), system_clock).build_reconciler(ReconcileState(), None, system_clock).run()
    assert not daemon.file.exists()


def test_sets_and_openings_are_in_the_file_and_stay_when_another_site_changes(tmp_path):
    until = NOON + timedelta(minutes=10)
    key = set_key(["lofar:L1"])

    def ad(site: str, opened: datetime | None = until) -> SiteAd:
        content = (("DataLocalitySets", f"['{key}'=0.5]"), ("DataLocalityVersion", "1"))
        openings = write_openings({key: Opening(240, Site("UK"), 10**9)}, 64)
        return SiteAd(Site(site), NOON, to_unix(NOON), content, openings if opened else (), opened)

    publisher = SitesFilePublisher(
        tmp_path / "sites.json", valid_for=timedelta(hours=1), max_age=timedelta(hours=6), clock=lambda: NOON
    )
    publisher.publish([ad("DE"), ad("PL")])
    publisher.publish([ad("PL", None)])
    content = json.loads((tmp_path / "sites.json").read_text())
    facts = {"share": 0.5, "as_of": to_unix(NOON)}
    assert content["sets"] == {key: {"DE": {**facts, "open_seconds": 240, "read_from": "UK"}, "PL": facts}}
    opened = {"backlog": 64, "open_until": to_unix(until)}
    assert content["sites"]["DE"].items() > opened.items()
    assert opened.keys().isdisjoint(content["sites"]["PL"])
    publisher.withdraw({Site("DE")})
    assert json.loads((tmp_path / "sites.json").read_text())["sets"] == {key: {"PL": facts}}
    assert publisher.published().keys() == {"PL"}
