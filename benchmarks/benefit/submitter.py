"""Submit jobs of one user at given times, with HTCondor's Python bindings.

    CONDOR_CONFIG=… python -m benchmarks.benefit.submitter COLLECTOR < orders.json

The orders are ``{"start": Unix seconds, "orders": [{"at": seconds, "text": …, "items": […]}, …]}``. It
prints ``ready`` when it has found the schedd, and reads the orders then. A process of its own, because the
bindings have one configuration a process, and because a condor_submit for each job of a stream would load
the machine.
"""

import json
import sys
import time
from typing import Any

import htcondor2


def main(collector: str) -> None:
    """Find the schedd, read the orders, and submit each at its time."""
    schedds = htcondor2.Collector(collector).locateAll(htcondor2.DaemonType.Schedd)
    schedd = htcondor2.Schedd(schedds[0])
    print("ready", flush=True)
    orders: dict[str, Any] = json.loads(sys.stdin.read())
    for order in orders["orders"]:
        time.sleep(max(0.0, orders["start"] + order["at"] - time.time()))
        schedd.submit(htcondor2.Submit(order["text"]), itemdata=iter(order["items"]))
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
