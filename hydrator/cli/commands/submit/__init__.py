"""TODO: the package hydrator/cli/commands/submit."""
