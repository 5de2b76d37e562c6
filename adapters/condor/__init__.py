"""HTCondor: collector, schedds and slots of a pool; the bindings run in a supervised child process.

The bindings block, and a fatal error in their C++ code ends the process that
called them; the daemon must outlive both (DESIGN.md, decision 9).
"""

from adapters.condor.bindings.client import Authorization, CondorClient
from adapters.condor.bindings.process import CondorSettings

__all__ = ["Authorization", "CondorClient", "CondorSettings"]
