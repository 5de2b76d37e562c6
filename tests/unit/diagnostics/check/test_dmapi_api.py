"""What we rely on of DMAPI, held against what a server says of itself."""

import json

import pytest
from typer.testing import CliRunner

from hydrator.cli.app import app
from hydrator.diagnostics.check.dmapi_api import dmapi_findings
from hydrator.diagnostics.check.findings import Level
from testbed.dmapi_standin import DmapiStandIn

GET = {"get": {}}
WHOLE = {"/v1/data/list": GET, "/v1/data/locate/{namespace}/{name}": GET, "/v1/metadata/{ns}/{n}": GET}


def levels(paths, **more):
    return [finding.level for finding in dmapi_findings({"paths": paths}, **more)]


def test_recorded_paths_that_are_there_are_well_whatever_their_parameters_are_called():
    assert levels(WHOLE) == [Level.OK, Level.OK, Level.OK, Level.ADVICE]


@pytest.mark.parametrize("path", WHOLE)
@pytest.mark.parametrize("instead", [{}, {"post": {}}])
def test_a_recorded_path_that_is_gone_or_not_asked_with_get_is_a_failure(path, instead):
    assert levels({**WHOLE, path: instead}).count(Level.FAIL) == 1


def test_a_parameter_that_is_not_taken_is_a_warning():
    locate = {"get": {"parameters": [{"name": "sort"}, {"name": "namespace"}]}}
    found = list(dmapi_findings({"paths": {**WHOLE, "/v1/data/locate/{namespace}/{name}": locate}}))
    assert [f.message for f in found if f.level is Level.WARN] == [
        "GET /data/locate/{}/{} does not take limit, which the adapter sends"
    ]


def test_an_inferred_path_is_a_failure_only_where_it_is_configured_and_missing():
    listing = "/data/list/{namespace}"
    assert levels(WHOLE, list_path=listing)[-1] is Level.FAIL
    assert levels({**WHOLE, "/v1" + listing: GET}, list_path=listing)[-1] is Level.OK


@pytest.mark.parametrize("said", [None, [], {}, {"paths": {}}, {"paths": []}, "x"])
def test_a_document_of_another_shape_is_one_failure(said):
    assert [finding.level for finding in dmapi_findings(said)] == [Level.FAIL]


def check(url, *more):
    return CliRunner().invoke(app, ["check", "--dmapi", url, "--config", "absent.toml", *more])


@pytest.fixture(scope="module")
def standin():
    with DmapiStandIn() as running:
        yield running


def test_the_command_finds_the_document_above_the_version_and_sends_no_token(standin):
    for url in (standin.url, standin.url + "/", standin.url.removesuffix("/api/v1")):
        done = check(url, "--json")
        assert done.exit_code == 0, done.output
        assert [row["level"] for row in json.loads(done.output)] == ["ok", "ok", "ok", "advice"]
    assert "/token" not in standin.calls


def test_the_command_fails_before_a_server_that_is_no_dmapi(standin):
    assert check(standin.capabilities_url).exit_code == 1


def test_the_command_says_where_it_looked(standin):
    problems = check(standin.root + "/nowhere/api/v1").exception.problems
    assert "no openapi.json at" in problems[0]
    assert check("dmapi.example.org").exception.problems == (
        "--dmapi dmapi.example.org: give an address that starts with https://",
    )
