"""``hydrator why`` beside the real negotiator: the same jobs, the same slots, the same verdict."""

import json

import pytest

from tests.gate.early import begin_early

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]


@begin_early
def matching_and_not(installed):
    """Submit two jobs on hold, whose data is at AU: one of them wants more cores than AU has."""
    installed.catalogue.add("why:au", AU="available", NL="staging")
    held = "hold = true\n"
    return (
        installed.submit(["why:au"], mode="require", more=held),
        installed.submit(["why:au"], mode="require", more=f"request_cpus = 5\n{held}"),
    )


def test_why_says_of_a_match_and_of_a_miss_what_the_negotiator_does(installed, begun):
    pool = installed.pool
    matches, misses = begun(matching_and_not)
    installed.until_states("why:au", UK=None, AU="AVAILABLE", NL="STAGING")

    (match,) = ask(installed, matches)
    assert match["matching_sites"] == ["AU"]
    assert reasons(match) == {"UK": {"data:elsewhere"}, "NL": {"data:state"}}, match
    (miss,) = ask(installed, misses)
    assert miss["matching_sites"] == []
    assert reasons(miss) == {
        "UK": {"data:elsewhere"},
        "AU": {"cores"},
        "NL": {"cores", "data:state"},
    }, miss

    pool.run("condor_release", str(matches), str(misses), user="alice")
    assert installed.pool.ran_at(matches) == ["AU"]
    assert installed.pool.stays_idle(misses)
    installed.remove(misses)


def ask(installed, cluster):
    """Return the answers of `why` once both catalogues have answered about the dataset in the last poll."""

    def answers():
        done = installed.run("why", str(cluster), "--json", check=False)
        return json.loads(done.stdout)["answers"] if '"unseen"' not in done.stdout else None

    return installed.pool.wait(answers, "both catalogues to answer about the dataset")


def reasons(answer):
    """Return the reasons by site: what a slot lacks, and for data what lacks there.

    A slot may also be busy: the jobs of other scenarios run in this pool.
    """
    return {
        at["site"]: {reason["cause"] for reason in at["reasons"] if not reason["missing_datasets"]} - {"busy"}
        | {f"data:{missing['reason']}" for reason in at["reasons"] for missing in reason["missing_datasets"]}
        for at in answer["sites"]
        if at["reasons"]
    }
