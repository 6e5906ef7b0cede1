"""From archives of source code to a corpus: projects, fetch, extract, module, info."""
