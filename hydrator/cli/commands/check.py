"""``hydrator check``: examine an installation of the daemon."""

from contextlib import closing

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption
from hydrator.cli.output.printing import print_problems, print_result
from hydrator.cli.output.progress import show_progress
from hydrator.domain.text import docs_folder_note


def check(
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    as_json: JsonOption = False,
) -> None:
    """Examine an installation and give advice on each problem.

    Exits 1 if any finding is a failure.
    """
    from hydrator.cli.output import tables as show
    from hydrator.config import load
    from hydrator.diagnostics.check.examine import examine
    from hydrator.diagnostics.check.findings import Level
    from hydrator.wiring import system_clock
    from hydrator.wiring.assembly import assemble
    from hydrator.wiring.checks import build_check_inputs

    settings = load(config)
    with (
        closing(assemble(settings, system_clock)) as parts,
        show_progress("asking the pool and the catalogues"),
    ):
        findings = examine(build_check_inputs(settings, parts))
    print_result(as_json, findings, lambda: show.print_findings(findings))
    if not as_json:
        print_problems(docs_folder_note(*(finding.advice for finding in findings)))
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)
