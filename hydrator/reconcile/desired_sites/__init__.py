"""DESIRED_Sites of queued jobs: a second, small controller."""
