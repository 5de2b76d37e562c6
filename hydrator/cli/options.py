"""The options that many commands have."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = Path("/etc/classad-hydrator/config.toml")
NOT_NOW = 3
"""The exit status where no site could start the job now."""

Config = Annotated[
    Path, typer.Option("--config", "-c", envvar="HYDRATOR_CONFIG", help="The daemon's configuration.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")]
