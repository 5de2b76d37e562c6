"""What the daemon does beside its cycles, each kind in a thread of its own: no cycle waits for any of it."""

from .audit import Questions
from .heartbeat import Beats
from .maintenance import Chores
from .worker import Now, Schedule

__all__ = ["Beats", "Chores", "Now", "Questions", "Schedule"]
