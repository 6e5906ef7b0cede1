"""What compilers and linkers write: objects, their bytes by owner, archives, linked images."""
