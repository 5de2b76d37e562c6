"""What holds for every parset and every run."""

import configparser
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.domain.errors import ConfigError
from hydrator.domain.model import parse_did
from hydrator.submit.rapthor.environment import export_lines
from hydrator.submit.rapthor.job import RapthorRun
from hydrator.submit.rapthor.machine import job_parset
from hydrator.submit.rapthor.parset import Parset, parse_parset
from testbed.processes import run_program

DIDS = st.lists(
    st.builds(
        "{}:{}".format,
        st.text("abXY9._@=+~-", min_size=1, max_size=8),
        st.text("abXY9._:/@=+~-", min_size=1, max_size=20),
    ).map(parse_did),
    min_size=1,
    max_size=5,
)
VALUES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=30)
OPTIONS = st.text("abcdefgh_", min_size=1, max_size=8)


@given(st.binary(max_size=200))
def test_no_bytes_whatever_end_in_another_error_than_ours(content):
    for text in (content, b"[global]\ndir_working = /x\ninput_ms = " + content):
        with suppress(ConfigError):
            parse_parset(text, "p")


@given(VALUES, st.dictionaries(OPTIONS, VALUES, max_size=4))
def test_the_parset_that_travels_says_the_same_but_where_it_runs(input_ms, more):
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict({"global": {"dir_working": "/x", "input_ms": input_ms}, "imaging": more})
    sections = {name: {key: value.strip() for key, value in parser.items(name)} for name in parser.sections()}
    if sections["global"]["input_ms"] in ("", "None"):
        return
    back = configparser.ConfigParser(interpolation=None)
    back.read_string(job_parset(Parset("p", (), sections), {})[0])
    there = {name: dict(back.items(name)) for name in back.sections()}
    assert there["global"] == {"dir_working": "{scratch}/rapthor", "input_ms": "{input_ms}"}
    assert there["imaging"] == sections["imaging"]
    assert there["cluster"]["batch_system"] == "single_machine"


@pytest.mark.outside
@given(DIDS, st.text("abc0'$\"`\\&|><()", min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_a_shell_understands_the_exports_and_runs_nothing_of_them(dids, earlier):
    run = RapthorRun("r", "r", tuple(dids))
    text = export_lines(run, {}, earlier)
    printed = run_program(
        ["/bin/sh", "-c", f'{text}printf %s "$_CONDOR_RequiredDatasets|$_CONDOR_SUBMIT_ATTRS"'], check=True
    ).stdout
    assert printed.startswith(f"{run.attributes['RequiredDatasets']}|{earlier} ")
