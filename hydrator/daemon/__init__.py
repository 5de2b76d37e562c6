"""The daemon's process: schedule, watchdog, metrics and logs."""
