"""The experiment behind docs/explanation/benefit.md: real pools and throttled links."""
