"""Which C++ library something was built with that is no compiler."""

from pathlib import Path

from mlgokit.compiler.cxx_library import cxx_library_of


def test_what_is_no_program_has_the_systems(tmp_path: Path):
    script = tmp_path / "clang"
    script.write_text("#!/bin/sh\n# libc++.so\n")

    assert cxx_library_of(script) == "libstdc++"
    assert cxx_library_of(tmp_path / "nothing") == "libstdc++"
