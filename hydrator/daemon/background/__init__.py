"""Background work beside the cycles. Each kind of work has its own thread, so that cycles do not wait."""

from .audit import AuditTasks
from .heartbeat import Heartbeat
from .maintenance import MaintenanceTasks
from .pool_edits import PoolEdits
from .worker import CycleOutput, DaemonScheduler

__all__ = ["AuditTasks", "CycleOutput", "DaemonScheduler", "Heartbeat", "MaintenanceTasks", "PoolEdits"]
