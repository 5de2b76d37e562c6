"""For all slots, jobs and datasets: what a job reports is read back, and where it missed it does not go."""

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree
from hypothesis import example, given
from hypothesis import strategies as st

from hydrator.domain.model import from_unix, parse_did
from hydrator.reconcile.misses import PATHS_ATTRIBUTE, parse_misses
from hydrator.submit import job_wrapper as job_start
from hydrator.submit.rapthor.parset import parse_parset
from hydrator.submit.retry import avoid_missed_sites_clause, path_known_clause

NOW = 1_763_690_400
NAMES = st.text("abcXYZ019._:/@=+~-", min_size=1, max_size=490).map(lambda name: parse_did(f"a:{name}"))
SITES = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'\\"), min_size=1, max_size=90
)


@given(st.lists(NAMES, min_size=1, max_size=30, unique=True), SITES, st.integers(0, NOW))
def test_what_the_wrapper_reports_is_read_back(dids, site, when):
    _, text = job_start.prepend_items("X", [job_start.miss_text(site, dids, when)], {})
    assert len(text) <= 990 - len("ChirpDataLocalityMisses")
    found = parse_misses({"ChirpDataLocalityMisses": list(ExprTree(text).eval())})
    assert found
    assert {(miss.site, miss.missed_at) for miss in found} == {(site, from_unix(when))}
    assert {miss.did for miss in found} <= set(dids)
    if len(",".join(dids)) < 400:
        assert {miss.did for miss in found} == set(dids)


@given(st.lists(st.tuples(NAMES, SITES), min_size=1, max_size=20))
def test_what_the_wrapper_reports_always_fits_and_the_last_miss_is_in_it(tries):
    texts = [job_start.miss_text(site, [did], NOW) for did, site in tries]
    _, listed = job_start.prepend_items("X", texts, {})
    assert len(listed) <= 990 - len("ChirpDataLocalityMisses")
    assert ExprTree(listed).eval()[0] == texts[0]


def goes(job: dict[str, object], slot: dict[str, object]) -> object:
    """What the clause is for *job* at *slot*."""
    return ExprTree(avoid_missed_sites_clause(SITE_NAMES)).eval(ClassAd(job), ClassAd(slot))


SITE_NAMES = ("GLIDEIN_ResourceName", "GLIDEIN_Site")
NAMELESS = {"GLIDEIN_ResourceName": "None", "GLIDEIN_Site": "UK"}
"""A slot as GlideinWMS writes it, without a hook."""


AHEAD = 4_000_000_000
UK, NL = {"DataLocalitySite": "UK"}, {"DataLocalitySite": "NL"}
MISSED = {"ChirpDataLocalityMissed": ["UK"]}
AVOIDS = {**MISSED, "ChirpDataLocalityMissedUntil": AHEAD}
AVOIDED = {**MISSED, "ChirpDataLocalityMissedUntil": 1000}
EXIT_85 = {"ExitCode": 85, "MachineAttrDataLocalitySite0": "UK"}


@pytest.mark.parametrize(
    ("job", "slot", "there"),
    [
        ({}, UK, True),
        ({}, {}, True),
        ({**EXIT_85, "ExitCode": 0}, UK, True),
        (AVOIDS, UK, False),
        (AVOIDS, NL, True),
        (AVOIDS, {"GLIDEIN_Site": "UK"}, False),
        (AVOIDS, NAMELESS, False),
        (AVOIDS, {}, True),
        (AVOIDED, UK, True),
        ({**AVOIDS, "LastHoldReasonSubCode": 85}, UK, True),
        (MISSED, UK, True),
        (EXIT_85, UK, False),
        ({"ExitCode": 85, "MachineAttrGLIDEIN_Site0": "UK"}, {"GLIDEIN_Site": "UK"}, False),
        ({"ExitCode": 85, "MachineAttrGLIDEIN_Site0": "UK"}, NAMELESS, False),
        (EXIT_85, NL, True),
        ({"ExitCode": 85}, {}, False),
        ({**EXIT_85, **AVOIDED}, UK, True),
    ],
)
def test_a_job_keeps_away_from_where_it_lately_missed(job, slot, there):
    assert goes(job, slot) is there


@pytest.mark.parametrize(
    ("slot", "there"), [(NAMELESS, True), (UK, True), (NL, False), ({"GLIDEIN_ResourceName": "None"}, False)]
)
def test_a_job_goes_only_where_the_paths_of_its_datasets_are_known(slot, there):
    clause = ExprTree(path_known_clause(SITE_NAMES))
    assert clause.eval(ClassAd({PATHS_ATTRIBUTE: ["UK", "None"]}), ClassAd(slot)) is there


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.text(max_size=3)
    | st.lists(st.text(max_size=3), max_size=2)
)
JOBS = st.fixed_dictionaries(
    {},
    optional={
        "ChirpDataLocalityMissed": VALUES,
        "ChirpDataLocalityMissedUntil": st.integers(0, AHEAD),
        "ExitCode": VALUES,
        "MachineAttrDataLocalitySite0": VALUES,
    },
)
SLOTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["DataLocalitySite", *SITE_NAMES], VALUES | st.just("None"))
)


@given(JOBS, SLOTS)
def test_the_clause_is_true_or_false_for_every_job_and_slot(job, slot):
    job = {name: classad2.Value.Undefined if value is None else value for name, value in job.items()}
    slot = {name: classad2.Value.Undefined if value is None else value for name, value in slot.items()}
    assert goes(job, slot) in (True, False)


PATHS = st.lists(
    st.text(
        st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=20
    ).map("/".__add__),
    min_size=1,
    max_size=4,
)


@example(['/"', "/0"])
@given(PATHS)
def test_a_rewritten_parset_reads_as_exactly_these_paths(paths):
    import glob

    text, _ = job_start.fill_parset(b"[global]\ninput_ms = {input_ms}\ndir_working = w\n", paths, "/s", {})
    parset = parse_parset(text, "p")
    assert sorted(parset.input_globs) == sorted(glob.escape(path) for path in paths)
