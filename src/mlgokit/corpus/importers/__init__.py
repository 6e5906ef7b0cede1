"""Users' builds as corpora."""
