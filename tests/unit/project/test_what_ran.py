"""Report of the executed tests: CI fails if a suite ran nothing."""

import re
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from testbed import what_ran
from tests.parts import NO_APACHE, without

REAL = (
    "tests.integration.test_pool.test_x[25.14]",
    "tests.integration.test_pool.test_x[23.9]",
    "tests.integration.test_rucio_server.test_y",
    "tests.contracts.test_rucio_postgres.TestRucioCatalogueOnPostgres.test_y",
    "tests.integration.test_rucio_login.test_certificate_y",
    "tests.integration.test_toil.test_batch_system_runs_z",
    "tests.integration.test_toil.test_toils_own_batch_system_runs_z",
    "tests.integration.test_rapthor_reader.test_z",
    "tests.deploy.test_booted.test_z",
    "tests.deploy.test_packages.test_the_debs_install_z",
    "tests.deploy.test_packages_13.test_a_fresh_debian_z",
    "tests.deploy.test_packages_13.test_the_real_rpm_z",
    "tests.deploy.test_container.test_image_serves_z",
    "tests.deploy.test_helm_objects.test_helm_3_renders_the_same_objects",
    "tests.deploy.test_prometheus.test_z",
    "tests.deploy.test_page.test_z",
    "tests.deploy.test_docs.test_z",
    "tests.integration.test_auto_end_to_end.test_auto_job_waits_z",
    "tests.integration.test_auto_events.test_next_jobs_follow_z",
)


@pytest.fixture
def report(tmp_path):
    def write(suite: str, ran: tuple[str, ...] = (), skipped: tuple[str, ...] = ()) -> None:
        def case(name: str, inside: str = "") -> str:
            place, _, test = name.rpartition(".test_")
            return (
                f"<testcase classname={quoteattr(place)} name={quoteattr('test_' + test)}>{inside}</testcase>"
            )

        cases = [case(name) for name in ran] + [
            case(name, '<skipped message="no pool"/>') for name in skipped
        ]
        text = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
        (tmp_path / f"{suite}.xml").write_text(text)

    return write


def test_report_passes_if_every_real_part_ran(report, tmp_path, capsys):
    report("test", REAL)
    report("slow", ("tests.unit.test_a.test_b",))
    assert what_ran.main(tmp_path, ["test", "slow"]) == 0
    assert capsys.readouterr().out == f"test: {len(REAL)} ran, 0 skipped\nslow: 1 ran, 0 skipped\n"


def test_report_prints_what_tests_measured(tmp_path, capsys):
    recorded = '<properties><property name="from install to ads" value="16 s"/></properties>'
    case = f'<testcase classname="tests.deploy.test_a" name="test_b">{recorded}</testcase>'
    (tmp_path / "test.xml").write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
    what_ran.main(tmp_path, ["test"])
    assert "  tests.deploy.test_a.test_b: from install to ads: 16 s\n" in capsys.readouterr().out


@pytest.mark.parametrize("missing", [0, len(REAL) - 1])
def test_a_part_that_was_skipped_everywhere_fails_and_is_named(report, tmp_path, capsys, missing):
    report("test", tuple(name for name in REAL if name != REAL[missing]), (REAL[missing],))
    assert what_ran.main(tmp_path, ["test"]) == 1
    said = capsys.readouterr().out
    assert f"skipped {REAL[missing]}: no pool" in said
    assert f"ci: no test ran with {list(what_ran.MUST_RUN)[missing]}" in said


def test_a_suite_that_only_skipped_fails(report, tmp_path, capsys):
    report("test", REAL)
    report("slow", skipped=("tests.unit.test_a.test_b",))
    assert what_ran.main(tmp_path, ["test", "slow"]) == 1
    assert "ci: the suite slow ran no test" in capsys.readouterr().out


def test_a_suite_without_a_report_fails(report, tmp_path, capsys):
    report("test", REAL)
    assert what_ran.main(tmp_path, ["test", "deploy"]) == 1
    assert "ci: the suite deploy ran no test" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_part_fails_in_ci_and_is_skipped_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=NO_APACHE):
        without(NO_APACHE, "no index")


@pytest.mark.parametrize("text", [text for text in what_ran.MUST_RUN.values() if "test_" in text])
def test_required_part_names_a_test_that_exists(text):
    root = Path(__file__).parents[3]
    names = [
        f"{'.'.join(file.relative_to(root).with_suffix('').parts)}.{name}"
        for file in (root / "tests").rglob("test_*.py")
        for name in re.findall(r"(?:def|class) ([tT]est\w+)", file.read_text("utf-8"))
    ]
    assert any(text in name for name in names)
