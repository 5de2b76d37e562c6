"""The daemon's operating-system process: its memory, the service manager, and the watchdog."""
