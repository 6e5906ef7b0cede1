"""How much a policy gives: comparisons, statistics, reports."""
