"""The command line: ``hydrator COMMAND``.

``hydrator --version`` and ``hydrator hook`` are answered here, without Typer: scripts on worker nodes and
monitoring call them often, and Typer's import costs more than the answer.
"""

import gc
import os
import sys

import hydrator


def main() -> None:
    """Run the command that the arguments of this process name."""
    gc.set_threshold(
        100_000
    )  # nearly all objects live until the end: searches for others are a tenth of the CPU
    words = sys.argv[1:]
    if words not in (["--version"], ["-V"], ["hook"]):
        from .app import main as run_command

        run_command()
        return
    try:
        sys.stdout.write(hook_text() if words == ["hook"] else version_text())
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()  # Python's own complaint at its exit
        sys.exit(1)


def version_text() -> str:
    """Return the line of ``hydrator --version``."""
    return f"{hydrator.__version__}\n"


def hook_text() -> str:
    """Return the source of the STARTD_CRON hook."""
    package = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib is a third of the start
    with open(os.path.join(package, "startd_cron.py"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        return file.read()
