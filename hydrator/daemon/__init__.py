"""The daemon's process: schedule, leader election, watchdog, events, metrics and logs."""
