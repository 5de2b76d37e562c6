"""The process: schedule, leader election, watchdog, events, metrics and logs."""
