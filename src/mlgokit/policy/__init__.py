"""Policies: the network, its file, and exploration, by which decisions depart from it."""
