"""TODO: the package hydrator/reconcile/snapshot."""
