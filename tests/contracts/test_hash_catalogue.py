"""The hash catalogue: the contract, where homes are, that they stay, and the ads of a daemon with it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.hash_placement import catalogue
from hydrator.domain.model import Did, ReplicaState, Site
from hydrator.testing.catalogue_contract import CatalogueContract
from hydrator.testing.scenarios import CAM, RAL, RECORDS_STATES_ONLY
from tests.command_line import run_hydrator
from tests.factories import NOON

SITES = {"KIT": 2.0, "DESY": 1.0, "LRZ": 1.0}
DIDS = [Did(f"cms:file{number}") for number in range(4000)]
EXPECTED = ["DESY", "KIT", "KIT", "DESY", "KIT", "KIT", "KIT", "KIT"]


CONFIGURATION = """\
[daemon]
state_dir = "state"
[[catalogue]]
type = "hash"
sites = { KIT = 2.0, DESY = 1.0, LRZ = 1.0 }
patterns = ["cms:*"]
state = "<state>"
[demand]
ask_schedds = false
pins = ["cms:file0", "cms:file1", "cms:file2", "lofar:L1"]
[publish.collector]
enabled = false
[publish.file]
directory = "ads"
[publish.http]
enabled = false
"""


class TestHashCatalogue(CatalogueContract):
    """A hash chooses the homes: where it cannot choose those of a test, the test is skipped."""

    cannot_happen = RECORDS_STATES_ONLY

    def make_catalogue(self, *replicas):
        words = {(ReplicaState.COMPLETE, None): "available", (ReplicaState.PARTIAL, 0.5): "first choice"}
        states = {words.get((replica.state, replica.fraction)) for replica in replicas} or {"available"}
        if len(states) > 1 or None in states:
            pytest.skip("all homes have the same state: complete, or half")
        wanted = {(replica.did, replica.site) for replica in replicas}
        dids = {did for did, _ in wanted}
        options = {"patterns": sorted(dids) or ["no:dataset"], "state": min(states)}
        for weight in (1e6, 1.0, 1e-6):
            made = make(sites={CAM: weight, RAL: 1.0}, **options)
            if {(did, home) for did in dids for home in made.homes(did)} == wanted:
                return made
        pytest.skip("the hash has other homes for these datasets, whatever the weights")

    def make_failing_catalogue(self):
        pytest.skip("a hash queries nothing, so it cannot fail")

    def test_a_did_that_differs_in_letter_case_only_is_a_case_variant(self):
        pytest.skip("a hash knows no names")

    def test_a_pattern_finds_exactly_what_it_matches(self):
        pytest.skip("a hash knows no names")

    def test_patterns_add_up_and_may_span_the_colon(self):
        pytest.skip("a hash knows no names")


def make(**options):
    return catalogue("caches", {"sites": SITES} | options, lambda: NOON)


def homes(made, dids=DIDS):
    return {did: made.homes(did) for did in dids}


def test_each_site_is_the_home_of_its_share_of_the_datasets():
    counts = Counter(places[0] for places in homes(make()).values())
    assert counts["KIT"] == pytest.approx(2000, rel=0.1)
    assert counts["DESY"] == pytest.approx(1000, rel=0.1)
    assert counts["LRZ"] == pytest.approx(1000, rel=0.1)


def test_a_new_site_takes_datasets_and_moves_no_other():
    before, after = homes(make()), homes(make(sites=SITES | {"GOE": 1.0}))
    moved = [did for did in DIDS if before[did] != after[did]]
    assert len(moved) == pytest.approx(800, rel=0.15)
    assert {after[did] for did in moved} == {(Site("GOE"),)}


def test_the_datasets_of_a_site_that_leaves_are_the_only_ones_that_move():
    before, after = homes(make()), homes(make(sites={"KIT": 2.0, "DESY": 1.0}))
    assert all(before[did] == after[did] for did in DIDS if before[did] != ("LRZ",))


@given(st.dictionaries(st.sampled_from(["A", "B", "C", "D", "E"]), st.floats(0.01, 100), min_size=2))
def test_the_order_of_the_sites_does_not_matter(sites):
    dids = DIDS[:20]
    backwards = dict(reversed(sites.items()))
    assert homes(make(sites=sites), dids) == homes(make(sites=backwards), dids)


@given(st.floats(0.01, 100), st.floats(1, 10))
def test_a_higher_weight_never_takes_a_dataset_away_from_a_site(weight, factor):
    dids = DIDS[:50]
    light = homes(make(sites={"A": weight, "B": 1.0}), dids)
    heavy = homes(make(sites={"A": weight * factor, "B": 1.0}), dids)
    assert all(heavy[did] == ("A",) for did in dids if light[did] == ("A",))


def test_several_homes_are_different_sites_and_the_first_stays():
    for did in DIDS[:50]:
        (first,) = make().homes(did)
        two = make(copies=2).homes(did)
        assert two[0] == first
        assert len(set(two)) == 2


def test_the_homes_are_the_same_on_every_machine():
    """Daemons of two releases must agree; the list was computed with decimal numbers, outside this code."""
    first = [make().homes(did)[0] for did in DIDS[:8]]
    assert first == EXPECTED


def test_a_home_is_a_first_choice_unless_it_counts_as_available():
    (first,) = make().read({DIDS[0]}).readings[DIDS[0]].replicas
    assert (first.state, first.fraction) == (ReplicaState.PARTIAL, 0.5)
    (held,) = make(state="available").read({DIDS[0]}).readings[DIDS[0]].replicas
    assert (held.state, held.fraction) == (ReplicaState.COMPLETE, None)


def test_a_survey_has_all_sites_and_every_queried_did():
    survey = make(patterns=["cms:*"]).read({DIDS[0], Did("lofar:L1")})
    assert survey.sites == {"KIT", "DESY", "LRZ"}
    assert survey.readings[Did("lofar:L1")].replicas == ()
    assert survey.started_at == NOON
    assert make().find(["*"]) == frozenset()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sites": {}}, "at least 1 item"),
        ({"sites": {"KIT": 0}}, "greater than 0"),
        ({"copies": 4}, "copies is 4, but sites has 3 sites"),
        ({"state": "here"}, "'first choice' or 'available'"),
        ({"site": {"KIT": 1}}, "Extra inputs"),
    ],
    ids=["no site", "weight 0", "too many copies", "unknown state", "unknown key"],
)
def test_bad_options_are_refused_with_a_reason(options, text):
    with pytest.raises(ValueError, match=text) as refusal:
        make(**options)
    assert isinstance(refusal.value, ValidationError)


@pytest.mark.outside
@pytest.mark.parametrize(
    ("word", "state", "fraction"), [("first choice", "PARTIAL", "0.50"), ("available", "AVAILABLE", None)]
)
def test_daemon_publishes_each_dataset_at_its_home_and_nowhere_else(tmp_path, word, state, fraction):
    (tmp_path / "config.toml").write_text(CONFIGURATION.replace("<state>", word))
    done = run_hydrator("once", "--config", tmp_path / "config.toml")
    assert done.returncode == 0, done.stderr
    for site in SITES:
        here = [did for did, home in zip(DIDS, EXPECTED[:3], strict=False) if home == site]
        states = ";".join(f"'{did}'=\"{state}\"" for did in here)
        fractions = ";".join(f"'{did}'={fraction}" for did in here if fraction)
        ad = (tmp_path / f"ads/{site}.ad").read_text().splitlines()
        assert {f"DatasetStates = [{states}]", f"DatasetFractions = [{fractions}]"} <= set(ad)
