"""The report about the pool: the jobs of each schedd, for a schedd that is silent after a restart."""

from collections.abc import Mapping
from datetime import datetime

from hydrator.domain.model import ScheddDemand
from hydrator.domain.ports import ScheddLoad, ScheddQueue

from .store import Store

_POOL = "pool"
"""The name of the report in the state."""


def save_queues(store: Store, queues: Mapping[str, ScheddQueue]) -> None:
    """Save the idle and running jobs of each of *queues*, with their time.

    Raises:
        StateError: the state cannot be written.
    """
    store.save_report(_POOL, {name: (queue.demand.as_of, queue.load) for name, queue in queues.items()})


def load_queues(store: Store) -> dict[str, ScheddQueue]:
    """Return the saved queues; none if they cannot be decoded. Their demand is in the state of the cycle.

    Raises:
        StateError: the state cannot be read.
    """
    loads = store.load_report(_POOL, dict[str, tuple[datetime, ScheddLoad]]) or {}
    return {name: ScheddQueue(ScheddDemand(as_of, ()), load) for name, (as_of, load) in loads.items()}
