"""TODO: the package hydrator/reconcile."""
