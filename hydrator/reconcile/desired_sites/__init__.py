"""Controller that edits DESIRED_Sites of queued jobs, beside the reconciler."""
