"""Policies: the network, its file, and how decisions may depart from it."""
