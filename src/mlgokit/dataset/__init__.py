"""From raw feature values to the inputs of a network."""
