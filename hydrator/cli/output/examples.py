"""Examples for the help of every command: a command line and its purpose."""

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "init": [
        ("hydrator init", "queries the pool and the catalogue, and prompts for the rest"),
        ("hydrator init --yes --catalogue file --path datasets.json", "without prompts"),
        (
            (
                "hydrator init --catalogue rucio --url https://rucio.example.org --account hydrator"
                " --username hydrator --password-file rucio-password"
            ),
            "a Rucio catalogue; the password file is in the configuration's folder",
        ),
    ],
    "run": [("hydrator run -c config.toml", "as the service does; SIGHUP reads the file again")],
    "once": [("hydrator once --json", "for cron: read, publish, read back, exit")],
    "plan": [("hydrator plan", "before you use a changed configuration")],
    "status": [
        ("hydrator status", "show problems and held changes"),
        ("hydrator status --json", "the same for a script"),
    ],
    "sites": [
        ("hydrator sites", "show the age of each site's facts, and the publishers with its ad"),
        ("hydrator sites RAL", "show the last 200 changes of the site's ad, with reasons"),
    ],
    "datasets": [
        ("hydrator datasets", "list all demanded datasets"),
        ("hydrator datasets lofar:L123 --why", "show the source of its state, and the expected completion"),
    ],
    "network": [("hydrator network", "show how fast jobs read from other sites, and how the daemon knows")],
    "check": [
        ("hydrator check", "after installation, and whenever something looks wrong"),
    ],
    "run-anywhere": [
        ("hydrator run-anywhere 'Owner == \"alice\"'", "let alice's queued jobs run anywhere"),
    ],
    "hook": [
        (
            "hydrator hook > classad-hydrator-hook && chmod 755 classad-hydrator-hook",
            "the file for worker nodes",
        )
    ],
    "why": [
        ("hydrator why 123.4", "explain why this job is idle, and the cheapest remedy"),
        (
            "hydrator why lofar:L123 lofar:L124 --site RAL",
            "check whether a job with these data could run there",
        ),
    ],
    "approve": [("hydrator approve RAL", "confirm that those datasets left")],
    "report": [("hydrator report --since 7d", "show whether jobs found their data at their site")],
    "pool-config": [
        ("hydrator pool-config --role schedd > 99-datalocality-schedd.conf", "for the schedds"),
    ],
    "submit rapthor": [
        ("hydrator submit rapthor field.parset --dry-run", "show which sites could run it now")
    ],
    "submit wrap": [
        (
            "hydrator submit wrap --datasets lofar:L123 -- condor_submit my.sub",
            "run condor_submit with RequiredDatasets",
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
        ("hydrator token new --role read", "for Prometheus and for users"),
    ],
    "token list": [("hydrator token list", "list the tokens that exist")],
    "staging list": [("hydrator staging list", "show all requests of data, and why others are not made")],
    "staging approve": [("hydrator staging approve 4f1c09ab27", "let the daemon make this large request")],
    "staging reject": [("hydrator staging reject 4f1c09ab27", "do not make this request")],
    "staging cancel": [("hydrator staging cancel 4f1c09ab27", "end these requests of the daemon")],
    "staging stop": [("hydrator staging stop --reason 'tape robot is down'", "stop all requests at once")],
    "staging resume": [("hydrator staging resume", "end the stop, and forget earlier failures")],
}


def epilog(path: str) -> str | None:
    """Return the end of the help of the command at *path*; empty lines separate the examples."""
    examples = EXAMPLES.get(path)
    if not examples:
        return None
    lines = [f"{typed}   # {why}" for typed, why in examples]
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *lines])
