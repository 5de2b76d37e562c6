"""TODO: the package hydrator/reconcile/publish."""
