"""Pilots follow data: the shipped groups and policy in a stand-in for GlideinWMS's frontend."""

import json
import re
import time
from pathlib import Path

import pytest

from hydrator import startd_cron
from hydrator.domain.ads.expressions import HERE
from hydrator.submit.pool_config import START_CLAUSE
from testbed.glideinwms_standin import (
    Group,
    count_matches,
    groups_of,
    load_policy,
    parse_frontend,
    reconfigure,
    selects,
)
from tests.pages import blocks

DEPLOY = Path(__file__).parents[3] / "deploy" / "glideinwms"
GROUPS = groups_of(DEPLOY / "frontend-groups.xml", DEPLOY)
LOCAL, OVERFLOW = GROUPS["locality_local"], GROUPS["locality_overflow"]

CAMBRIDGE = "SKA UK (Cambridge)"
AZUR = "Observatoire de la Côte d'Azur"
ENTRIES = {
    "cam": {"GLIDEIN_ResourceName": CAMBRIDGE, "GLIDEIN_Site": "NL"},
    "azur": {"GLIDEIN_Site": AZUR},
    "nl": {"GLIDEIN_CMSSite": "NL", "GLIDEIN_Site": "other"},
    "nobody knows it": {"GLIDEIN_Site": "MOON"},
    "says no site": {"GLIDEIN_Site": "", "Cpus": 8},
}
DATASETS = {
    "lofar:L1": [CAMBRIDGE, AZUR],
    "lofar:L2": [AZUR, "NL"],
    "lofar:L3": [CAMBRIDGE],
    "ska:00ff": ["NL"],
}


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "sites_by_dataset.json"
    monkeypatch.setenv("HYDRATOR_SITES_BY_DATASET", str(path))
    write(path)
    return path


def write(path: Path, *, age: int = 0, **changes) -> None:
    now = int(time.time()) - age
    document = {
        "version": 1,
        "written": now,
        "valid_until": now + 3600,
        "max_age": 20700,
        "sites": {site: {"as_of": now} for site in (CAMBRIDGE, AZUR, "NL")},
        "datasets": DATASETS,
    }
    path.write_text(json.dumps({**document, **changes}))


def cycle(jobs: dict[str, list[dict]], group: Group = LOCAL) -> dict[str, int]:
    """Return the matches of *jobs* by entry, in one cycle of a frontend."""
    return count_matches(group, load_policy(group), jobs, ENTRIES)


def counted(wanted: str | None) -> set[str]:
    """Return the entries that get a pilot for a job with this list of datasets."""
    counts = cycle({"ap1": [{} if wanted is None else {"RequiredDatasetsCSV": wanted}]})
    return {entry for entry, count in counts.items() if count}


@pytest.mark.parametrize(
    ("wanted", "entries"),
    [
        ("lofar:L1", {"cam", "azur"}),
        ("lofar:L1,lofar:L2", {"azur"}),
        ("lofar:L1,lofar:L2,lofar:L3", set()),
        ("lofar:L1,lofar:unheard", set()),
        ("LOFAR:L1", set()),
        (",lofar:L1,", {"cam", "azur"}),
    ],
)
def test_pilots_are_requested_where_all_datasets_of_a_job_are_and_nowhere_else(file, wanted, entries):
    assert counted(wanted) == entries


def test_the_policy_reads_the_file_of_the_page(file):
    [block] = blocks("json")
    times = r"\b1763\d{6}\b"  # long past
    file.write_text(re.sub(times, lambda time: str(int(time[0]) + 3_000_000_000), block.text))
    jobs, entries = [{"RequiredDatasetsCSV": "lofar:L1"}], {at: {"GLIDEIN_Site": at} for at in ("UK", "AU")}
    assert count_matches(LOCAL, load_policy(LOCAL), {"ap1": jobs}, entries) == {"UK": 1, "AU": 0}


@pytest.mark.parametrize("wanted", [None, ""])
def test_a_job_that_names_no_datasets_matches_every_entry(file, wanted):
    assert counted(wanted) == set(ENTRIES)


def test_every_job_of_a_kind_counts(file):
    jobs = [{"RequiredDatasetsCSV": "lofar:L3", "ProcId": number} for number in range(7)]
    counts = cycle({"ap1": jobs, "ap2": jobs[:2]})
    assert counts == dict.fromkeys(ENTRIES, 0) | {"cam": 9}


SPOILT = {
    "missing": Path.unlink,
    "torn": lambda path: path.write_text(path.read_text()[:-20]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "too old": lambda path: write(path, age=3601),
    "version": lambda path: write(path, version=2),
    "no list": lambda path: write(path, datasets={"lofar:L1": "NL"}),
    "no datasets": lambda path: write(path, datasets=None),
    "no date": lambda path: write(path, valid_until=None),
    "age": lambda path: write(path, sites={"NL": {}}),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_unusable_sites_file_leaves_the_pilots_unchanged(file, spoil):
    spoil(file)
    assert counted("lofar:L1") == set(ENTRIES)


def test_each_frontend_cycle_reads_the_sites_file_again(file):
    assert counted("lofar:L3") == {"cam"}
    write(file, datasets={"lofar:L3": ["NL"]})
    assert counted("lofar:L3") == {"nl"}


def test_sites_file_is_read_and_its_problem_logged_once_a_process(file, caplog):
    file.unlink()
    policy = load_policy(LOCAL)
    jobs = {"ap1": [{"RequiredDatasetsCSV": f"lofar:L{number}"} for number in range(50)]}
    assert set(count_matches(LOCAL, policy, jobs, ENTRIES).values()) == {50}
    (line,) = caplog.messages
    assert "cannot be used, so all entries match: FileNotFoundError" in line
    write(file)
    assert set(count_matches(LOCAL, policy, jobs, ENTRIES).values()) == {50}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("state", ["there", "missing"])
def test_a_reconfiguration_with_its_dummy_values_goes_through(file, group, state):
    if state == "missing":
        file.unlink()
    reconfigure(group)


# the groups


def job(mode: str, after: int = 0, released: bool = False) -> str:
    here = "true" if released else HERE[mode]
    return (
        f'[RequiredDatasetsCSV="lofar:L1"; DataLocality="{mode}"; DataLocalityMaxAge=3600;'
        f" DataLocalityAnyAfter={after}; DataLocalityHere={here}; Cluster={len(here)}]"
    )


FUTURE = 4_000_000_000


@pytest.mark.parametrize(
    ("ad", "overflows"),
    [
        (job("require"), False),
        (job("wait", FUTURE), False),
        (job("wait", 1_000_000_000), True),
        (job("require", released=True), True),
    ],
    ids=["require", "waits", "waited", "released"],
)
def test_a_job_gets_pilots_beside_its_data_always_and_elsewhere_once_it_may_run_there(ad, overflows):
    assert selects(LOCAL.job_query, ad)
    assert selects(OVERFLOW.job_query, ad) is overflows


def test_jobs_without_datasets_are_in_neither_group():
    assert not any(selects(group.job_query, "[Owner=1]") for group in (LOCAL, OVERFLOW))


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_pilots_of_both_groups_start_only_jobs_with_data_at_their_site(group):
    assert group.start_expr == START_CLAUSE


def test_the_policy_looks_for_a_site_as_the_hook_does():
    policy = load_policy(LOCAL)
    assert (*startd_cron.SITE_KEYS, "EntryName") == policy.SITE_KEYS


def test_the_policy_is_python_of_every_frontend():
    import ast

    ast.parse((DEPLOY / "locality_policy.py").read_text(), feature_version=(3, 6))


# --- what a stand-in for the frontend's parser takes


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("*.xml")), ids=lambda file: file.name)
def test_every_shipped_fragment_is_taken_by_a_stand_in_for_the_frontends_parser(file):
    assert list(parse_frontend(file.read_text()))
