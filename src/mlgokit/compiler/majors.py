"""The LLVM majors that the plugin works with."""

SUPPORTED_MAJORS = (19, 21, 22, 23)
"""The LLVM majors that the plugin is written and tested for."""
ADVISED_MAJOR = 22
"""The newest of them that ``apt-get`` installs on Debian."""
