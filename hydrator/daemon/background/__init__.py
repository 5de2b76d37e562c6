"""Background work beside the cycles. Each kind of work has its own thread, so that cycles do not wait."""
