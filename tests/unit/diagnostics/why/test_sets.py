"""Jobs with a key: the explanation says what the job waits for, and follows from its real expressions."""

import sys
import time
from dataclasses import replace
from typing import Any, cast

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ClassAd, ExprTree

from adapters.condor.bindings.match_calls import JobMatch
from hydrator.cli.commands.why import explain_dids
from hydrator.diagnostics.start_record import START_ATTRIBUTE
from hydrator.diagnostics.why.explain import explain
from hydrator.diagnostics.why.explanation import JobExplanation, MismatchCause
from hydrator.diagnostics.why.pool_facts import (
    HERE_ATTRIBUTE,
    fact_expressions,
    parse_job,
    parse_slot_groups,
    with_requests,
)
from hydrator.diagnostics.why.query import WhyQuery
from hydrator.diagnostics.why.render import render_answer
from hydrator.domain.ads import contract
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.expressions import HERE, START_TEXT
from hydrator.domain.ads.openings import Opening, Openings, Outlook, Reason
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    Site,
    SiteFacts,
    Snapshot,
    from_unix,
)
from tests.slots import hooked

L1, L2 = Did("lofar:L1"), Did("lofar:L2")
KEY = set_key([L1, L2])
NOW = int(time.time())
"""The expressions read the machine's clock, so a test's time is that of its start."""


@pytest.fixture(autouse=True)
def _now_is_the_start_of_the_test(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "NOW", int(time.time()))


def slot(site: str, share: float | None = None, *, age: int = 0, **more: str) -> ClassAd:
    """A slot; *more* has entries for the key by the attribute's name, or whole attributes."""
    now = int(time.time())
    ad = ClassAd({"Name": f"slot1@{site}", "Cpus": 4, "TotalSlotCpus": 4, "PartitionableSlot": True})
    ad["DataLocalitySite"], ad["DataLocalityGeneration"] = site, 1
    ad["DataLocalityAsOf"], ad["DataLocalityOpenUntil"] = now - age, now + 600
    ad["DataLocalitySets"] = ExprTree("[]" if share is None else f"['{KEY}'={share}]")
    for name, literal in more.items():
        value = literal if name in {"DataLocalityOpenUntil", "DatasetStates"} else f"['{KEY}'={literal}]"
        ad[name] = ExprTree(value)
    ad["Requirements"] = ExprTree("(MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus)")
    return hooked(ad)


def away(site: str, read: int | None, share: float = 0.0) -> ClassAd:
    """A slot without all the data, where the set is open if *read* is given."""
    reads = {} if read is None else {"DataLocalityOpen": str(read), "DataLocalityReadFrom": '"UK"'}
    return slot(site, share, **reads)


UNPACED = {"DataLocalityOpenUntil": "0"}


def refusing(ad: ClassAd) -> ClassAd:
    """A slot whose glidein retires in 15 minutes, which is too early for jobs of four hours."""
    ad["Start"] = ExprTree("RetiresAt - time() > TARGET.DataLocalityExpectedSeconds")
    ad["RetiresAt"], ad["Requirements"] = NOW + 900, ExprTree("(MY.Cpus > 0) && (START)")
    return ad


def small(ad: ClassAd) -> ClassAd:
    ad["Cpus"] = ad["TotalSlotCpus"] = 1
    ad["Requirements"] = ExprTree("TARGET.RequestCpus <= MY.Cpus")
    return ad


def full(ad: ClassAd) -> ClassAd:
    ad["Cpus"] = 0
    return ad


def explained(
    *slots: ClassAd,
    mode: str = "auto",
    known: DaemonKnowledge | None = None,
    now: int | None = None,
    is_free: bool = True,
    **more: str,
) -> JobExplanation:
    """Explain a job at *now* (Unix s; None: the start of the test); *is_free*: slots that match are free."""
    now = NOW if now is None else now
    texts = {
        "ClusterId": "1",
        "ProcId": "0",
        "JobStatus": "1",
        "RequestCpus": "1",
        "RequiredDatasets": f'{{"{L1}", "{L2}"}}',
        "DataLocality": f'"{mode}"',
        "DataLocalityKey": f'"{KEY}"',
        "DataLocalityMaxAge": "20700",
        "DataLocalityAnyAfter": str(now + 600),
        HERE_ATTRIBUTE: HERE[mode],
        "Requirements": f"((TARGET.Cpus >= RequestCpus)) && MY.{HERE_ATTRIBUTE}",
        **more,
    }
    ad = ClassAd()
    for name, text in texts.items():
        ad[name] = ExprTree(text)
    job = parse_job(texts, [0], "schedd")
    facts = fact_expressions(job.datasets)
    match = JobMatch(classad2, ad, facts, ["Site"], [HERE_ATTRIBUTE])
    judged = match.evaluate_slots([(one, None) for one in slots])
    groups = parse_slot_groups(judged, job.datasets)
    answer = explain(with_requests(job, judged), groups, known, now=from_unix(now))
    here = {str(one["DataLocalitySite"]) for one in slots if is_free and ad.symmetricMatch(one)}
    assert set(answer.matching_sites) == here
    return answer


def knowledge(**more) -> DaemonKnowledge:
    """What the daemon knows: the job's datasets are at UK."""
    sizes = {L1: 20_000_000_000, L2: 11_000_000_000}
    at_uk = SiteFacts(from_unix(NOW), dict.fromkeys(sizes, Fact(DatasetState.AVAILABLE, from_unix(NOW))))
    snapshot = Snapshot({Site("UK"): at_uk}, bytes_total=sizes)
    return DaemonKnowledge(from_unix(time.time()), snapshot, frozenset(sizes), **more)


def outlook(*what, **more) -> DaemonKnowledge:
    return knowledge(openings=Openings({}, NOW + 600, outlooks={KEY: Outlook(*what)}, **more))


@pytest.mark.parametrize(
    ("reads", "sentence"),
    [
        ({"DE": (240, 0.0), "PL": (300, 0.5)}, "DE, PL by reading 31 GB from UK in 4 min (at DE)"),
        ({"DE": (14400, 0.0), "PL": (240, 0.5)}, "DE, PL by reading 15.5 GB from UK in 4 min (at PL)"),
        ({"DE": (99999999999, 0.0)}, "DE by reading 31 GB from UK"),
    ],
    ids=["the first", "the shortest", "a time that cannot be"],
)
def test_open_set_names_the_sites_and_the_shortest_read(reads, sentence):
    slots = [away(site, *read) for site, read in reads.items()]
    answer = explained(full(slot("UK", 1.0)), *slots, known=knowledge())
    assert answer.matching_sites == tuple(reads)
    assert answer.wait == f"the job may start now at {sentence}"


def test_job_on_hold_is_not_told_where_it_may_start():
    known = outlook(Reason.OPEN, (Site("DE"),))
    assert explained(full(slot("UK", 1.0)), away("DE", 240), known=known, JobStatus="5").wait is None


def test_set_with_a_dataset_on_its_way_is_told_that_the_daemon_does_not_pace_it_yet():
    known = knowledge(openings=Openings({}, NOW + 600))
    text = explained(away("UK", None, 0.5), known=known).wait
    assert "the daemon paces its set once it has seen the job, and has facts about all its datasets" in text
    here, coming = (
        Fact(state, from_unix(NOW), 0.4) for state in (DatasetState.AVAILABLE, DatasetState.STAGING)
    )
    facts = {
        Site("UK"): SiteFacts(from_unix(NOW), {L1: here, L2: coming}),
        Site("DE"): SiteFacts(None, {L1: coming}),
    }
    known = replace(known, snapshot=replace(known.snapshot, sites=facts))
    assert explained(away("UK", None, 0.5), known=known).wait == (
        f"the job waits for {L2} (STAGING 40 % at UK): the daemon paces no set while a dataset is on its way"
        " or cannot be read"
    )


@pytest.mark.parametrize(("universe", "name"), [("7", "scheduler"), ("9", "grid"), ("12", "local")])
def test_job_that_no_negotiator_places_is_told_so(universe, name):
    texts = {"JobUniverse": universe, "Requirements": "true"}
    answer = explained(slot("UK", 1.0), **texts)
    assert answer.verdict.startswith(f"no negotiator places a job of the {name} universe; ")
    assert not answer.could_run
    assert answer.notes == ("data locality does not decide where a job of its universe runs",)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((Reason.BESIDE, (Site("UK"),), 8), "its data is at UK, with up to 7 jobs before it there"),
        ((Reason.BESIDE, (Site("UK"),), 1), "its data is at UK, with no job before it there"),
        ((Reason.TURN, (Site("UK"),), 2), "has not come: the link of UK feeds jobs of 2 sets before it"),
        ((Reason.TURN, (), 300), "has not come: the daemon opens 300 sets before it"),
        (
            (Reason.NOWHERE, (Site("UK"),)),
            "no job may read from UK, where its data is ([network] excluded_sources)",
        ),
        ((Reason.NOWHERE,), "no site that could read its data has slots that are large enough for it"),
    ],
)
def test_closed_set_waits_for_what_the_daemon_says_and_not_for_a_moment(told, words):
    """P1: a sentence with the present time moved with the clock."""
    slots, known = (full(slot("UK", 1.0)), away("DE", None)), outlook(*told)
    answer = explained(*slots, known=known)
    assert answer.wait == f"the job waits: {answer.wait.removeprefix('the job waits: ')}"
    assert answer.wait.endswith(words)
    later = replace(known, now=from_unix(NOW + 100))
    assert explained(*slots, known=later).wait == answer.wait
    reasons = {at.site: at.reasons[0].text for at in answer.sites}
    assert reasons["DE"].endswith("the job may not read its data from here now")


OPEN_AT_DE = "the job may start now at DE by reading 31 GB from UK in 4 min"
REFUSED = ", and the free slots there do not take it because"
BROKEN = "the slots are broken, so no job can run there: Not enough GPUs"
RETIRES = (
    f"{REFUSED} the slots refuse the job: `RetiresAt - time() > TARGET.DataLocalityExpectedSeconds` is not"
    " true in their START or resource limits"
)
SMALL = f"{REFUSED} it requests 2 cores; the largest slot there has 1 core"
BESIDE = "the job waits: its data is at UK, with no job before it there"


@pytest.mark.parametrize(
    ("at_home", "elsewhere", "sentence", "of_row"),
    [
        (full, refusing, OPEN_AT_DE + RETIRES, ""),
        (full, small, OPEN_AT_DE + SMALL, ""),
        (full, full, f"{OPEN_AT_DE}, and no slot there is free", ""),
        (refusing, None, BESIDE + RETIRES, "the slots refuse the job"),
        (small, None, BESIDE + SMALL, "it requests 2 cores"),
        (full, None, BESIDE, "busy"),
    ],
)
def test_auto_job_is_told_why_free_slots_do_not_take_it(at_home, elsewhere, sentence, of_row):
    """P1: at DE where its set is open, or at home; and the sentence does not move with the clock."""
    de = elsewhere(away("DE", 240)) if elsewhere else away("DE", None)
    slots, known = (at_home(slot("UK", 1.0)), de), outlook(Reason.BESIDE, (Site("UK"),), 1)
    for now in (NOW, NOW + 100):
        answer = explained(
            *slots, known=replace(known, now=from_unix(now)), now=now, RequestCpus="2",
            DataLocalityExpectedSeconds="14400",
        )  # fmt: skip
        assert answer.wait == sentence
        assert not answer.could_run
    (uk,) = (at for at in answer.sites if at.site == "UK")
    assert of_row in uk.reasons[0].text


@pytest.mark.parametrize(
    ("at_home", "ending"),
    [
        ({"Draining": True}, ", and no slot there takes a new job: they are drained"),
        ({"Offline": True}, ", and no slot there takes a new job: they are offline"),
        ({"SlotBrokenReason": "Not enough GPUs"}, f", and {BROKEN}"),
        ({"State": "Claimed"}, ""),
        (
            {"DataLocalityAsOf": 0},
            f"{REFUSED} the facts about its data there are older than it accepts (DataLocalityMaxAge)",
        ),
        ({"DataLocalitySets": ExprTree(f"['{KEY}'=0.99]")}, ", but the slot ads there lack some of it"),
    ],
)
def test_auto_job_is_told_if_waiting_for_slots_beside_its_data_is_in_vain(at_home, ending):
    uk, known = slot("UK", 1.0), outlook(Reason.BESIDE, (Site("UK"),), 1)
    uk.update(at_home)
    for now in (NOW, NOW + 100):
        answer = explained(
            uk, away("DE", None), known=replace(known, now=from_unix(now)), now=now, is_free=False
        )
        assert answer.wait == BESIDE + ending
        helps = "a slot becomes free" if not ending else "the daemon lets the job read from elsewhere"
        assert answer.remedy.startswith(helps)


def test_auto_job_is_told_that_the_slots_where_it_may_read_drain():
    de = away("DE", 240)
    de["Draining"] = True
    answer = explained(full(slot("UK", 1.0)), de, known=knowledge(), is_free=False)
    assert answer.wait == f"{OPEN_AT_DE}, and no slot there takes a new job: they are drained"


ABSENT = "submit the job again with a dataset name that exists, or without it"


@pytest.mark.parametrize("mode", ["auto", "require"])
def test_job_with_some_absent_datasets_is_offered_to_run_without_them(mode):
    """Also an auto job: it would start away from its data, and not find them."""
    here = {L1: Fact(DatasetState.AVAILABLE, from_unix(NOW))}
    known = replace(outlook(Reason.BESIDE, (Site("UK"),), 1), demanded_dids=frozenset({L1, L2}))
    sizes = {L1: 10**9}
    snapshot = Snapshot({Site("UK"): SiteFacts(from_unix(NOW), here)}, bytes_total=sizes)
    ends = {} if mode == "auto" else {"DataLocalityAnyAfter": "undefined"}
    slots = slot("UK", 0.5), slot("DE", 0.0)
    answer = explained(*slots, mode=mode, known=replace(known, snapshot=snapshot), **ends)
    assert f"{L2} is not in any catalogue" in answer.sites[1].reasons[0].text
    assert answer.remedy == f"{ABSENT} (hydrator submit rapthor: --skip-absent, or --at-least 0.9)"
    placeless = replace(snapshot, bytes_total={**sizes, L2: 10**9})
    answer = explained(slot("UK", 0.5), mode=mode, known=replace(known, snapshot=placeless))
    assert f"{L2} is at no site, though a catalogue has its name" in answer.sites[0].reasons[0].text


def test_auto_job_whose_datasets_no_catalogue_has_is_not_told_to_read_them_elsewhere():
    nothing = Snapshot({Site("UK"): SiteFacts(from_unix(NOW), {})})
    known = replace(outlook(Reason.ABSENT, (), 600), snapshot=nothing)
    assert explained(slot("UK", 0.0), slot("DE", 0.0), known=known).remedy.startswith(ABSENT)


@pytest.mark.parametrize(
    "texts",
    [
        {"DataLocalityTransformed": "true", "Requirements": "true"},  # pool-config --rank-only
        {"Requirements": "(TARGET.Cpus > 0)", HERE_ATTRIBUTE: "false"},
    ],
)
@pytest.mark.parametrize("mode", ["auto", "require"])
def test_job_whose_requirements_have_no_data_clause_is_not_told_that_it_waits(mode, texts):
    answer = explained(slot("UK", 0.5), mode=mode, **texts)
    assert answer.wait is None
    assert answer.could_run
    assert "its Requirements have no DataLocalityHere" in answer.notes[0]


@pytest.mark.parametrize(
    ("lanes", "lane", "sentence"),
    [
        ((2, 3), 0, "its turn to read has not come: the link of UK feeds jobs of 3 sets before it"),
        ((2, 3), 2, "it may start now at DE by reading 31 GB from UK in 4 min; the slot ads there do not"),
        ((), 0, "it may start now at DE by reading 31 GB from UK in 4 min; the slot ads there do not"),
    ],
)
def test_job_whose_set_is_open_is_told_if_its_lane_or_the_slots_are_not(lanes, lane, sentence):
    made = Openings(
        {Site("DE"): {f"{KEY}~2" if lanes else KEY: Opening(240, Site("UK"), 31 * 10**9)}},
        NOW + 600,
        outlooks={KEY: Outlook(Reason.OPEN, (Site("DE"),), 3, lanes)},
    )
    slots = full(slot("UK", 1.0)), away("DE", None)
    answer = explained(*slots, known=knowledge(openings=made), DataLocalityLane=str(lane))
    assert answer.wait.startswith(f"the job waits: {sentence}")


@pytest.mark.parametrize(
    "told",
    [(Reason.BESIDE, (Site("UK"),), 8), (Reason.OPEN, (Site("DE"),), 1), (Reason.TURN, (Site("UK"),), 2)],
)
@pytest.mark.parametrize("read", [None, 240])
def test_auto_job_has_the_same_answer_two_minutes_later(told, read):
    """L2 is on tape at DE; the negotiator answered twice; the glideins of UK retire soon."""
    tape = "['lofar:L1'=\"AVAILABLE\";'lofar:L2'=\"NEARLINE\"]"
    de = away("DE", read)
    de["DatasetStates"] = ExprTree(tape)
    slots = refusing(slot("UK", 1.0)), small(de)
    printed = {
        render_answer(
            explained(
                *slots, known=replace(outlook(*told), now=from_unix(now)), now=now, RequestCpus="2",
                DataLocalityExpectedSeconds="14400", LastRejMatchReason='"no match found"',
                LastRejMatchTime=str(now - late),
            )
        )
        for now, late in ((NOW, 7), (NOW + 120, 51))
    }  # fmt: skip
    (answer,) = printed
    assert "the negotiator reports: no match found" in answer.lines


@pytest.mark.parametrize(
    ("share", "remedy"),
    [
        (0.0, "the daemon lets the job read from elsewhere"),
        (None, "the job's wait for its data ends in 10 min"),
    ],
)
def test_end_of_the_wait_helps_only_where_no_daemon_paces_the_set(share, remedy):
    assert explained(slot("DE", share)).remedy.startswith(remedy)


def test_unpaced_job_is_told_when_its_wait_ends_and_why_nobody_paces_it():
    answer = explained(slot("DE", None, **UNPACED), known=knowledge(no_openings_reason="no schedd answers"))
    assert answer.wait.startswith(
        "no daemon paces the reads of the job (no schedd answers): it needs its data"
    )
    assert answer.sites[0].reasons[0].text.endswith("no entry for the job's set of datasets yet")


def test_job_whose_set_has_no_entry_yet_is_not_advised_to_run_without_its_data():
    """As in its first minute, of a dataset that the slots list in another letter case."""
    uk = slot("UK", None, DatasetStates=f"['{L1.lower()}'=\"AVAILABLE\";'{L2.lower()}'=\"AVAILABLE\"]")
    answer = explained(uk, mode="require", DataLocalityAnyAfter="undefined")
    assert answer.remedy == "the slot ads get an entry for its datasets (in a minute or two)"


@pytest.mark.parametrize(("mode", "is_told"), [("require", False), ("auto", True)])
def test_a_missing_entry_is_told_only_where_it_keeps_the_job_away(mode, is_told):
    """A job that insists on its data does not match where a dataset is absent, with an entry or without."""
    now = from_unix(NOW)
    facts = {did: Fact(DatasetState.AVAILABLE, now) for did in (L1, L2)}
    known = DaemonKnowledge(now, Snapshot({Site("UK"): SiteFacts(now, facts)}), frozenset(facts))
    de, uk = explained(slot("UK"), slot("DE"), mode=mode, known=known).sites
    entry = "no entry for the job's set of datasets yet"
    assert (entry in uk.reasons[0].text, entry in de.reasons[0].text) == (True, is_told)
    assert "is not at this site" in de.reasons[0].text


@pytest.mark.parametrize("state", [state for state in DatasetState if state is not DatasetState.AVAILABLE])
def test_state_explains_the_row_of_a_require_job_before_the_set_is_published(state):
    """Case S33 of cases/submit.md."""
    now = from_unix(NOW)
    facts = {L1: Fact(DatasetState.AVAILABLE, now), L2: Fact(state, now, 0.4)}
    known = DaemonKnowledge(now, Snapshot({Site("DE"): SiteFacts(now, facts)}), frozenset(facts))
    for unpublished in (known, replace(known, demanded_dids=frozenset())):
        (de,) = explained(slot("DE"), mode="require", known=unpublished).sites
        assert f"{L2} is {state} 40 %" in de.reasons[0].text
        assert "no entry" not in de.reasons[0].text


@pytest.mark.parametrize(
    ("more", "share", "sites"), [({}, 0.0, ()), (UNPACED, 0.0, ("DE",)), ({}, None, ("DE",))]
)
def test_end_of_the_wait_counts_only_where_no_daemon_paces_the_set(more, share, sites):
    answer = explained(slot("DE", share, **more), DataLocalityAnyAfter=str(NOW - 5))
    assert answer.matching_sites == sites


WRONG = "no site answers for the job's list of datasets, because its DataLocalityKey does not stand for"


def test_wrong_key_is_the_reason_and_has_a_remedy():
    answer = explained(slot("UK", 1.0), mode="require", DataLocalityKey='"sother"')
    assert WRONG in answer.sites[0].reasons[0].text
    assert WRONG in "\n".join(render_answer(answer).lines)
    assert answer.remedy.startswith(
        "submit the job again: without DataLocalityKey and DataLocalityTransformed; a"
    )


@pytest.mark.parametrize("mode", ["require", "auto"])
@pytest.mark.parametrize("status", ["1", "2"])
def test_job_with_the_key_of_another_list_starts_beside_that_and_is_told(mode, status):
    """Sites answer for the list that the key is of."""
    ad, key = slot("UK"), set_key([L1])
    ad["DataLocalitySets"] = ExprTree(f"['{key}'=1.0]")
    told = {"DataLocalityKey": f'"{key}"', "JobStatus": status, START_ATTRIBUTE: '"local"'}
    told[contract.START] = START_TEXT
    answer = explained(ad, mode=mode, **told)
    assert answer.matching_sites == ("UK",)
    text = "\n".join(render_answer(answer).lines)
    assert WRONG in text
    assert "it waits, or starts where its data is not" in text
    assert "was there when it started" not in text


# figures, slots and states that are out of the ordinary


@pytest.mark.parametrize("mode", ["require", "auto"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("age", "most", "limit"),
    [
        (30000, "20700", "the job accepts no fact older than 5 h 45 min"),
        (0, "-5", "the job accepts no fact older than 0 s"),
        (0, "undefined", "the job has no DataLocalityMaxAge"),
    ],
)
def test_whole_set_with_facts_too_old_is_not_called_absent_or_here(mode, known, age, most, limit):
    """An ad with room for the set alone has no states of its datasets."""
    facts = {"DataLocalityMaxAge": most, "DataLocalityAnyAfter": "undefined"}
    answer = explained(slot("UK", 1.0, age=age), mode=mode, known=known_at("UK") if known else None, **facts)
    text = answer.sites[0].reasons[0].text
    assert text.startswith(f"0 here, 2 not confirmed lately: {L1} was AVAILABLE ")
    assert limit in text
    assert "100 %" not in text
    if mode == "require":
        helps = f"the daemon gets fresh facts about {L1}"
        if most in {"-5", "undefined"}:
            helps = "submit the job again: its DataLocalityMaxAge accepts no fact"
        assert answer.remedy.startswith(helps)


@pytest.mark.parametrize(
    ("state", "missing"),
    [(DatasetState.UNAVAILABLE, ""), (DatasetState.STUCK, "6.6 GB"), (DatasetState.NEARLINE, "6.6 GB")],
)
def test_data_in_unreadable_storage_need_not_arrive(state, missing):
    facts = {L1: Fact(DatasetState.AVAILABLE, from_unix(NOW)), L2: Fact(state, from_unix(NOW), 0.4)}
    snapshot = replace(knowledge().snapshot, sites={Site("UK"): SiteFacts(from_unix(NOW), facts)})
    answer = explained(slot("UK", 0.6), mode="require", known=replace(knowledge(), snapshot=snapshot))
    assert (f"{missing} missing" in answer.sites[0].reasons[0].text) == bool(missing)
    assert (" missing: " in answer.sites[0].reasons[0].text) == bool(missing)


@pytest.mark.parametrize(
    ("name", "request_text", "reason", "remedy"),
    [
        ("Cpus", "8", "it requests 8 cores; the largest slot there has 4 cores", "ask for 4 cores or less"),
        ("Cpus", "1e300", "it requests 1e+300 cores; the largest", "ask for 4 cores or less"),
        ("Cpus", "TARGET.Cpus * 2", "its request depends on the slot, and exceeds the 4 cores", "ask for 4 "),
        ("Cpus", "undefined", "its RequestCpus is not a number", "give RequestCpus a number"),
        ("Cpus", '"many"', "its RequestCpus is not a number", "give RequestCpus a number"),
        ("Cpus", "1 / 0", "its RequestCpus is not a number", "give RequestCpus a number"),
        (
            "GPUs",
            "1",
            "it requests 1 GPU; the slots there have none",
            "submit the job again without RequestGPUs",
        ),
        (
            "Memory",
            "1e300",
            "it requests 9.77e+296 GiB of memory; the slots there have none",
            "submit the job",
        ),
    ],
)
def test_request_that_no_slot_fits_is_named_with_a_possible_amount(name, request_text, reason, remedy):
    clause = f"(TARGET.{name} >= Request{name}) && MY.{HERE_ATTRIBUTE}"
    uk = slot("UK", 1.0)
    uk["Requirements"] = ExprTree("MY.Cpus > 0")
    answer = explained(uk, mode="require", Requirements=clause, **{f"Request{name}": request_text})
    assert answer.sites[0].reasons[0].text.startswith(reason)
    assert answer.remedy.startswith(remedy)
    assert len(answer.funnel) < 200


@pytest.mark.parametrize("known", [None, outlook(Reason.BESIDE, (Site("UK"),), 1)])
@pytest.mark.parametrize("elsewhere", [None, 240])
def test_auto_job_that_a_free_slot_beside_its_data_takes_waits_for_nothing(known, elsewhere):
    answer = explained(slot("UK", 1.0), away("DE", elsewhere), known=known)
    assert answer.wait == "the job may start now at UK, beside its data"


def test_set_that_no_site_has_and_that_may_start_anywhere_is_not_read_in_a_second():
    answer = explained(slot("DE", 0.0, DataLocalityOpen="1"), known=knowledge())
    assert (
        answer.wait == "the job may start now at DE by reading from wherever it is what no site has on disk"
    )


NONE_THERE = "no slot there takes a new job: they are"


@pytest.mark.parametrize(
    ("values", "cause", "text", "remedy"),
    [
        (
            {"SlotBrokenReason": "Not enough GPUs", "Cpus": 0, "Start": "SlotBroken"},
            MismatchCause.BROKEN,
            BROKEN,
            "the site's operator corrects the startd's configuration",
        ),
        ({"State": "Drained"}, MismatchCause.BUSY, f"{NONE_THERE} drained", "slots there take jobs again"),
        ({"Draining": True}, MismatchCause.BUSY, f"{NONE_THERE} drained", "slots there take jobs again"),
        ({"Offline": True}, MismatchCause.BUSY, f"{NONE_THERE} offline", "slots there take jobs again"),
        ({"State": "Claimed"}, MismatchCause.BUSY, "busy: other jobs use these slots", "a slot becomes free"),
    ],
)
def test_slot_that_takes_no_job_says_why(values, cause, text, remedy):
    """P2: the START of a broken slot of 25.14 is a text."""
    uk = slot("UK", 1.0)
    uk["Requirements"] = ExprTree("START")
    uk["Start"] = True
    uk.update(values)
    answer = explained(uk, mode="require", is_free=False)
    (reason,) = answer.sites[0].reasons
    assert (reason.cause, reason.text) == (cause, text)
    assert answer.remedy.startswith(remedy)


@pytest.mark.parametrize("is_failing", [True, False])
def test_hook_that_fails_is_not_called_absent(is_failing):
    """P3: its slots have no attributes, but the hook's own error."""
    ad = ClassAd({"Name": "slot1@CLOUD", "Cpus": 4, "Site": "CLOUD", "Requirements": True})
    if is_failing:
        ad["DataLocalityError"] = "CLOUD denies access (401)"
    answer = explained(ad, mode="require")
    text = answer.sites[0].reasons[0].text
    assert ("the hook there fails: CLOUD denies access (401)" in text) == is_failing
    assert ("no hook runs there" in text) != is_failing


@pytest.mark.parametrize("since", ["-5", "0", "1e300"])
def test_impossible_time_of_a_status_is_left_out(since):
    held = explained(slot("UK", 1.0), mode="require", JobStatus="5", EnteredCurrentStatus=since, is_free=True)
    assert held.verdict.startswith("it is held: no reason given")


# before the submission


class Slots:
    """A pool of the given slots, whose matches HTCondor's own library evaluates."""

    def __init__(self, *slots: ClassAd) -> None:
        self._slots = [(one, None) for one in slots]

    def evaluate_match(self, texts, facts, site_attributes, *, atomic_attributes=(), flock=()):
        ad = ClassAd()
        for name, text in texts.items():
            ad[name] = ExprTree(text)
        return JobMatch(classad2, ad, facts, site_attributes, atomic_attributes).evaluate_slots(self._slots)


def explained_before(*slots: ClassAd, known: DaemonKnowledge | None = None) -> JobExplanation:
    query = WhyQuery(cast("Any", Slots(*slots)), ["Site"], lambda *_: known, None, from_unix(NOW))
    return explain_dids(query, [L1, L2], max_age=20700)


def known_at(*sites: str) -> DaemonKnowledge:
    fact = Fact(DatasetState.AVAILABLE, from_unix(NOW))
    facts = {Site(site): SiteFacts(from_unix(NOW), {L1: fact, L2: fact}) for site in sites}
    return replace(knowledge(), snapshot=Snapshot(facts))


FIRST_ALONE = "['lofar:L1'=\"AVAILABLE\"]"
"""The states in an ad that had room for the first dataset only."""


@pytest.mark.parametrize("known", [None, known_at("UK")])
def test_set_without_room_for_each_dataset_has_one_answer_before_and_after(known):
    slots = slot("UK", 1.0, DatasetStates=FIRST_ALONE), slot("DE", 0.4, DatasetStates=FIRST_ALONE)
    before, queued = explained_before(*slots, known=known), explained(*slots, mode="require", known=known)
    assert before.matching_sites == queued.matching_sites == ("UK",)
    assert before.could_run
    (there,) = [at for at in before.sites if at.site == "DE"]
    (there_queued,) = [at for at in queued.sites if at.site == "DE"]
    assert there.reasons[0].text == there_queued.reasons[0].text
    assert "40 % of the job's data is here" in there.reasons[0].text


def test_set_of_no_job_counts_where_its_datasets_are_though_ads_had_no_room():
    slots = slot("UK", DatasetStates=FIRST_ALONE), slot("DE", DatasetStates=FIRST_ALONE)
    assert explained_before(*slots, known=known_at("UK")).matching_sites == ("UK",)


def test_set_without_room_in_any_ad_is_at_no_site_before_the_submission():
    full_site = {Site("UK"): frozenset({L1, L2})}
    known = replace(known_at("UK"), dids_without_room=full_site)
    assert not explained_before(slot("UK"), known=known).could_run


def test_set_with_facts_too_old_is_at_no_site_before_the_submission():
    states = "['lofar:L1'=\"AVAILABLE\";'lofar:L2'=\"AVAILABLE\"]"
    answer = explained_before(slot("UK", 1.0, age=20800, DatasetStates=states), known=known_at("UK"))
    assert not answer.could_run
