"""Metrics: counts of the cycles and of everything beside them, for Prometheus."""

from .recorder import DaemonProcessCollector, Metrics

__all__ = ["DaemonProcessCollector", "Metrics"]
