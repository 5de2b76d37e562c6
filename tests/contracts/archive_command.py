"""A command for the command stager: an archive whose state is a JSON file, the first argument.

It is the smallest command that keeps all promises of a stager. Standard library only.
"""

import json
import os
import sys
from pathlib import Path

DONE, REFUSED, UNSUPPORTED, UNAVAILABLE = 0, 3, 4, 75


def find_live(archive):
    """Return the requests that have not ended, by handle."""
    return {handle: one for handle, one in archive["requests"].items() if one["expires_at"] > archive["now"]}


def ask(archive, given):
    for order in given["orders"]:
        tag, live = order["tag"], find_live(archive)
        same = {handle: one for handle, one in live.items() if one["tag"] == tag}
        rivals = [one for one in live.values() if (one["did"], one["site"]) == (order["did"], order["site"])]
        if same:
            yield {"tag": tag, "handle": next(iter(same))}
        elif order["did"] not in archive["sizes"]:
            yield {"tag": tag, "refused": f"nobody has {order['did']}", "kind": "unknown_dataset"}
        elif any(one["account"] == "us" for one in rivals):
            yield {"tag": tag, "refused": "another request of ours exists already"}
        else:
            handle = f"request-{len(archive['requests'])}"
            archive["requests"][handle] = {
                **{key: order[key] for key in ("tag", "kind", "site", "did")},
                "handle": handle,
                "account": "us",
                "state": "moving",
                "expires_at": archive["now"] + order["lifetime_seconds"],
            }
            yield {"tag": tag, "handle": handle}


def find_own(archive, request):
    """Return the live request of ours; None if it has ended; exit if it is not ours."""
    one = find_live(archive).get(request["handle"])
    if one and one["tag"] != request["tag"]:
        sys.exit(fail(REFUSED, f"{request['handle']} is not ours"))
    return one


def renew(archive, given):
    one = find_own(archive, given["request"])
    if one is None:
        sys.exit(fail(REFUSED, "the request has ended"))
    one["expires_at"] = archive["now"] + given["lifetime_seconds"]
    return ()


def cancel(archive, given):
    one = find_own(archive, given["request"])
    if one is not None:
        one["expires_at"] = archive["now"]
    return ()


def look(archive, given):
    for one in find_live(archive).values():
        if one["account"] == "us" and (one["tag"] in given["tags"] or one["tag"].startswith(given["prefix"])):
            size = archive["sizes"][one["did"]]
            done = size if one["state"] == "done" else {"bytes": 0, "files": 0}
            yield {
                **one,
                "files_done": done["files"],
                "files_total": size["files"],
                "bytes_done": done["bytes"],
                "bytes_total": size["bytes"],
            }


def find(archive, given):
    for one in find_live(archive).values():
        if one["did"] in given["dids"] and one["site"] in given["sites"]:
            yield one


def measure(archive, given):
    for did in given["dids"]:
        if did in archive["sizes"]:
            yield {"did": did, **archive["sizes"][did]}


def space(archive, given):
    for site in given["sites"]:
        if site in archive["space"]:
            yield {"site": site, "free_bytes": archive["space"][site], "total_bytes": 10**15}


def check(archive, given):
    yield {"can_ask": True, "can_renew": True, "can_cancel": True, "notes": []}


def fail(status, reason):
    """Write *reason* and return *status*."""
    print(reason, file=sys.stderr)
    return status


ACTIONS = {each.__name__: each for each in (ask, renew, cancel, look, find, measure, space, check)}


def main():
    file, given = Path(sys.argv[1]), json.load(sys.stdin)
    if not file.exists():
        return fail(UNAVAILABLE, "the archive is closed")
    if given["action"] not in ACTIONS:
        return UNSUPPORTED
    archive = json.loads(file.read_text())
    for line in list(ACTIONS[given["action"]](archive, given)):
        print(json.dumps(line))
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(archive))
    fresh.replace(file)  # others read the file at any time
    return DONE


if __name__ == "__main__":
    sys.exit(main())
