"""Learning: from measured effects or decisions to a policy; the only part that imports JAX."""
