"""Row of the state about the pool: the jobs of each schedd, for a schedd that is silent after a restart."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import ValidationError

from hydrator.domain.model import ScheddDemand
from hydrator.domain.ports import ScheddLoad, ScheddQueue

from .saved_state import adapter
from .store import Store

_POOL = "pool"
"""Key in the table ``report``."""
_Loads = dict[str, tuple[datetime, ScheddLoad]]


def save_queues(store: Store, queues: Mapping[str, ScheddQueue]) -> None:
    """Save the idle and running jobs of each of *queues*, with their time.

    Raises:
        StateError: the state cannot be written.
    """
    loads = {schedd: (queue.demand.as_of, queue.load) for schedd, queue in queues.items()}
    store.save_report(_POOL, {"loads": adapter(_Loads).dump_python(loads, mode="json")})


def load_queues(store: Store) -> dict[str, ScheddQueue]:
    """Return the saved queues; none if they cannot be decoded. Their demand is in the state of the cycle.

    Raises:
        StateError: the state cannot be read.
    """
    try:
        loads: _Loads = adapter(_Loads).validate_python(store.load_report(_POOL).get("loads", {}))
    except ValidationError:
        return {}
    return {schedd: ScheddQueue(ScheddDemand(as_of, ()), load) for schedd, (as_of, load) in loads.items()}
