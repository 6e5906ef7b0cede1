"""Modules as a front end leaves them."""

from pathlib import Path

from mlgokit.compiler import process


def put_bitcode(clang: Path, source: Path, text: str, *options: str) -> Path:
    """Write a source, and the bitcode of it before optimization beside it."""
    source.write_text(text)
    bitcode = source.with_suffix(".bc")
    words = [clang, "-c", *options, "-Xclang", "-disable-llvm-passes", "-emit-llvm", source, "-o", bitcode]
    done = process.run(words, timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    return bitcode
