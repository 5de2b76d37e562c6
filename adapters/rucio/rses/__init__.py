"""Rucio's storage elements (RSEs), and the links between them."""

from .directory import RseDirectory

__all__ = ["RseDirectory"]
