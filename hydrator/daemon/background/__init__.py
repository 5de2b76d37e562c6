"""Background work beside the cycles, each kind in a thread of its own, so that no cycle waits for it."""

from .audit import AuditTasks
from .heartbeat import Heartbeat
from .maintenance import MaintenanceTasks
from .pool_edits import PoolEdits
from .worker import CycleOutput, DaemonScheduler

__all__ = ["AuditTasks", "CycleOutput", "DaemonScheduler", "Heartbeat", "MaintenanceTasks", "PoolEdits"]
