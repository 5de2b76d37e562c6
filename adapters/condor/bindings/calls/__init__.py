"""Calls to HTCondor's daemons that the child process executes."""
