"""`hydrator run-anywhere`: which jobs the words on the command line select."""

import pytest
import typer

from hydrator.cli.commands.control.run_anywhere import edit_jobs, select_jobs
from hydrator.domain.errors import ConfigError


class Schedds:
    """Two schedds; *matching* has the constraints that a queued job matches, and the jobs at ``ap1``."""

    def __init__(self, matching: dict[str, int], names: tuple[str, ...] = ()) -> None:
        self._matching = matching
        self._names = names

    def schedds(self):
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def read_constraint_names(self, constraint):
        return list(self._names)

    def has_queued_job(self, schedd, constraint):
        return schedd == "ap1" and constraint in self._matching

    def run_anywhere(self, schedd, constraint):
        return self._matching.get(constraint, 0) if schedd == "ap1" else 0


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


def test_freed_jobs_that_the_constraint_no_longer_matches_are_no_fault(capsys):
    """`DataLocalityHere =!= true` matches no job once these jobs may run anywhere."""
    client = Schedds({"A": 3})
    client.has_queued_job = lambda _schedd, _constraint: False
    edit_jobs(client, None, "A")
    assert capsys.readouterr().err == ""


def test_jobs_that_already_run_anywhere_are_no_fault(capsys):
    edit_jobs(Schedds({"A": 0}), None, "A")
    edit_jobs(Schedds({}), None, None)
    assert capsys.readouterr().err == ""


def test_constraint_without_a_match_names_what_no_job_has_and_exits_1(capsys):
    """Case S25 of cases/submit.md."""
    client = Schedds({'unparse(Owner) != ""': 2}, ("Owner", "alice"))
    with pytest.raises(typer.Exit) as ended:
        edit_jobs(client, None, "Owner == alice")
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert said.out.count(": 0 jobs") == 2
    assert "no queued job matches Owner == alice" in said.err
    assert "no queued job has an attribute alice" in said.err
    assert "Owner," not in said.err


def test_only_the_named_schedd_is_edited(capsys):
    edit_jobs(Schedds({"A": 1}), "ap1", "A")
    assert capsys.readouterr().out == "ap1: 1 job may run anywhere now\n"
