"""Controller that edits DESIRED_Sites of queued jobs; it runs independently of the reconciler."""
