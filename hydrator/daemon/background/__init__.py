"""Background work beside the cycles. Each kind of work has its own thread, so that cycles do not wait."""

from .audit import AuditTasks
from .estimate_errors import EstimateErrorKeeper
from .locality import LocalityKeeper
from .maintenance import MaintenanceTasks
from .network import NetworkTasks
from .pool_edits import PoolEdits
from .staging import StagingTasks
from .worker import CycleOutput, DaemonScheduler

__all__ = [
    "AuditTasks", "CycleOutput", "DaemonScheduler", "EstimateErrorKeeper", "LocalityKeeper",
    "MaintenanceTasks", "NetworkTasks", "PoolEdits", "StagingTasks",
]  # fmt: skip
