"""The schedd's transforms on a real pool: the ads of jobs on hold, and lists that are refused."""

import re
import time

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ExprTree

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.expressions import SUBMITTED_HERE
from tests.located import description
from tests.transform_oracle import locality_expressions, requirements_expression

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

A, B = Did("ska:a"), Did("ska:b")
BOTH = '{"ska:b", "ska:a"}'
LOCALITY_EXPRESSIONS = (
    "DataLocalityKey",
    "DatasetsHere",
    "DataLocalityShares",
    "DataLocalityOldest",
    "DataLocalityHere",
    "DataLocalityRank",
)
REFUSED = {
    "ska": "must be a list of strings",
    "undefined": "must be a list of strings",
    '"ska:a"': "must be a list of strings",
    "5": "must be a list of strings",
    "{}": "is empty",
    '{"ska:a", 5}': "every item must be a string",
    '{{"ska:a"}}': "every item must be a string",
    '{"ska:a b"}': "use letters, digits and . _ : / @ = + ~ - only; got ska:a b",
    r'{"ska:\"a"}': "use letters",
    '{"ska:é"}': "use letters",
    '{"a"}': "every item must be scope:name, and neither part may be empty",
    f'{{"ska:{"x" * 497}"}}': "more than 500 characters",
}


@pytest.fixture
def submit(installed):
    """Submit jobs on hold; they leave the queue at the end of the test."""
    clusters = []

    def submitted(datasets, *lines):
        clusters.append(installed.pool.submit(description(datasets, "hold = true", *lines)))
        return clusters[-1]

    yield submitted
    installed.remove(*clusters)


@pytest.fixture
def ad(installed, submit):
    """Submit a job on hold; return its ad with unevaluated expressions."""
    return lambda *lines: long_ad(installed, submit(*lines))


def long_ad(installed, cluster):
    return classad2.parseOne(installed.pool.run("condor_q", f"{cluster}.0", "-long").stdout)


def same(found, wanted):
    """Compare as HTCondor's tools print it: there, a backslash in a text has no meaning."""
    return str(found) == str(classad2.parseOne(f"X = {wanted}\n").lookup("X"))


@pytest.mark.parametrize("mode", ["auto", "require", "wait"])
def test_list_of_datasets_gets_all_attributes_of_the_contract(ad, mode):
    before = int(time.time())
    job = ad(BOTH, f'+DataLocality = "{mode.capitalize()}"')
    assert (job["RequiredDatasets"], job["DataLocality"]) == ([A, B], mode)
    assert (job["DataLocalityMaxAge"], job["DataLocalityTransformed"]) == (20700, True)
    expected = locality_expressions([A, B], mode)
    assert {name for name in job if name in LOCALITY_EXPRESSIONS} == set(expected)
    for name, expression in expected.items():
        assert same(job.lookup(name), expression), name
    if mode == "require":
        assert "DataLocalityAnyAfter" not in job
    else:
        wait = {"auto": 600, "wait": 3600}[mode]
        step = max(300, wait // 12)
        assert job["DataLocalityMaxWait"] == wait
        assert job["DataLocalityAnyAfter"] % step == 0
        assert before + wait <= job["DataLocalityAnyAfter"] <= time.time() + wait + step


def test_job_without_a_mode_gets_mode_auto(ad):
    assert ad('{"ska:a"}')["DataLocality"] == "auto"


@pytest.mark.parametrize("mode", ["auto", "wait"])
def test_job_prepared_by_hydrator_submit_keeps_its_short_clause(installed, mode):
    """Also the requirements are those of the submission, so that the jobs of a cluster share them."""
    home = installed.pool.user_home("alice")
    file = home / f"prepared-{mode}.sub"
    mode_line = f'+DataLocality = "{mode}"'
    file.write_text(description(BOTH, "hold = true", mode_line, "requirements = TARGET.Cpus > 0"))
    prepared = installed.run("submit", "filter", str(file)).stdout
    cluster = installed.pool.submit(prepared)
    job = long_ad(installed, cluster)
    assert (job["RequiredDatasets"], job["DataLocality"]) == ([B, A], mode)
    assert (job["DataLocalityKey"], job["DataLocalityTransformed"]) == (set_key([A, B]), True)
    assert same(job.lookup("DataLocalityHere"), SUBMITTED_HERE)
    assert str(job.lookup("Requirements")).count("DataLocalityHere") == 1
    assert "TARGET.Cpus > 0" in str(job.lookup("Requirements"))
    own = re.findall(rf"^103 {cluster}\.0 (\w+)", queue_log(installed), re.MULTILINE)
    assert not {"Requirements", "DataLocalityHere", "RequiredDatasets"} & set(own)
    installed.remove(cluster)


def queue_log(installed):
    return next(installed.pool.home.rglob("job_queue.log")).read_text("utf-8")


def test_the_users_requirements_stay_in_parentheses_and_rank_is_unchanged(ad):
    own = (
        r'requirements = TARGET.Cpus > 99 || regexp("^a\\.\"b\"", TARGET.Machine)',
        "rank = TARGET.Mips - 5",
    )
    plain, job = ad(None, *own), ad('{"ska:a"}', *own)
    wanted = ExprTree(requirements_expression(str(plain.lookup("Requirements"))))
    assert str(job.lookup("Requirements")) == str(wanted)
    assert same(job.lookup("Rank"), str(plain.lookup("Rank")))


def test_transformed_job_is_not_transformed_again(installed, submit):
    pool, cluster = installed.pool, submit(BOTH, "rank = TARGET.Mips")
    once = pool.run("condor_q", f"{cluster}.0", "-long").stdout
    file = pool.shared / "once.ad"
    file.write_text(once)
    words = ("condor_transform_ads", "-jobtransforms", "DataLocality", "-long", file)
    again = pool.run(*words, check=False).stdout  # it ends with 1 whatever it did
    assert expressions(again) == expressions(once)


def expressions(text):
    found = classad2.parseOne(text)
    return {name: str(found.lookup(name)) for name in found}


def test_malformed_lists_of_datasets_are_refused_with_a_sentence_each(installed):
    """All in one call, because a call costs more than a submission."""
    pool, home = installed.pool, installed.pool.user_home("alice")
    for number, datasets in enumerate(REFUSED):
        (home / f"refused{number}.sub").write_text(description(datasets, "hold = true"), "utf-8")
        (home / f"refused{number}.sub").chmod(0o644)
    line = "condor_submit refused$n.sub 2>&1; printf '%s\\f' $?"
    batch = f"for n in $(seq 0 {len(REFUSED) - 1}); do {line}; done"
    answers = pool.run("/bin/sh", "-c", batch, user="alice").stdout.split("\f")[:-1]
    for (datasets, sentence), answer in zip(REFUSED.items(), answers, strict=True):
        assert sentence in answer, (datasets, answer)
        assert "RequiredDatasets" in answer
        assert answer.endswith("1"), answer
