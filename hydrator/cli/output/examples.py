"""Examples for the help of every command: a command line and its purpose."""

from typing import Final

EXAMPLES: Final = """\
hydrator init   # prompts for what it needs; then hydrator check tests it
hydrator init --yes --catalogue file --path datasets.json   # without prompts
hydrator init --catalogue rucio --url https://rucio.example.org --account hydrator \
--username hydrator --password-file rucio-password   \
# a Rucio catalogue; the password file is in the configuration's folder
hydrator run -c config.toml   # as the service does; SIGHUP reads the file again
hydrator once --json   # for cron: read, publish, read back, exit
hydrator plan   # before you use a changed configuration
hydrator status   # show problems and held changes
hydrator status --json   # the same for a script
hydrator sites   # show the age of each site's facts, and the publishers with its ad
hydrator sites RAL   # show the last 200 changes of the site's ad, with reasons
hydrator datasets   # list all demanded datasets
hydrator datasets lofar:L123 --why   # show the source of its state, and the expected completion
hydrator network   # show how fast jobs read from other sites, and how the daemon knows
hydrator check   # after installation, and whenever something looks wrong
hydrator run-anywhere 'Owner == "alice"'   # let alice's queued jobs run anywhere
hydrator hook > classad-hydrator-hook && chmod 755 classad-hydrator-hook   # the file for worker nodes
hydrator why 123.4   # explain why this job is idle, and the cheapest remedy
hydrator why lofar:L123 lofar:L124   # check where a job with these data could run
hydrator approve RAL   # confirm that those datasets left
hydrator report --since 7d   # show whether jobs found their data at their site
hydrator pool-config --role schedd > 99-datalocality-schedd.conf   # for the schedds
hydrator submit rapthor field.parset --dry-run   # show which sites could run it now
hydrator submit wrap --datasets lofar:L123 -- condor_submit my.sub   # run condor_submit with RequiredDatasets
hydrator submit filter --datasets lofar:L123 my.sub | condor_submit -   # the same as a filter
hydrator token new --site RAL   # for the glideins of a site
hydrator token new --role read   # for Prometheus and for users
hydrator token list   # list the tokens that exist
hydrator staging list   # show all requests of data, and why others are not made
hydrator staging approve 4f1c09ab27   # let the daemon make this large request
hydrator staging reject 4f1c09ab27   # do not make this request
hydrator staging cancel 4f1c09ab27   # end these requests of the daemon
hydrator staging stop --reason 'tape robot is down'   # stop all requests at once
hydrator staging resume   # end the stop, and forget earlier failures
"""


def epilog(path: str) -> str | None:
    """Return the end of the help of the command at *path*; empty lines separate the examples."""
    lines = [line for line in EXAMPLES.splitlines() if line.startswith(f"hydrator {path} ")]
    head = "Examples:" if len(lines) > 1 else "Example:"
    return "\n\n".join([head, *lines]) if lines else None
