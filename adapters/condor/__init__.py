"""HTCondor: collector, schedds and slots of a pool; the bindings run in a supervised child process.

A call of the bindings can block, and a fatal error in their C++ code ends the process
that called them. Neither may stop the daemon.
"""
