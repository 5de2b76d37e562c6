"""The real condor_submit without a pool: the job ad that a submit description becomes.

``-dry-run`` prints the ad that would be sent to a schedd; the program is in the test pools' Debian tree.
"""

import re
import subprocess
from pathlib import Path

from . import debian

_ATTRIBUTE = re.compile(r"(\w+) = (.*)\Z", re.DOTALL)


class Rejected(Exception):
    """A description that condor_submit rejects; the text is its reason."""


class DryRun:
    """The condor_submit of one Debian *suite*."""

    def __init__(self, suite: str = "trixie") -> None:
        self._tree: Path = debian.tree(suite, print)

    def ad(self, description: str) -> dict[str, str]:
        """Return the one job that *description* makes: attributes with their expressions as text.

        Raises:
            Rejected: condor_submit rejects it, or makes another number of jobs.
        """
        jobs = self.ads(description)
        if len(jobs) != 1:
            raise Rejected(f"status 0, {len(jobs)} jobs")
        return jobs[0]

    def ads(self, description: str) -> list[dict[str, str]]:
        """Return the jobs that *description* makes; a job has only what differs from the first one.

        Raises:
            Rejected: condor_submit rejects it.
        """
        done = subprocess.run(
            [
                *("chroot", str(self._tree), "/usr/bin/env", "CONDOR_CONFIG=/dev/null"),
                *("condor_submit", "-disable", "-dry-run", "-", "-"),
            ],
            input=description.encode(),
            capture_output=True,
            check=False,
            timeout=60,
        )
        output = done.stdout.decode("utf-8", "replace")
        jobs = re.split(r"^\*\* Proc .*$", output, flags=re.MULTILINE)[1:]
        if done.returncode:
            complaint = done.stderr.decode("utf-8", "replace").strip()
            raise Rejected(f"status {done.returncode}, {len(jobs)} jobs: {complaint[-500:]}")
        return [
            {match[1]: match[2] for line in job.split("\n") if (match := _ATTRIBUTE.match(line))}
            for job in jobs
        ]


def text_of(literal: str) -> str:
    """Return the string of *literal* in an old-syntax ad: only a quote has a backslash before it."""
    assert literal[:1] == literal[-1:] == '"', literal
    return literal[1:-1].replace('\\"', '"')


def words_of(arguments: str) -> list[str]:
    """Return the words of a job's Arguments (new syntax) as the job gets them."""
    found, word, at, inside = [], None, 0, False
    while at < len(arguments):
        letter = arguments[at]
        if letter == "'" and inside and arguments[at : at + 2] == "''":
            word, at = (word or "") + "'", at + 1
        elif letter == "'":
            inside, word = not inside, word or ""
        elif letter in " \t\r\n" and not inside:
            found += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + letter
        at += 1
    return [each.replace("$$(DOLLARDOLLAR)", "$$") for each in [*found, *([] if word is None else [word])]]
