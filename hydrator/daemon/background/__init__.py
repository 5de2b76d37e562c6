"""Background work beside the cycles. Each kind of work has its own thread, so that cycles do not wait."""

from hydrator.daemon.background.maintenance import LocalityKeeper, MaintenanceTasks

from .misses import MissTasks
from .network import NetworkTasks
from .pool_edits import PoolEdits
from .staging import StagingTasks
from .worker import CycleOutput

__all__ = [
    "CycleOutput", "LocalityKeeper", "MaintenanceTasks",
    "MissTasks", "NetworkTasks", "PoolEdits", "StagingTasks",
]  # fmt: skip
