"""DMAPI calls of the adapter, compared with a server's own description."""

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


def test_dmapi_check_accepts_required_paths_with_any_parameter_names():
    assert levels(WHOLE) == [Level.OK, Level.OK, Level.OK, Level.ADVICE]


@pytest.mark.parametrize("path", WHOLE)
@pytest.mark.parametrize("instead", [{}, {"post": {}}])
def test_dmapi_check_fails_without_a_required_get_path(path, instead):
    assert levels({**WHOLE, path: instead}).count(Level.FAIL) == 1


def test_dmapi_check_warns_of_a_missing_parameter():
    locate = {"get": {"parameters": [{"name": "sort"}, {"name": "namespace"}]}}
    found = list(dmapi_findings({"paths": {**WHOLE, "/v1/data/locate/{namespace}/{name}": locate}}))
    assert [f.message for f in found if f.level is Level.WARN] == [
        "GET /data/locate/{}/{} does not accept limit, which the adapter sends"
    ]


def test_missing_inferred_dmapi_path_fails_only_if_it_is_configured():
    listing = "/data/list/{namespace}"
    assert levels(WHOLE, list_path=listing)[-1] is Level.FAIL
    assert levels({**WHOLE, "/v1" + listing: GET}, list_path=listing)[-1] is Level.OK


@pytest.mark.parametrize("said", [None, [], {}, {"paths": {}}, {"paths": []}, "x"])
def test_openapi_document_without_paths_is_one_failure(said):
    assert [finding.level for finding in dmapi_findings(said)] == [Level.FAIL]


def check(url, *more):
    return CliRunner().invoke(app, ["check", "--dmapi", url, "--config", "absent.toml", *more])


@pytest.fixture(scope="module")
def standin():
    with DmapiStandIn() as running:
        yield running


@pytest.mark.outside
def test_check_dmapi_reads_openapi_above_the_version_without_a_token(standin):
    for url in (standin.url, standin.url + "/", standin.url.removesuffix("/api/v1")):
        done = check(url, "--json")
        assert done.exit_code == 0, done.output
        assert [row["level"] for row in json.loads(done.output)] == ["ok", "ok", "ok", "advice"]
    assert "/token" not in standin.calls


@pytest.mark.outside
def test_check_dmapi_fails_for_a_server_that_is_not_dmapi(standin):
    assert check(standin.capabilities_url).exit_code == 1


@pytest.mark.outside
def test_check_dmapi_names_the_url_that_it_tried(standin):
    problems = check(standin.root + "/nowhere/api/v1").exception.problems
    assert "no openapi.json at" in problems[0]
    assert check("dmapi.example.org").exception.problems == (
        "--dmapi dmapi.example.org: give an address that starts with https://",
    )
