"""The daemon's process: schedule, leader election, watchdog, metrics and logs."""
