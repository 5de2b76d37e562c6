"""What the daemon does beside its cycles, each kind in a thread of its own: no cycle waits for any of it."""

from .beats import Beats
from .chores import Chores
from .questions import Questions
from .turns import Now, Schedule

__all__ = ["Beats", "Chores", "Now", "Questions", "Schedule"]
