"""What may be searched: each space is one kind of decisions of a project, behind :class:`mlgokit.tune.space.Space`."""
