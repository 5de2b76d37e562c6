"""Workload files: jobs or a mix, and every problem in words."""

import json
from collections import Counter

import pytest

from hydrator.diagnostics.replay.workload_file import load_workload_file
from hydrator.domain.errors import ConfigError

SITES = [{"site": name, "machines": 1, "cores": 4, "bytes_per_second": 1e6} for name in ("NL", "DE", "PL")]


def loaded(tmp_path, **content):
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"version": 1, "sites": SITES} | content))
    return load_workload_file(path)


def test_listed_jobs_are_sorted_by_submission(tmp_path):
    rows = [
        {"count": 3, "submitted": 5, "interval": 10, "compute_seconds": 60},
        {"user": "bob", "cores": 2, "compute_seconds": 7, "inputs": [{"bytes": 9, "sites": ["DE", "PL"]}]},
    ]
    source, is_generated = loaded(tmp_path, jobs=rows)
    jobs = source(3)
    assert not is_generated
    assert list(jobs.submitted) == [0, 5, 15, 25]
    assert list(jobs.compute_seconds) == [7, 60, 60, 60]
    first = jobs.classes[jobs.class_of[0]]
    assert (first.user, first.cores, first.inputs[0].holders) == ("bob", 2, {"DE", "PL"})
    assert source(4) is jobs


def test_mix_has_the_shares_of_lotss_and_equal_seeds_equal_jobs(tmp_path):
    source, is_generated = loaded(tmp_path, mix={"jobs": 5000, "bytes": 10, "compute_seconds": 6})
    assert is_generated
    jobs = source(1)
    homes = Counter(*[[next(iter(jobs.classes[one].inputs[0].holders)) for one in jobs.class_of]])
    assert [round(homes[site] / 5000, 1) for site in ("NL", "DE", "PL")] == [0.6, 0.3, 0.1]
    assert source(1) == jobs
    assert source(2).classes != jobs.classes


def test_mix_options(tmp_path):
    mix = {
        "jobs": 1000, "shares": "even", "bytes": 12, "compute_seconds": 10, "spread": 0.5, "interval": 2,
        "runs_per_field": 5, "datasets_per_job": 3, "replicas": 2, "users": 4, "no_data_share": 0.25,
    }  # fmt: skip
    jobs = loaded(tmp_path, mix=mix)[0](1)
    each = [jobs.classes[one] for one in jobs.class_of]
    with_data = [one for one in each if one.inputs]
    assert 0.2 < 1 - len(with_data) / 1000 < 0.3
    assert {one.user for one in each if not one.inputs} == {"other"}
    assert {one.user for one in with_data} == {"user1", "user2", "user3", "user4"}
    assert {(len(one.inputs), one.byte_count) for one in with_data} == {(3, 12)}
    assert {len(data.holders) for one in with_data for data in one.inputs} == {2}
    assert 5 <= min(jobs.compute_seconds) < 6
    assert 14 < max(jobs.compute_seconds) <= 15
    assert list(jobs.submitted[:3]) == [0, 2, 4]
    assert len({one.inputs[0].name for one in with_data}) == 200


def test_site_without_a_rate_is_said(tmp_path):
    source, _ = loaded(
        tmp_path, sites=[{"site": "NL", "machines": 1, "cores": 1}], jobs=[{"compute_seconds": 1}]
    )
    assert source(0).unknowns == ("no rate of the uplinks of NL: reads from there take no time",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "give either jobs or a mix"),
        ({"jobs": [{"compute_seconds": 1}], "mix": {"jobs": 1}}, "give either jobs or a mix"),
        ({"jobs": [{"compute_seconds": 0}]}, "jobs.0.compute_seconds: Input should be greater than 0"),
        ({"jobs": [{"compute_seconds": 1, "colour": 1}]}, "jobs.0.colour: Extra inputs"),
        ({"jobs": [{"compute_seconds": 1, "inputs": [{"bytes": 1, "sites": ["X"]}]}]}, "unknown sites: X"),
        ({"mix": {"jobs": 1, "shares": {"X": 1}}}, "unknown sites: X"),
        ({"version": 2, "mix": {"jobs": 1}}, "version: Input should be 1"),
        ({"sites": [*SITES, SITES[0]], "mix": {"jobs": 1}}, "each site may be listed once"),
    ],
)
def test_problem_of_a_file_is_reported(tmp_path, content, problem):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **content)
    assert any(problem in text for text in caught.value.problems), caught.value.problems


def test_file_that_is_not_json_and_missing_file_are_reported(tmp_path):
    path = tmp_path / "w.json"
    with pytest.raises(ConfigError, match="No such file"):
        load_workload_file(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        load_workload_file(path)
