"""``hydrator staging``: list the requests of data, answer, cancel, stop and resume them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hydrator.cli.groups import PlainGroup
from hydrator.cli.options import DEFAULT_CONFIG_PATH, ConfigOption, JsonOption, read_typed
from hydrator.cli.output.printing import print_result
from hydrator.cli.output.staging import StagingList, print_staging
from hydrator.config import load
from hydrator.domain.errors import ConfigError
from hydrator.domain.text import comma_separated, format_bytes, format_count
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import CommandName, StagingCommand
from hydrator.state.command_files import StagingFiles
from hydrator.state.store import STAGING_REPORT, Store
from hydrator.wiring import system_clock

staging = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    help="List, approve, cancel and stop requests of data.",
    no_args_is_help=True,
)
_MAX_REASON_CHARS = 190
BatchArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the request, from `hydrator staging list`.")
]


@staging.command("list")
def list_requests(config: ConfigOption = DEFAULT_CONFIG_PATH, as_json: JsonOption = False) -> None:
    """Print the pins and requests of data, what the daemon would request, and why it requests nothing."""
    shown, _ = _load_staging(config)
    print_result(as_json, shown, lambda: print_staging(shown, system_clock()))


@staging.command()
def approve(batch: BatchArgument, config: ConfigOption = DEFAULT_CONFIG_PATH) -> None:
    """Approve a request that waits for a person because of its size."""
    _answer("approve", batch, config)


@staging.command()
def reject(batch: BatchArgument, config: ConfigOption = DEFAULT_CONFIG_PATH) -> None:
    """Reject a request that waits for a person; the same request is not proposed again."""
    _answer("reject", batch, config)


@staging.command()
def cancel(
    target: Annotated[
        str,
        typer.Argument(metavar="ID", help="Id of the request, or of its rule, from `hydrator staging list`."),
    ],
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Cancel requests of the daemon; it makes them again after a week, or after `hydrator staging resume`."""
    shown, files = _load_staging(config)
    requests = shown.last_step.requests if shown.last_step else ()
    rows = [row for row in requests if target in (row.rule, row.batch)]
    if not rows:
        known = _list_ids(row.batch for row in requests)
        raise ConfigError([f"staging cancel {target}: the daemon has no such request{known}"])
    settings = load(config).staging
    kept = [row for row in rows if settings.mode_at(row.catalogue, row.site) != "request"]
    if kept:
        rules = comma_separated(sorted(row.rule for row in kept if row.rule)) or "no rule yet"
        why = "the daemon ends none of its requests there, whose mode is not request"
        todo = f"set the mode request, or delete their rules ({rules}) in the catalogue"
        raise ConfigError([f"staging cancel {target}: at {kept[0].site}, {why}: {todo}"])
    count = format_count(len(rows), "request")
    text = f"the daemon's next step cancels {count}; no data is deleted that others need"
    if shown.stopped:
        text = f"the daemon cancels {count} after `hydrator staging resume`: staging is stopped"
    files.submit(StagingCommand("cancel", (target,)))
    print(text)


@staging.command()
def stop(
    reason: Annotated[str, typer.Option(help="The reason, which everybody sees.", callback=read_typed)] = "",
    config: ConfigOption = DEFAULT_CONFIG_PATH,
) -> None:
    """Stop all requests and renewals at once; nothing is deleted, and the requests end by themselves."""
    if not reason.isprintable() or len(reason.encode()) > _MAX_REASON_CHARS:
        raise ConfigError([f"staging stop --reason: give one line of at most {_MAX_REASON_CHARS} bytes"])
    _, files = _load_staging(config)
    files.stop(reason)
    print("staging is stopped: nothing is requested, renewed or cancelled until `hydrator staging resume`")


@staging.command()
def resume(config: ConfigOption = DEFAULT_CONFIG_PATH) -> None:
    """End a stop; the daemon also forgets all failures, and tries again."""
    _, files = _load_staging(config)
    files.resume()
    print("staging is not stopped; the daemon's next step forgets the failures and tries again")


def _load_staging(config: Path) -> tuple[StagingList, StagingFiles]:
    """Return what the daemon saved last, and the operator's files."""
    settings = load(config)
    files = StagingFiles(settings.daemon.state_dir)
    with Store.open_to_read(settings.daemon.state_dir) as store:
        last_step = store.load_report(STAGING_REPORT, StagingOverview)
    return StagingList(settings.staging.mode, files.stop_reason, last_step), files


def _answer(name: CommandName, batch: str, config: Path) -> None:
    """Submit the answer to the request *batch*.

    Raises:
        ConfigError: no request with this id waits for a person.
    """
    shown, files = _load_staging(config)
    planned = shown.last_step.planned if shown.last_step else ()
    waiting = {row.first.batch: row for row in planned if row.mode == "approve"}
    if batch not in waiting:
        is_proposed = batch in {row.first.batch for row in planned}
        why = "the mode is propose, so nothing is requested" if is_proposed else "no such request waits"
        raise ConfigError([f"staging {name} {batch}: {why}{_list_ids(waiting)}"])
    row = waiting[batch]
    what = f"{format_bytes(row.bytes)} in {format_count(len(row.requests), 'dataset')} at {row.first.site}"
    effect = "may now request" if name == "approve" else "will not request"
    targets = tuple(one.approval for one in row.requests) if name == "approve" else (batch,)
    files.submit(StagingCommand(name, targets))
    print(f"the daemon {effect} {what}")


def _list_ids(ids: Iterable[str]) -> str:
    """Return the end of a problem: the ids that exist."""
    listed = comma_separated(sorted(set(ids)))
    return f"; ids: {listed}" if listed else "; see hydrator staging list"
