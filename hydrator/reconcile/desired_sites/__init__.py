"""TODO: the package hydrator/reconcile/desired_sites."""
