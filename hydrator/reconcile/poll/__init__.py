"""TODO: the package hydrator/reconcile/poll."""
