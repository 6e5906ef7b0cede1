"""Results for people: one page, as values, that terminal, Markdown and HTML are rendered from."""
