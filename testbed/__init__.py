"""Real parts for tests, the demo and the benchmarks; not shipped."""
