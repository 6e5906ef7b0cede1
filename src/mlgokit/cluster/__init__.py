"""Compilations on other machines, by Dask: a compiler with all workers of a cluster behind it.

What compiles is :class:`~mlgokit.cluster.compiler.ClusterCompiler`; `docs/how-to/cluster.md` says how a cluster is
started.
"""
