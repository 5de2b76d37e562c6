"""TODO: the package hydrator/reconcile/ads."""
