"""What the daemon does beside its cycles, each kind in a thread of its own: no cycle waits for any of it."""

from .audit import AuditTasks
from .heartbeat import Heartbeat
from .maintenance import MaintenanceTasks
from .worker import CycleOutput, DaemonScheduler

__all__ = ["AuditTasks", "CycleOutput", "DaemonScheduler", "Heartbeat", "MaintenanceTasks"]
