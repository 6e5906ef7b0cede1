"""The first bytes of the object formats."""

ELF = b"\x7fELF"
WASM = b"\0asm"
MACH_O, MACH_O_32 = b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe"
COFF_IMAGE = b"MZ"
COFF_OBJECTS = {b"\x64\x86": "x86_64", b"\x64\xaa": "aarch64", b"\x4c\x01": "i386", b"\xc4\x01": "thumb"}
"""LLVM's names of processors, by the first bytes of objects."""
COFF_BIG_OBJECT = b"\0\0\xff\xff\2\0"
"""An object with more sections than a header of 16 bits can number (``/bigobj``)."""
