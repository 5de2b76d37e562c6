"""The command line: ``hydrator COMMAND``."""

from .app import main

__all__ = ["main"]
