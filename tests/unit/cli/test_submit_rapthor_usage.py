"""`hydrator submit rapthor` with options and files that it rejects before it asks anything."""

import pytest

from hydrator.cli.output.new_files import make_new_folder
from tests.unit.cli.test_submit_rapthor import STORAGE, host

__all__ = ["host"]  # fixtures


def test_contradicting_options_are_rejected(host):
    messages = host.refusal("L1.ms", "--max-wait", "5", "--as", "env", "-o", "x")
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--command", "sh -c 'rapthor"), "No closing quotation"),
        (("--command", " "), "--command: the value must be one line and not blank"),
        (("--command", "rapthor\nqueue 99"), "--command: the value must be one line and not blank"),
        (("--container", "docker://x\nqueue 99"), "cannot be in a submit description: it has a control char"),
        (("--container", " "), "this host has no such file"),
        (("--line", "a = 1\nqueue 99"), "condor_submit cannot read a line of the submit description"),
        (("--json",), "--json is valid only with"),
        (("--gpu", "prefer", "--as", "env"), "Toil's steps use [submit].gpu"),
        (("--rank", "1", "--as", "env"), "--requirements and --rank are valid only with --as job"),
        (("--skip-absent", "--allow-unknown"), "use one of them"),
        (("--line", " Queue 5"), "the run is one job"),
        (("--command", "rapthor -v /my/run1.parset"), "the job's parset is run.parset, not run1.parset"),
        (("--command", "module load rapthor && rapthor run.parset"), "no shell runs it"),
        (("--command", "module load rapthor; rapthor run.parset"), "no shell runs it"),
        pytest.param(
            ("--requirements", "TARGET.Cpus >"),
            "--requirements is not a ClassAd expression",
            marks=pytest.mark.outside,
        ),
        pytest.param(
            ("--rank", "true) || (true"), "--rank is not a ClassAd expression", marks=pytest.mark.outside
        ),
    ],
)
def test_option_that_no_job_can_have_is_rejected_with_one_sentence(host, options, told):
    (output,) = host.refusal("L1.ms", *options)
    assert told in output


def test_job_folder_skips_a_name_that_exists(tmp_path):
    (tmp_path / "x.run").symlink_to("nowhere")
    (tmp_path / "x-2.run").write_text("a file")
    (tmp_path / "x-3.run").mkdir()
    assert make_new_folder(tmp_path, "x", ".run", lambda _: None) == tmp_path / "x-4.run"
    assert list((tmp_path / "x-3.run").iterdir()) == []


def test_submit_option_without_condor_submit_writes_no_files(host, monkeypatch):
    monkeypatch.setenv("PATH", str(host.folder))
    before = set(host.folder.iterdir())
    (output,) = host.refusal("L1.ms", "--submit", status=1)
    assert "condor_submit is not on PATH" in output
    assert {path.name for path in set(host.folder.iterdir()) - before} <= {"run1.parset"}


def test_missing_parset_is_one_sentence(host):
    done = host.run("nope", status=2)
    assert done.stdout == ""
    sentence = "cannot read nope: No such file or directory; give the path of a Rapthor parset"
    assert done.stderr == f"hydrator: {sentence}\n"


def test_stage_in_command_with_an_open_quote_is_rejected(host):
    host.configure(STORAGE + '[submit]\nstage_in = "fetch \'x {did} {path}"\n')
    (output,) = host.refusal("L1.ms", "-o", "job")
    assert output == "[submit].stage_in cannot be parsed (No closing quotation): quote it as for a shell"
