"""The experiment behind benchmarks/results/benefit.md: real pools and throttled links."""
