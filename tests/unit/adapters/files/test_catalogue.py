"""File catalogue: valid files, refused files and files that change."""

import json
import os
import textwrap
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.files.catalogue import FileCatalogue
from adapters.files.catalogue_format import __doc__ as manual
from hydrator.domain.errors import CatalogueDenied, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.files import read_regular
from hydrator.domain.model import DatasetState, Did, Replica, Seen, Site
from testbed.files import as_nobody
from tests.factories import HOUR, L1, L2, L3, MINUTE, NOON

UK, AU, NL = Site("UK"), Site("AU"), Site("NL")
EXAMPLE = """
as_of = 2026-11-21T11:00:00Z
sites = ["UK", "AU", "NL"]
count = 2
[datasets."lofar:L1"]
bytes = 123
sites.UK = "available"
sites.AU = { state = "staging", fraction = 0.5 }
[datasets."lofar:L2"]
sites.NL = "nearline"
"""
ALONE = '[datasets."lofar:L1"]\nsites.UK = "available"\n'


def catalogue(path: Path, **more) -> FileCatalogue:
    return FileCatalogue("files", path, more.pop("clock", lambda: NOON), **more)


def writer(path: Path):
    """Return a function that writes a catalogue and opens it."""

    def write(content: object, **more) -> FileCatalogue:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return catalogue(path, **more)

    return write


@pytest.fixture
def toml(tmp_path):
    return writer(tmp_path / "datasets.toml")


@pytest.fixture
def as_json(tmp_path):
    return writer(tmp_path / "datasets.json")


def refusal(made: FileCatalogue) -> str:
    with pytest.raises(CatalogueGarbled) as raised:
        made.read({L1})
    assert "\n" not in str(raised.value)
    return str(raised.value)


# what it reads


def test_the_example_is_read(toml):
    survey = toml(EXAMPLE).read({L1, L2, L3})
    assert (survey.catalogue, survey.started_at, survey.sites) == ("files", NOON - HOUR, {UK, AU, NL})
    staging = Replica(L1, AU, DatasetState.STAGING, 0.5)
    assert survey.readings == {
        L1: Seen(NOON - HOUR, (staging, Replica(L1, UK, DatasetState.AVAILABLE)), 123),
        L2: Seen(NOON - HOUR, (Replica(L2, NL, DatasetState.NEARLINE),)),
        L3: Seen(NOON - HOUR),
    }


def test_the_example_in_the_modules_docstring_is_read(toml):
    _, _, text, _ = manual.split("\n\n", 3)
    reading = toml(textwrap.dedent(text)).read({L1}).readings[L1]
    assert (reading.bytes_total, len(reading.replicas)) == (123, 4)


def test_facts_without_as_of_have_the_time_of_reading(toml):
    assert toml(ALONE).read({L1}).started_at == NOON


def test_a_clock_a_little_ahead_counts_as_now(toml):
    assert toml(f"as_of = 2026-11-21T12:04:00Z\n{ALONE}").read({L1}).started_at == NOON


def test_an_as_of_in_the_future_is_refused_until_it_is_past(toml):
    now = [NOON]
    made = toml(f"as_of = 2026-11-21T12:30:00Z\n{ALONE}", clock=lambda: now[0])
    assert "as_of: 2026-11-21T12:30:00+00:00 is in the future" in refusal(made)
    now[0] = NOON + HOUR
    assert made.read({L1}).started_at == NOON + 30 * MINUTE


@pytest.mark.parametrize(
    "written",
    [
        *("2026-11-21T12:00:00+01:00", "2026-11-21 11:00:00Z", "'2026-11-21T11:00:00Z'"),
        *("1795258800", "1795258800.0"),
    ],
)
def test_as_of_may_be_written_in_several_ways(toml, written):
    at = toml(f"as_of = {written}\n{ALONE}").read({L1}).started_at
    assert (at, at.utcoffset()) == (NOON - HOUR, timedelta(0))


def test_a_name_without_scope_gets_the_default_one(toml):
    made = toml('[datasets.L1]\nsites.UK = "available"\n', default_scope="lofar")
    assert made.read({L1}).readings[L1].replicas


def test_dids_that_differ_in_letter_case_only_are_case_variants(toml):
    upper, lower = Did("lofar:L1"), Did("lofar:l1")
    made = toml(ALONE + '[datasets."lofar:l1"]\nsites.UK = "available"\n')
    readings = made.read({upper, lower, Did("LOFAR:L1"), L2}).readings
    assert {did: reading.case_variants for did, reading in readings.items()} == {
        upper: {lower},
        lower: {upper},
        Did("LOFAR:L1"): {upper, lower},
        L2: frozenset(),
    }


def test_a_site_may_have_any_printable_name(toml):
    name = "Žilina (CZ/2)"
    assert toml(f'[datasets."lofar:L1"]\nsites."{name}" = "available"\n').read({L1}).sites == {name}


# what it refuses

STAGING = '[datasets."a:b"]\nsites.UK = {state = "staging", fraction = %s}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ('sites = ["UK"]', "datasets: is missing"),
        ("datasets = 3", "datasets: must be a table"),
        (ALONE + '[datasets."lofar:L', "cannot be read: "),
        (ALONE + ALONE, "cannot be read: "),
        ("count = 2\n" + ALONE, "count: is 2, but the file has 1 datasets"),
        ("count = true\n" + ALONE, "count: must be a whole number"),
        ("coutn = 1\n" + ALONE, "coutn: unknown key; use as_of, sites, count, datasets"),
        ("as_of = 2026-11-21T11:00:00\n" + ALONE, "as_of: 2026-11-21T11:00:00 has no time zone"),
        ("as_of = 2026-11-21\n" + ALONE, "as_of: must be a time"),
        ("as_of = 'soon'\n" + ALONE, "as_of: it is not a time like 2026-11-21T02:00:00Z (it is 'soon')"),
        ("as_of = true\n" + ALONE, "as_of: must be a time"),
        ("as_of = inf\n" + ALONE, "as_of: must be a time like"),
        ("as_of = -1\n" + ALONE, "as_of: must be a time like"),
        ("as_of = 0001-01-01T00:00:00+14:00\n" + ALONE, "seconds, from 1970 to the year 9999"),
        ('sites = "UK"\n' + ALONE, "sites: must be a list"),
        ("sites = [1]\n" + ALONE, "sites: input should be a valid string (it is '1')"),
        ('sites = ["UK", ""]\n' + ALONE, "sites: it cannot be the name of a site (it is '')"),
        ('sites = ["AU"]\n' + ALONE, "sites.UK: 'UK' is missing in the list sites of this file"),
        ('[datasets."L1"]\nbytes = 1', "datasets.\"L1\": 'L1' is not a DID: it has no scope"),
        ('[datasets."a:b c"]\nbytes = 1', "datasets.\"a:b c\": 'a:b c' is not a DID: use letters, digits"),
        ('[datasets]\n"a:b" = "available"', 'datasets."a:b": must be a table'),
        ('[datasets."a:b"]\nsize = 1', 'datasets."a:b".size: unknown key; use bytes, sites'),
        ('[datasets."a:b"]\nbytes = -1', 'datasets."a:b".bytes: input should be greater than or equal to 0'),
        ('[datasets."a:b"]\nbytes = 9223372036854775808', "input should be less than or equal to"),
        ('[datasets."a:b"]\nbytes = 1.5', 'datasets."a:b".bytes: must be a whole number'),
        ('[datasets."a:b"]\nsites = ["UK"]', 'datasets."a:b".sites: must be a table'),
        ('[datasets."a:b"]\nsites.UK = []', 'datasets."a:b".sites.UK: the list of states is empty'),
        ('[datasets."a:b"]\nsites.UK = [["stuck"]]', 'datasets."a:b".sites.UK: must be a table'),
        ('[datasets."a:b"]\nsites.UK = 1', 'datasets."a:b".sites.UK: must be a table'),
        ('[datasets."a:b"]\nsites.UK = "here"', "sites.UK.state: input should be 'available', 'staging',"),
        ('[datasets."a:b"]\nsites.UK = {fraction = 1}', "sites.UK.state: is missing"),
        ('[datasets."a:b"]\nsites.T1.UK = "available"', "sites.T1.UK: unknown key; use state, fraction"),
        (STAGING % "1.1", "fraction: input should be less than or equal to 1"),
        (STAGING % "nan", "fraction: input should be less than or equal to 1"),
        (STAGING % "true", "fraction: must be a number"),
        (STAGING.replace("staging", "available") % "0.5", "available dataset is complete"),
    ],
)
def test_each_problem_of_a_file_is_reported_with_its_key(toml, text, message):
    assert message in refusal(toml(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "outermost value must be an object"),
        ('{"datasets": {}', "cannot be read"),
        ('{"datasets": {}} x', "cannot be read"),
        ('{"datasets": {"a:b": {}, "a:b": {}}}', "key 'a:b' is given twice"),
        ('{"datasets": {"a:b": {"sites": {"UK": {"fraction": NaN}}}}}', "NaN is not a number"),
        ('{"datasets":' * 100_000, "nested too deeply"),
        ('{"count": 1' + "0" * 5000 + ', "datasets": {}}', "cannot be read"),
    ],
)
def test_each_problem_of_a_json_file_is_reported(as_json, text, message):
    assert message in refusal(as_json(text))


def test_a_default_scope_that_makes_two_names_one_is_refused(toml):
    text = ALONE + '[datasets.L1]\nsites.UK = "available"\n'
    assert "lofar:L1 is given twice, with its scope and without" in refusal(toml(text, default_scope="lofar"))


def test_all_problems_come_in_one_report(toml):
    message = refusal(
        toml('count = 5\nx = 1\n[datasets."L1"]\nbytes = -1\n[datasets."a:b"]\nsites.UK = "here"\n')
    )
    for key in ("count:", "x:", 'datasets."L1":', 'datasets."L1".bytes:', 'datasets."a:b".sites.UK.state:'):
        assert key in message
    assert "5 problems" in message


def test_ten_of_many_problems_are_shown_and_the_rest_counted(as_json):
    message = refusal(as_json({"datasets": {f"no scope {n}": {} for n in range(100)}}))
    assert message.count('datasets."') == 10
    assert "100 problems" in message
    assert message.endswith("; and 90 more")


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["available", "a:b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["as_of", "sites", "count", "datasets", "bytes", "state", "fraction", "a:b", "a:B", "UK", ""]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anything)
def test_any_json_is_either_read_or_refused_with_one_line(as_json, content):
    try:
        survey = as_json(content).read({L1})
    except CatalogueGarbled as exc:
        message = str(exc)
    else:
        message = ""
        assert survey.readings.keys() == {L1}
        assert survey.started_at <= NOON
    assert "\n" not in message


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "datasets.toml"
    path.write_bytes(b"# \xff\n")
    assert "not UTF-8 at byte 2" in refusal(catalogue(path))


def test_an_unknown_ending_is_refused(tmp_path):
    path = tmp_path / "datasets.yaml"
    path.write_text("a: b")
    assert "must end in .toml or .json" in refusal(catalogue(path))


def test_find_refuses_what_read_refuses(toml):
    with pytest.raises(CatalogueGarbled):
        toml("").find(["*"])


def test_a_missing_file_is_unreachable_and_not_empty(tmp_path):
    with pytest.raises(CatalogueUnreachable, match="No such file"):
        catalogue(tmp_path / "none.toml").read({L1})


def test_a_folder_in_place_of_the_file_is_unreachable(tmp_path):
    with pytest.raises(CatalogueUnreachable, match="Is a directory"):
        catalogue(tmp_path).read({L1})


def test_a_pipe_without_a_writer_does_not_block_the_daemon(tmp_path):
    os.mkfifo(tmp_path / "datasets.toml")
    with pytest.raises(CatalogueUnreachable, match="not a regular file"):
        catalogue(tmp_path / "datasets.toml").read({L1})


def test_a_file_without_read_permission_is_denied(toml, tmp_path):
    made = toml(EXAMPLE)
    (tmp_path / "datasets.toml").chmod(0)
    with as_nobody(), pytest.raises(CatalogueDenied, match="Permission denied"):
        made.read({L1})


# change


def bytes_known(made: FileCatalogue) -> int | None:
    return made.read({L1}).readings[L1].bytes_total


def sized(number: int) -> str:
    return f'[datasets."lofar:L1"]\nbytes = {number}\n'


def test_a_changed_file_is_read_again_at_once_even_at_equal_size(toml, tmp_path):
    made = toml(sized(1))
    for number in (2, 3, 4, 5):
        (tmp_path / "datasets.toml").write_text(sized(number))
        assert bytes_known(made) == number


def test_a_replaced_file_with_the_old_times_is_read_again(toml, tmp_path):
    made = toml(sized(1))
    path, other = tmp_path / "datasets.toml", tmp_path / "other"
    old = time.time() - 3600
    os.utime(path, (old, old))
    assert bytes_known(made) == 1
    other.write_text(sized(2))
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert bytes_known(made) == 2


@pytest.mark.outside
def test_an_unchanged_file_that_has_settled_is_not_read_again(toml, tmp_path):
    reads = []
    made = toml(sized(1), read_file=lambda *file: reads.append(file) or read_regular(*file))

    def rests() -> bool:
        before = len(reads)
        assert bytes_known(made) == 1
        return len(reads) == before

    assert not rests()
    deadline = time.monotonic() + 120
    while not rests():  # its times must be old enough to be trusted, and nothing but time makes them so
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (tmp_path / "datasets.toml").write_text(sized(2))
    assert bytes_known(made) == 2


def test_a_recently_changed_file_is_read_each_time(toml, tmp_path):
    reads = []
    made = toml(sized(1), read_file=lambda *file: reads.append(file) or read_regular(*file))
    ahead = time.time() + 3600
    os.utime(tmp_path / "datasets.toml", (ahead, ahead))
    assert [bytes_known(made) for _ in range(3)] == [1, 1, 1]
    assert len(reads) == 3


def test_a_file_that_went_away_is_unreachable_although_it_was_read_before(toml, tmp_path):
    made = toml(sized(1))
    assert bytes_known(made) == 1
    (tmp_path / "datasets.toml").unlink()
    with pytest.raises(CatalogueUnreachable):
        made.read({L1})


def test_a_garbled_file_is_garbled_although_it_was_good_before_and_good_again_after(toml, tmp_path):
    made = toml(sized(1))
    assert bytes_known(made) == 1
    (tmp_path / "datasets.toml").write_text("[datasets")
    refusal(made)
    (tmp_path / "datasets.toml").write_text(sized(1))
    assert bytes_known(made) == 1


def test_a_file_that_changes_while_it_is_read_is_read_again(toml, tmp_path):
    path = tmp_path / "datasets.toml"
    changes = [sized(22), sized(333)]

    def meddling(*file: Any) -> Any:
        data, status = read_regular(*file)
        if changes:
            path.write_text(changes.pop(0))
        return data, status

    assert bytes_known(toml(sized(1), read_file=meddling)) == 333


def test_a_file_replaced_while_it_is_read_is_read_again(toml, tmp_path):
    path, other = tmp_path / "datasets.toml", tmp_path / "other"

    def meddling(*file: Any) -> Any:
        data, status = read_regular(*file)
        if not other.exists() and b"bytes = 1\n" in data:
            other.write_text(sized(2))
            other.replace(path)
        return data, status

    assert bytes_known(toml(sized(1), read_file=meddling)) == 2


def test_a_file_that_never_stops_changing_is_unreachable(toml, tmp_path):
    def meddling(*file: Any) -> Any:
        data, status = read_regular(*file)
        with (tmp_path / "datasets.toml").open("a") as still_open:
            still_open.write("# more\n")
        return data, status

    with pytest.raises(CatalogueUnreachable, match="changed during each of 3 reads"):
        toml(sized(1), read_file=meddling).read({L1})


def test_a_site_without_datasets_is_still_covered_by_the_file(tmp_path):
    path = tmp_path / "list.json"
    path.write_text('{"datasets": {"lofar:L1": {"sites": {"UK": "available", "AU": "available"}}}}')
    catalogue = FileCatalogue("file", path, lambda: NOON)
    assert catalogue.read(frozenset()).sites == {"UK", "AU"}
    fresh = tmp_path / "fresh"
    fresh.write_text('{"datasets": {"lofar:L1": {"sites": {"UK": "available"}}}}')
    fresh.rename(path)
    assert catalogue.read(frozenset()).sites == {"UK", "AU"}
    fresh.write_text('{"sites": ["UK"], "datasets": {"lofar:L1": {"sites": {"UK": "available"}}}}')
    fresh.rename(path)
    assert catalogue.read(frozenset()).sites == {"UK"}
