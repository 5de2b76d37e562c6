"""Command probe: the meaning of its exit status, and the limits of the command."""

import sys
from datetime import timedelta

import pytest

from adapters.command.probe import CommandProbe, ProbeCommand
from hydrator.domain.model import Did, Site

L1, UK, AU = Did("lofar:L1"), Site("UK"), Site("AU")
PYTHON = sys.executable


def probe(*command: str, path: str | None = "/data/L1", **more) -> CommandProbe:
    return CommandProbe([ProbeCommand(command, **more)], lambda site, did: path)


@pytest.mark.outside
@pytest.mark.parametrize(("status", "seen"), [(0, True), (1, False), (2, None), (127, None)])
def test_the_exit_status_of_a_probe_is_its_result(status, seen):
    assert probe(PYTHON, "-c", f"raise SystemExit({status})").check_dataset("rucio", L1, UK) is seen


@pytest.mark.outside
def test_a_killed_probe_command_has_no_result():
    killed = "import os; os.kill(os.getpid(), 9)"
    assert probe(PYTHON, "-c", killed).check_dataset("rucio", L1, UK) is None


@pytest.mark.outside
def test_a_missing_probe_command_has_no_result():
    assert probe("/no/such/command").check_dataset("rucio", L1, UK) is None


@pytest.mark.outside
def test_a_slow_probe_is_killed_with_its_child_processes(tmp_path):
    started = tmp_path / "started"
    script = f": > {started}; sleep 1000 & wait"
    slow = probe("/bin/sh", "-c", script, timeout=timedelta(seconds=5))
    assert slow.check_dataset("rucio", L1, UK) is None
    assert started.exists()


@pytest.mark.outside
def test_placeholders_are_filled_in_and_no_shell_reads_them(tmp_path):
    seen = tmp_path / "seen"
    script = f"import sys; open({str(seen)!r}, 'w').write('|'.join(sys.argv[1:]))"
    odd = Site("U K; $(touch x) {did}")
    assert probe(PYTHON, "-c", script, "--at={site}", "{did}", "{path}/{path}", "{else}").check_dataset(
        "r", L1, odd
    )
    assert seen.read_text() == "--at=U K; $(touch x) {did}|lofar:L1|/data/L1//data/L1|{else}"


@pytest.mark.outside
def test_no_probe_runs_without_the_path_that_it_needs():
    assert probe(PYTHON, "-c", "", "{path}", path=None).check_dataset("rucio", L1, UK) is None
    assert probe(PYTHON, "-c", "", "{did}", path=None).check_dataset("rucio", L1, UK) is True


@pytest.mark.outside
def test_the_first_probe_for_a_site_and_its_catalogue_is_run():
    probes = [
        ProbeCommand((PYTHON, "-c", "raise SystemExit(1)"), sites=("U*",), catalogues=("rucio",)),
        ProbeCommand((PYTHON, "-c", ""), sites=("UK",)),
    ]
    both = CommandProbe(probes, lambda site, did: None)
    assert both.check_dataset("rucio", L1, UK) is False
    assert both.check_dataset("file", L1, UK) is True
    assert not both.can_check("rucio", AU)
    assert both.check_dataset("rucio", L1, AU) is None


@pytest.mark.parametrize("did", ["lofar:../x", "lofar:a/../b", "..:x", "-rf:x"])
def test_a_probe_is_not_run_for_a_did_that_is_an_option_or_leaves_its_folder(tmp_path, did):
    asked = tmp_path / "asked"
    looking = probe("/bin/sh", "-c", f"touch {asked}", "sh", "{did}")
    assert looking.check_dataset("rucio", Did(did), UK) is None
    assert not asked.exists()
