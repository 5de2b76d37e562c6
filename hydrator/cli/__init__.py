"""The command line: ``hydrator COMMAND``.

``hydrator --version`` and ``hydrator hook`` are answered here, without Typer: scripts on worker nodes and
monitoring call them often, and Typer's import costs more than the answer.
"""

import errno
import gc
import os
import sys

import hydrator


def main() -> None:
    """Run the command that the arguments of this process name."""
    # nearly all objects of a command live until its end: to search for others takes a tenth of its CPU
    gc.set_threshold(100_000)
    # pydantic would read the files of all installed packages to find extensions of itself
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - open until the end
    try:
        try:
            _run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is not written at the exit either
        if error.errno == errno.ENOSPC:
            sys.stderr.write(f"hydrator: the output cannot be written: {error.strerror}\n")
        sys.exit(1)


def _run(words: list[str]) -> None:
    if words == ["hook"]:
        sys.stdout.write(hook_text())
    elif words in (["--version"], ["-V"]):
        sys.stdout.write(version_text())
    else:
        from .app import main as run_command

        run_command()


def version_text() -> str:
    """Return the line of ``hydrator --version``."""
    return f"{hydrator.__version__}\n"


def hook_text() -> str:
    """Return the source of the STARTD_CRON hook."""
    package = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib is a third of the start
    with open(os.path.join(package, "startd_cron.py"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        return file.read()
