"""Command runner: run commands in turn and print the CPU seconds of each run as JSON; standard library only.

It runs on the host of the commands, perhaps inside a pool's tree. Standard input has
``{"rounds": n, "commands": {name: [word, …]}}``; ``{fresh}`` in a word is a new empty folder each time.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time


def one(words: "list[str]") -> "tuple[float, float, int, int]":
    """Run a command; return CPU seconds (user, system and children), seconds, bytes printed, status."""
    fresh = tempfile.mkdtemp()
    try:
        started_at = time.monotonic()
        running = subprocess.Popen(
            [word.replace("{fresh}", fresh) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert running.stdout is not None
        output = running.stdout.read()
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        running.stdout.close()
        return used.ru_utime + used.ru_stime, time.monotonic() - started_at, len(output), running.returncode
    finally:
        shutil.rmtree(fresh)


def main() -> None:
    what = json.load(sys.stdin)
    runs: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in what["commands"]}
    for number in range(what["rounds"] + 1):
        for name, words in what["commands"].items():
            run = one(words)
            if number:  # the first round warms the caches
                runs[name].append(run)
    json.dump(runs, sys.stdout)


if __name__ == "__main__":
    main()
