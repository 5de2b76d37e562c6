"""Options of many commands."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG_PATH = Path("/etc/classad-hydrator/config.toml")
EXIT_NO_MATCH_NOW = 3
"""The exit status where no site could start the job now."""

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The daemon's configuration.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")
]
