"""The configuration of a daemon on a booted machine beside a real pool."""

from pathlib import Path

from testbed.pool import DOMAIN, Pool

CATALOGUE = 'sites = ["UK", "AU"]\n[datasets."lofar:L1"]\nsites.UK = "available"\n'
SITES = {"UK", "AU", "NL"}
"""The sites with an ad: those of the catalogue, and NL, of which the pool has slots."""


def write_configuration(folder: Path, pool: Pool, port: int) -> None:
    """Write HTCondor's configuration, a catalogue and config.toml, for the address *port* on loopback."""
    (folder / "condor_config").write_text(
        f"COLLECTOR_HOST = {pool.collector}\nUID_DOMAIN = {DOMAIN}\nTRUST_DOMAIN = {DOMAIN}\n"
        "SEC_CLIENT_AUTHENTICATION_METHODS = IDTOKENS\nNETWORK_INTERFACE = 127.0.0.1\nENABLE_IPV6 = False\n"
    )
    (folder / "catalogue.toml").write_text(CATALOGUE)
    (folder / "config.toml").write_text(
        f"""\
[daemon]
poll_seconds = 1
[htcondor]
config_file = "condor_config"
token_directory = "tokens.d"
[[catalogue]]
type = "file"
path = "catalogue.toml"
[demand]
pins = ["lofar:L1"]
[publish.http]
port = {port}
"""
    )
