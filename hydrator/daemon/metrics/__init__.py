"""Metrics of the cycles and of the background work, for Prometheus."""

from .recorder import DaemonProcessCollector, Metrics

__all__ = ["DaemonProcessCollector", "Metrics"]
