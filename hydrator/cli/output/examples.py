"""Examples for the help of every command and for the man page: what is typed, and what it is for."""

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "init": [
        ("hydrator init", "asks what it cannot see, and looks at the pool and the catalogue"),
        ("hydrator init --yes --catalogue file --path datasets.json", "asks nothing"),
        (
            (
                "hydrator init --catalogue rucio --url https://rucio.example.org --account hydrator"
                " --username hydrator --password-file rucio-password"
            ),
            "a Rucio; the file is beside the configuration",
        ),
    ],
    "run": [("hydrator run -c config.toml", "as the service does; SIGHUP reads the file again")],
    "once": [("hydrator once --json", "for cron: read, publish, read back, end")],
    "plan": [("hydrator plan", "before a changed configuration is put to work")],
    "status": [
        ("hydrator status", "does it work, and what is held"),
        ("hydrator status --json", "the same for a script"),
    ],
    "sites": [("hydrator sites", "how old is what is known of each site, and who shows it")],
    "datasets": [
        ("hydrator datasets", "all that jobs want"),
        ("hydrator datasets lofar:L123 --why", "who said so, and when it will be whole"),
    ],
    "check": [
        ("hydrator check", "after installing, and whenever something is odd"),
        ("hydrator check --dmapi https://dm.example.org/api/v1", "before that service is configured"),
    ],
    "release": [
        ("hydrator release 'Owner == \"alice\"'", "alice's queued jobs go anywhere from now on"),
        ("hydrator release --desired-sites", "after publish.desired_sites was switched off"),
    ],
    "hook": [
        (
            "hydrator hook > classad-hydrator-hook && chmod 755 classad-hydrator-hook",
            "the file for worker nodes",
        )
    ],
    "why": [
        ("hydrator why 123.4", "why this job is idle, and the soonest way out"),
        ("hydrator why lofar:L123 lofar:L124 --site RAL", "could a job with these data run there"),
    ],
    "approve": [("hydrator approve RAL", "yes, those datasets did leave")],
    "history": [("hydrator history --site RAL --since 6h", "what came and left there, and why")],
    "rollback": [
        ("hydrator rollback RAL 1763726400", "back to that generation"),
        ("hydrator rollback RAL --end", "and on with the catalogues"),
    ],
    "renumber": [("hydrator renumber", "hooks refuse a generation that somebody forged: new ones")],
    "report": [("hydrator report --since 7d", "did jobs find their data at their site")],
    "top": [
        ("hydrator top", "beside the daemon"),
        ("hydrator top --url https://hydrator.example.org --token-file read-token", "from anywhere"),
    ],
    "submit pool-config": [
        ("hydrator submit pool-config --role schedd > 60-hydrator.conf", "for the schedds"),
        ("hydrator submit pool-config --remove", "how it is taken out again, and what is still there"),
    ],
    "submit rapthor": [
        ("hydrator submit rapthor field.parset --dry-run", "what would be submitted, and where")
    ],
    "submit wrap": [
        (
            "hydrator submit wrap --datasets lofar:L123 -- condor_submit my.sub",
            "condor_submit, with RequiredDatasets",
        )
    ],
    "submit filter": [
        (
            "hydrator submit filter --datasets lofar:L123 my.sub | condor_submit -",
            "the same as a filter",
        )
    ],
    "token new": [
        ("hydrator token new --site RAL", "for the glideins of a site"),
        ("hydrator token new --role read", "for Prometheus, and for people"),
    ],
    "token list": [("hydrator token list", "who may ask")],
}

EXIT_STATUSES: Final = (
    (0, "done; for why: it would match now, runs, or has run"),
    (1, "failed, or a part of it; for check: something must be done"),
    (2, "wrong usage or configuration; every problem is told"),
    (3, "why only: it would not match now"),
)
"""What the exit status of every command means."""


def epilog(path: str) -> str | None:
    """The end of the help of the command at *path*; an empty line between lines keeps them apart."""
    examples = EXAMPLES.get(path)
    if not examples:
        return None
    lines = [f"{typed}   # {why}" for typed, why in examples]
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *lines])
