"""`hydrator run-anywhere`: which jobs the words on the command line select."""

import pytest
import typer

from hydrator.cli.commands.control.run_anywhere import edit_jobs, select_jobs
from hydrator.domain.errors import ConfigError


class Schedds:
    """Two schedds; *matching* has the freed jobs by the constraint that jobs at ``ap1`` match."""

    def __init__(self, matching: dict[str, int]) -> None:
        self._matching = matching

    def schedds(self):
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def run_anywhere(self, schedd, constraint):
        return self._matching.get(constraint) if schedd == "ap1" else None


@pytest.mark.parametrize(
    ("words", "constraint"),
    [
        (["178"], "ClusterId == 178"),
        (["178.0"], "ClusterId == 178 && ProcId == 0"),
        (["178", "180.2"], "ClusterId == 178 || ClusterId == 180 && ProcId == 2"),
        (['Owner == "alice"'], 'Owner == "alice"'),
        (['Owner == "ren\udcc3\udca9"'], 'Owner == "rené"'),  # typed in a locale without its letters
        ([], None),
    ],
)
def test_number_is_a_job_other_text_a_constraint_and_all_jobs_need_no_word(words, constraint):
    """Case S25 of cases/submit.md."""
    assert select_jobs(words, all_jobs=not words) == constraint


@pytest.mark.parametrize(
    ("words", "all_jobs"), [([], False), (["178"], True), (["178", 'Owner == "alice"'], False), ([""], True)]
)
def test_unclear_selection_is_refused(words, all_jobs):
    with pytest.raises(ConfigError):
        select_jobs(words, all_jobs=all_jobs)


def test_jobs_are_counted_by_schedd(capsys):
    edit_jobs(Schedds({"A": 3}), None, "A")
    assert capsys.readouterr().out.splitlines() == [
        "ap1: 3 jobs may run anywhere now",
        "ap2: 0 jobs may run anywhere now",
    ]


def test_jobs_that_already_run_anywhere_are_no_fault(capsys):
    edit_jobs(Schedds({"A": 0}), None, "A")
    edit_jobs(Schedds({}), None, None)
    assert capsys.readouterr().err == ""


def test_constraint_without_a_match_asks_for_quotes_and_exits_1(capsys):
    """Case S25 of cases/submit.md."""
    with pytest.raises(typer.Exit) as ended:
        edit_jobs(Schedds({"A": 2}), None, "Owner == alice")
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert said.out.count(": 0 jobs") == 2
    assert "no queued job matches Owner == alice; a text needs quotes" in said.err


def test_only_the_named_schedd_is_edited(capsys):
    edit_jobs(Schedds({"A": 1}), "ap1", "A")
    assert capsys.readouterr().out == "ap1: 1 job may run anywhere now\n"
