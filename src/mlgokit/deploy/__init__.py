"""From a policy to something that clang loads by itself."""
