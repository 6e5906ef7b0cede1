"""Benchmarks: how a policy, a tuned plugin or an option changes what programs execute and how long they take."""
