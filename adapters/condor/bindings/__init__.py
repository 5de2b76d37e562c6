"""HTCondor's Python bindings, in a child process."""
