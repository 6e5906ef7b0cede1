"""Files that compilers and linkers write: objects, archives and linked images, and which symbol owns which byte."""
