"""TODO: the package hydrator/reconcile/audit."""
