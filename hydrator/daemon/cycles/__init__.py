"""Cycles: run cycles on schedule or early, survive their failures, and record their results."""

from .early import EarlyCycles
from .guard import TaskGuard
from .recorder import CycleRecorder
from .runner import CycleRunner
from .saved_reports import SavedReports

__all__ = ["CycleRecorder", "CycleRunner", "EarlyCycles", "SavedReports", "TaskGuard"]
