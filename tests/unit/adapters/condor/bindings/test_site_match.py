"""The sites that match the rest of a job: evaluated with HTCondor's library, as if the data were there."""

import classad2
import pytest

from adapters.condor.bindings.match_calls import MatchCalls, SiteMatcher

SITES = ["DataLocalitySite", "GLIDEIN_Site"]
HERE = "((TARGET.DataLocalitySets[MY.DataLocalityKey] >= 1.0) =?= true)"


def job(requirements="TARGET.HasGpu =?= true", **more):
    ad = classad2.ClassAd()
    ad["Requirements"] = classad2.ExprTree(f"({requirements}) && MY.DataLocalityHere")
    ad["DataLocalityHere"] = classad2.ExprTree(HERE)
    ad["DataLocalityKey"] = "lofar:L1"
    ad["RequestCpus"] = 4
    ad.update(more)
    return ad


def slot(site, *, gpu=True, start="true", cpus=8, free=8, name="slot1@x", **more):
    ad = classad2.ClassAd()
    ad["Name"] = name
    ad["GLIDEIN_Site"] = site
    ad["HasGpu"] = gpu
    ad["PartitionableSlot"] = True
    ad["TotalSlotCpus"] = cpus
    ad["Cpus"] = free
    ad["Requirements"] = classad2.ExprTree(f"({start}) && TARGET.RequestCpus <= MY.Cpus")
    ad.update(more)
    return ad


def evaluate(the_job, *slots):
    pairs = [each if isinstance(each, tuple) else (each, None) for each in slots]
    return SiteMatcher(classad2, the_job, SITES).evaluate_slots(pairs)


def test_a_site_matches_if_only_the_data_is_missing():
    assert evaluate(job(), slot("CAM"), slot("RAL", gpu=False)) == {"sites": ["CAM"], "matches_now": False}


def test_a_slot_with_the_data_matches_now():
    carrier = classad2.ClassAd({"DataLocalitySets": classad2.ExprTree("['lofar:L1' = 1.0]")})
    answer = evaluate(job(), (slot("CAM"), carrier), slot("RAL"))
    assert answer == {"sites": ["CAM", "RAL"], "matches_now": True}
    assert list(carrier) == ["DataLocalitySets"]


@pytest.mark.parametrize(("cpus", "sites"), [(8, ["CAM"]), (2, [])])
def test_a_busy_slot_counts_as_if_it_were_empty(cpus, sites):
    one = slot("CAM", cpus=cpus, free=0)
    assert evaluate(job(), one)["sites"] == sites
    assert one["Cpus"] == 0


def test_the_slot_decides_too():
    assert evaluate(job(), slot("CAM", start="TARGET.DataLocalityHere =!= false"))["sites"] == ["CAM"]
    assert evaluate(job(), slot("CAM", start='TARGET.Owner =?= "carl"'))["sites"] == []


def test_alike_slots_are_evaluated_once(monkeypatch):
    match = SiteMatcher(classad2, job(), SITES)
    calls = []
    evaluate_one = match._evaluate
    monkeypatch.setattr(match, "_evaluate", lambda *pair: calls.append(pair) or evaluate_one(*pair))
    slots = [slot("CAM", name=f"slot{n}@x", free=n % 8, DataLocalityAsOf=1_000_000 + n) for n in range(100)]
    assert match.evaluate_slots([(each, None) for each in slots])["sites"] == ["CAM"]
    assert len(calls) == 1


def test_slots_that_differ_in_what_the_job_asks_for_are_evaluated_apart():
    answer = evaluate(job('TARGET.Name == "b@x"'), slot("CAM", name="a@x"), slot("RAL", name="b@x"))
    assert answer["sites"] == ["RAL"]


def test_a_slot_without_a_site_is_no_destination():
    one = slot("CAM")
    del one["GLIDEIN_Site"]
    assert evaluate(job(), one) == {"sites": [], "matches_now": False}


def test_an_odd_slot_or_job_matches_nothing():
    assert evaluate(job(requirements="error"), slot("CAM"))["sites"] == []
    assert evaluate(job(), slot("CAM", start="error"))["sites"] == []
    assert evaluate(job(DataLocalityKey=5), slot("CAM"))["matches_now"] is False


def test_no_match_looks_at_dynamic_slots_which_jobs_already_use():
    calls, constraints = object.__new__(MatchCalls), []
    calls.classad, calls.collector_addresses = classad2, lambda: ["cm"]
    calls.query_ads = lambda kind, names, constraint, address: constraints.append(constraint) or []
    calls.evaluate_sites([{"Requirements": "true"}], SITES)
    calls.evaluate_match({"Requirements": "true"}, (), SITES, flock=["other"])
    assert len(constraints) == 3
    for text in constraints:
        shown = [classad2.ExprTree(text).eval(classad2.ClassAd(ad)) for ad in ({}, {"DynamicSlot": True})]
        assert shown == [True, False]
