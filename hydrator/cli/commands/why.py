"""``hydrator why JOB`` and ``hydrator why [--site X] DID…``.

Exit status: 0 the job would match now, runs, or has run; 3 the job would not match now; 1 unknown;
2 wrong usage or configuration. So a script can distinguish "not now" from "unknown".
"""

from typing import Annotated

import typer

from hydrator.cli.options import DEFAULT_CONFIG_PATH, EXIT_NO_MATCH_NOW, ConfigOption, JsonOption, read_typed


def why(
    what: Annotated[
        list[str],
        typer.Argument(help="A job, as 123 or 123.4; or datasets, as scope:name.", metavar="JOB|DID…"),
    ],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
    site: Annotated[
        str | None,
        typer.Option(help="For datasets: only this site; default: every site.", callback=read_typed),
    ] = None,
    schedd: Annotated[
        str | None,
        typer.Option(help="For a job: its schedd; default: all schedds are queried.", callback=read_typed),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job is idle, or where a job with DIDs could run.

    The answer has the reasons at each site, and what would help.
    Exits 0 if the job would match now, runs, or has run; 3 if it would not match now; 1 if this is unknown.
    """
    from .why_answers import print_answers

    if not print_answers(what, config, site, schedd, as_json=as_json):
        raise typer.Exit(EXIT_NO_MATCH_NOW)
