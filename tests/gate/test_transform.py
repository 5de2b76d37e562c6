"""The schedd's transforms on a real pool: the ads of jobs on hold, and lists that are refused."""

import re
import time

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest
from classad2 import ExprTree

from hydrator.domain.ads.dataset_sets import hash_key, names_key
from hydrator.domain.ads.expressions import HERE, JOB_RANK, REQUIREMENT
from hydrator.domain.model import Did
from tests.located import LISTED, LONG, description, same

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

A, B = Did("ska:a"), Did("ska:b")
BOTH = '{"ska:b", "ska:a"}'
REFUSED = {
    "ska": "must be a list of strings",
    "5": "must be a list of strings",
    "{}": "must be a list of strings",
    '{"ska:a", 5}': "must be a list of strings",
    "false ? {} : RequiredDatasets": "must be a list of strings",
    '{"ska:a b"}': "not with  : ska:a b",
    r'{"ska:\"a"}': "must be a list of strings",
    '{"a"}': "must be scope:name",
    f'{{"ska:{"x" * 497}"}}': "up to 500 letters",
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


def is_undefined(ad, name):
    """Return whether the job has no value: a deleted attribute of a cluster is undefined."""
    return str(ad.lookup(name)) in {"None", "undefined"} if name in ad else True


@pytest.mark.parametrize("mode", ["auto", "require", "wait"])
def test_list_of_datasets_gets_all_attributes_of_the_contract(ad, mode):
    before = int(time.time())
    job = ad(BOTH, f'+DataLocality = "{mode.capitalize()}"')
    assert (job["RequiredDatasets"], job["DataLocality"]) == ([B, A], mode)
    assert (job["DataLocalityKey"], job["DataLocalityMaxAge"]) == (names_key([B, A]), 20700)
    assert job["DataLocalityTransformed"] is True
    assert same(job.lookup("DataLocalityHere"), HERE[mode])
    assert same(job.lookup("DataLocalityRank"), JOB_RANK)
    if mode == "require":
        assert is_undefined(job, "DataLocalityAnyAfter")
    else:
        wait, step = {"auto": (600, 3600), "wait": (3600, 1800)}[mode]
        assert job["DataLocalityAnyAfter"] % step == 0
        assert before + wait <= job["DataLocalityAnyAfter"] <= time.time() + wait + step


def test_long_list_has_the_key_of_its_cluster_and_no_copied_hash(ad):
    job = ad(LISTED, f'+DataLocalityKey = "{hash_key([A, B])}"', f'+DataLocalityKeyFor = "{A},{B}"')
    assert re.fullmatch(rf"c[0-9]+[.]{len(','.join(LONG))}@[^@]+(@.+)?", job["DataLocalityKey"])
    assert is_undefined(job, "DataLocalityKeyFor")


def test_job_prepared_by_hydrator_submit_has_its_hash_and_shares_its_requirements(installed):
    """The schedd stores Requirements once for all jobs of the cluster."""
    file = installed.pool.user_home("alice") / "prepared.sub"
    file.write_text(description(LISTED, "hold = true", "requirements = TARGET.Cpus > 0"))
    cluster = installed.pool.submit(installed.run("submit", "filter", str(file)).stdout)
    job = long_ad(installed, cluster)
    assert (job["RequiredDatasets"], job["DataLocalityKey"]) == (LONG, hash_key(LONG))
    requirements = str(job.lookup("Requirements"))
    assert requirements.count(str(ExprTree(REQUIREMENT))) == 1
    assert "TARGET.Cpus > 0" in requirements
    own = re.findall(rf"^103 {cluster}\.0 (\w+)", queue_log(installed), re.MULTILINE)
    assert not {"Requirements", "RequiredDatasets"} & set(own)
    installed.remove(cluster)


def queue_log(installed):
    return next(installed.pool.home.rglob("job_queue.log")).read_text("utf-8")


def test_the_users_requirements_stay_in_parentheses_and_rank_is_unchanged(ad):
    own = (
        r'requirements = TARGET.Cpus > 99 || regexp("^a\\.\"b\"", TARGET.Machine)',
        "rank = TARGET.Mips - 5",
    )
    plain, job = ad(None, *own), ad('{"ska:a"}', *own)
    wanted = str(plain.lookup("Requirements"))
    assert str(job.lookup("Requirements")) == wanted, "condor_submit has added the clause, for all jobs"
    assert "(TARGET.Cpus > 99 || regexp(" in wanted
    assert wanted.count(str(ExprTree(REQUIREMENT))) == 1
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
