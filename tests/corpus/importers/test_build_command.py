from pathlib import Path

import pytest

from mlgokit.compiler.options.parse import spell_options
from mlgokit.corpus.importers.build_command import FrontEndCall, front_end_call
from mlgokit.corpus.importers.compile_commands import CompileCommand, split_command


def call(line: str, file: str = "/b/a.cc", level: str | None = None) -> FrontEndCall:
    command = CompileCommand(directory=Path("/b"), file=Path(file), arguments=tuple(split_command(line)), output=None)
    return front_end_call(command, level=level)


def kept(line: str, file: str = "/b/a.cc", level: str | None = None) -> str:
    """The options but for those that are always added."""
    options = spell_options(call(line, file, level).units)
    return " ".join(options[: options.index("-g0")])


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("g++ -O2 -fPIC -std=c++17 -c a.cc -o a.o", "-O2 -fPIC -std=c++17"),
        ("g++ -I i -isystem /x -DA=1 -D B -UC -include h.h -c a.cc", "-I i -isystem /x -DA=1 -D B -UC -include h.h"),
        ("clang++ -O2 -MD -MT a.o -MF a.d -MQx -MMD -Wp,-MD,a.d -o a.o -c a.cc", "-O2"),
        ("clang++ -flto=thin -ffat-lto-objects -fno-lto -flto -O3 -c a.cc -oa.o", "-O3"),
        ("clang++ -Xclang -fembed-bitcode=all -fembed-bitcode -O2 -c a.cc", "-O2"),
        ("g++ -Wall -Werror -Werror=format -pedantic-errors -Wno-narrowing -c a.cc", "-Wall -Wno-narrowing"),
        ("g++ a.cc b.o libc.a -lm -L/lib -Wl,-z,now -o prog -O1 -static", "-O1 -static"),
        ("g++ -fdiagnostics-color=always -fcolor-diagnostics -pipe -c -- a.cc", "-pipe"),
        ("clang++ -Xclang -include -Xclang p -O2 -c a.cc", "-Xclang -include -Xclang p -O2"),
        ("clang++ -Winvalid-pch -fpch-instantiate-templates -fpch-debuginfo -O2 -c a.cc", "-Winvalid-pch -O2"),
        ("clang++ -mllvm -inline-threshold=5 -Xclang -fno-x -c a.cc", "-mllvm -inline-threshold=5 -Xclang -fno-x"),
        ("clang++ -B /evil -specs=e --config e.cfg -wrapper e,f -ccc-install-dir /e -fproc-stat-report=e -c a.cc", ""),
        ("g++ -D_F=2 -fsanitize=address -march=native -c a.cc", "-D_F=2 -fsanitize=address -march=native"),
    ],
)  # fmt: skip
def test_what_the_front_end_is_asked_for(line: str, options: str):
    assert kept(line) == options


def test_a_level_replaces_the_builds():
    assert spell_options(call("g++ -O0 -Og -O3 -c a.cc", level="Oz").units)[:2] == ("-g0", "-Oz")
    assert kept("g++ -O0 -Og -O3 -c a.cc") == "-O0 -Og -O3"


def test_what_would_change_the_code_is_counted():
    line = "g++ -fplugin=./e.so -fplugin-arg-e-x --coverage -Xclang -load -Xclang e.so -fpass-plugin=e.so -O2 -c a.cc"
    found = call(line)
    assert found.dropped == ("-fplugin=./e.so", "-fplugin-arg-e-x", "--coverage", "-Xclang -load", "-fpass-plugin=e.so")
    assert not any("e.so" in option for option in spell_options(found.units))


@pytest.mark.parametrize(
    ("line", "file", "driver", "language", "source"),
    [
        ("/usr/bin/g++-12 -c a.cc", "/b/a.cc", "clang++", "c++", ("a.cc",)),
        ("gcc -c sub/../a.c", "/b/a.c", "clang", "c", ("sub/../a.c",)),
        ("gcc -c /b/a.c", "/b/a.c", "clang", "c", ("/b/a.c",)),
        ("gcc -c a.cc", "/b/a.cc", "clang", "c++", ("a.cc",)),
        ("g++ -c a.c", "/b/a.c", "clang++", "c++", ("a.c",)),
        ("gcc -x c++ -c a.c", "/b/a.c", "clang", "c++", ("-x", "c++", "a.c")),
        ("gcc -x c++ -c a.c -x none b.o", "/b/a.c", "clang", "c++", ("-x", "c++", "a.c")),
        ("gcc -c a.c -x c++ b.inc", "/b/a.c", "clang", "c", ("a.c",)),
        ("gcc -c a.CXX", "/b/a.CXX", "clang", "c++", ("a.CXX",)),
        ("ccache distcc c++ -c a.cc", "/b/a.cc", "clang++", "c++", ("a.cc",)),
        ("env A=b ccache cc -c a.c", "/b/a.c", "clang", "c", ("a.c",)),
        ("cc -c other.c", "/b/a.c", "clang", "c", ("/b/a.c",)),
    ],
)
def test_driver_language_and_source(line: str, file: str, driver: str, language: str, source: tuple[str, ...]):
    found = call(line, file)
    assert (found.driver, found.language, found.input) == (driver, language, source)


def test_a_cross_compilers_name_is_its_target():
    assert "--target=aarch64-linux-gnu" in spell_options(call("aarch64-linux-gnu-g++-12 -c a.cc").units)
    assert "--target=aarch64-linux-gnu" not in spell_options(call("aarch64-linux-gnu-clang++ --target=x -c a.cc").units)


def test_includes_and_macros_do_not_decide_how_bitcode_is_compiled():
    one, two = call("g++ -O2 -Ia -D A -include x.h -c a.cc"), call("g++ -O2 -isystem b -UB -c a.cc")
    assert one.essential == two.essential
    assert spell_options(one.units) != spell_options(two.units)


@pytest.mark.parametrize(
    ("line", "file", "reason"),
    [
        ("nvcc -c a.cu", "/b/a.cu", "expected clang or a compiler with GCC's options, found nvcc"),
        ("cl /c a.cc", "/b/a.cc", "expected clang or a compiler with GCC's options, found cl"),
        (
            "clang -cc1 -triple x86_64 -emit-obj -x c a.c",
            "/b/a.c",
            "expected a command as the build runs it, found the -cc1 step that a clang driver starts",
        ),
        ("ccache", "/b/a.c", "expected a compiler, found only ccache"),
        ("gcc -c a.S", "/b/a.S", "expected C or C++, found a.S"),
        ("clang -c a.m", "/b/a.m", "expected C or C++, found a.m"),
        ("g++ -x assembler -c a.c", "/b/a.c", "expected C or C++, found -x assembler"),
        (
            "clang++ -include-pch p.pch -c a.cc",
            "/b/a.cc",
            (
                "expected the text of the precompiled header p.pch, found no command of the database that makes it, "
                "and no header of that name beside it; import a database that has its command, or compile without it"
            ),
        ),
        *(
            (
                f"clang++ {words}",
                f"/b/{words.split()[-1]}",
                (
                    "expected a source that is compiled by itself, found one that makes or imports a C++20 module "
                    f"({found}), whose interfaces would have to be compiled first; this source is left out"
                ),
            )
            for words, found in (
                ("-c a.cppm", "a.cppm"),
                ("-c a.ixx", "a.ixx"),
                ("-x c++-module -c a.cc", "c++-module"),
                ("-fmodule-output -c a.cc", "-fmodule-output"),
                ("-fmodule-file=a=a.pcm -c a.cc", "-fmodule-file=a=a.pcm"),
                ("-c a.pcm", "a.pcm"),
            )
        ),
    ],
)
def test_what_is_no_module(line: str, file: str, reason: str):
    with pytest.raises(ValueError) as caught:
        call(line, file)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "line", ["-I -fbogus-x", "-I -fplugin=e.so", "-isystem @more", "-D @x", "-I", "-I-", "-include -Dx"]
)
def test_a_missing_value_before_an_option_is_refused(line: str):
    with pytest.raises(ValueError, match=r"expected a value of -\w+ that does not begin with - or @, found -"):
        call(f"g++ -O2 {line} -o a.o -c a.cc" if line != "-I" else "g++ -O2 -c a.cc -I")


def test_what_starts_programs_though_the_driver_is_only_asked_is_left_out_and_counted():
    words = (
        "-gen-reproducer=always", "-fopenmp-targets=nvptx64", "--offload-arch=native", "-fsycl", "--driver-mode=cl",
        "--amdgpu-arch-tool=./e", "-Xopenmp-target", "--target=amdgcn-amd-amdhsa", "-fcrash-diagnostics=all",
    )  # fmt: skip
    line = " ".join("-Xopenmp-target -march=native" if word == "-Xopenmp-target" else word for word in words)
    found = call(f"clang++ {line} -O2 -c a.cc")
    assert found.dropped == tuple(word for word in words if word != "-fcrash-diagnostics=all")
    assert spell_options(found.units)[:2] == ("-O2", "-g0")
    with pytest.raises(ValueError, match=r"expected clang or a compiler with GCC's options, found nvptx64-g.."):
        call("nvptx64-g++ -O2 -c a.cc")


def test_a_language_may_be_joined_to_its_option():
    assert call("gcc -xc++ -c a.c", "/b/a.c").input == ("-x", "c++", "a.c")
    assert call("gcc -c a.i", "/b/a.i").source_language == "cpp-output"
    assert call("gcc -c a.c", "/b/a.c").source_language == "c"
