"""A command for the command stager: an archive whose state is a JSON file, the first argument.

It is the smallest command that keeps all promises of a stager. Standard library only.
"""

import json
import os
import sys
from pathlib import Path

DONE, REFUSED, FAILED = 0, 3, 1


def list_rules(archive, given):
    """Yield rules, also ended ones that the archive has not removed, sizes, and free space."""
    for rule, one in archive["rules"].items():
        is_named = rule in given["rules"] or (given["all"] and one["ours"])
        if is_named or (one["did"] in given["dids"] and one["site"] in given["sites"]):
            done = archive["files"] if one["state"] == "done" else 0
            yield {**one, "rule": rule, "files": archive["files"], "files_done": done}
    for did in given["dids"]:
        if did in archive["sizes"]:
            yield {"did": did, "bytes": archive["sizes"][did]}
    for site in given["spaces"]:
        if site in archive["space"]:
            yield {"site": site, "free_bytes": archive["space"][site]}


def request(archive, given):
    """Make the rule, or let the one that exists end later."""
    rules, ends = archive["rules"], archive["now"] + given["lifetime_seconds"]
    place = given["did"], given["site"]
    own = {rule for rule, one in rules.items() if one["ours"] and (one["did"], one["site"]) == place}
    if given["rule"]:
        own &= {given["rule"]}
    elif given["did"] not in archive["sizes"]:
        sys.exit(fail(REFUSED, f"nobody has {given['did']}"))
    elif not own:
        own = {f"request-{len(rules)}"}
        made = {key: given[key] for key in ("did", "site", "kind")}
        rules[min(own)] = {**made, "ours": True, "account": "us", "state": "moving"}
    if not own:
        sys.exit(fail(REFUSED, f"the rule {given['rule']} has ended"))
    rules[min(own)]["expires_at"] = ends
    yield {"rule": min(own)}


def cancel(archive, given):
    """End the rule; it is not an error that it has ended."""
    one = archive["rules"].get(given["rule"])
    if one and not one["ours"]:
        sys.exit(fail(REFUSED, f"{given['rule']} is not ours"))
    if one:
        one["expires_at"] = archive["now"]
    return ()


def fail(status, reason):
    """Write *reason* and return *status*."""
    print(reason, file=sys.stderr)
    return status


ACTIONS = {"list": list_rules, "request": request, "cancel": cancel}


def main():
    file, given = Path(sys.argv[1]), json.load(sys.stdin)
    if not file.exists():
        return fail(FAILED, "the archive is closed")
    archive = json.loads(file.read_text())
    for line in list(ACTIONS[given["action"]](archive, given)):
        print(json.dumps(line))
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(archive))
    fresh.replace(file)  # others read the file at any time
    return DONE


if __name__ == "__main__":
    sys.exit(main())
