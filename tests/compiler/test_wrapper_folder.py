"""Wrapped builds, with scripts in the places of compilers."""

import os
import shutil
import sys
import zlib
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.project_calls import group_by_reason, project_calls
from mlgokit.compiler.source_texts import content_of
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapper_folder import open_wrappers, plugin_settings, wrapper_variables
from mlgokit.compiler.wrapping import AddedOptions, WrappedBuild, run_wrapped
from mlgokit.errors import ToolError


def built(
    clang: Toolchain,
    folder: Path,
    script: str,
    added: AddedOptions | None = None,
    seconds: float = 30,
    *,
    keeps_compilers: bool = False,
    keeps_sources: bool = False,
) -> WrappedBuild:
    tree = folder / "tree"
    tree.mkdir(exist_ok=True, parents=True)
    (tree / "a.c").write_text("int a;\n")
    return run_wrapped(
        [["sh", "-c", script]],
        tree=tree,
        folder=folder / "wrapping",
        toolchain=clang,
        added=added or AddedOptions(),
        timeout_seconds=seconds,
        keeps_compilers=keeps_compilers,
        keeps_sources=keeps_sources,
    )


def test_what_a_build_calls_by_name_gets_the_options(clang: Toolchain, tmp_path: Path):
    added = AddedOptions(compile=("-one",), link=("-two",), lto_link=("-three",))
    script = "gcc-12 -c a.c -o a.o && $CXX a.o -o plain && cc -fuse-ld=lld -flto a.o -o lto && cc -flto a.o -o other"
    found = built(clang, tmp_path, script, added)

    tree = tmp_path / "tree"
    assert (tree / "a.o").read_text() == f"{clang.clang} -c a.c -o a.o -one\n"
    assert (tree / "plain").read_text() == f"{clang.clangxx} a.o -o plain -two\n"
    assert (tree / "lto").read_text() == f"{clang.clang} -fuse-ld=lld -flto a.o -o lto -two -three\n"
    assert [call.kind for call in found.calls] == ["compile", "link", "link", "link"]
    assert [call.name for call in found.calls] == ["gcc-12", "clang++", "cc", "cc"]
    assert [call.lto_linker for call in found.calls] == ["", "", "lld", "other"]
    assert found.calls[0].contents == (content_of(tree / "a.o"),)


@pytest.mark.parametrize("name", ["my cache", "cache:1"])
def test_a_cache_folder_whose_path_builds_split_is_refused(clang: Toolchain, tmp_path: Path, name: str):
    with pytest.raises(ToolError, match=r"without spaces and colons.*; set XDG_CACHE_HOME to another folder$"):
        open_wrappers(clang, cache_folder=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_options_are_added_before_the_end_of_options(clang: Toolchain, tmp_path: Path):
    script = "cp a.c ./-b.c && cc -c -o a.o -- a.c && cc -c -o b.o -- -b.c"
    found = built(clang, tmp_path, script, AddedOptions(compile=("-one",)))

    tree = tmp_path / "tree"
    assert (tree / "a.o").read_text() == f"{clang.clang} -c -o a.o a.c -one\n"
    assert (tree / "b.o").read_text() == f"{clang.clang} -c -o b.o ./-b.c -one\n"
    assert [call.sources for call in found.calls] == [(tree / "a.c",), (tree / "-b.c",)]


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("gcc -m32", "{programs}/clang -m32"),
        (" ccache /usr/bin/clang-99 --target=arm-none-eabi", "{programs}/clang --target=arm-none-eabi"),
        ("/opt/llvm/bin/clang++-7", "{programs}/clang++"),
        ("c99", "{programs}/c99"),
        ("ccache arm-none-eabi-gcc -mcpu=cortex-m3", "arm-none-eabi-gcc -mcpu=cortex-m3"),
        ("/sdk/aarch64-poky-linux-gcc --sysroot=/sdk", "/sdk/aarch64-poky-linux-gcc --sysroot=/sdk"),
        ("avr-gcc -mmcu=x", "avr-gcc -mmcu=x"),
        ("icc", "{programs}/clang"),
        ("ccache", "{programs}/clang"),
        ("", "{programs}/clang"),
    ],
)
def test_options_of_the_users_compiler_stay(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, ours: str
):
    monkeypatch.setenv("CC", given)
    folder = open_wrappers(clang)
    assert wrapper_variables(folder, tmp_path / "settings.json")["CC"] == ours.format(programs=folder / "bin")
    assert "CC" not in wrapper_variables(folder, tmp_path / "settings.json", keeps_compilers=True)


def test_folders_in_the_path_that_cannot_be_listed_are_left_out(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    closed = tmp_path / "closed"
    (closed / "bin").mkdir(parents=True)
    # Who is root may look into any folder, but a name may be too long.
    monkeypatch.setenv("PATH", f"/{'x' * 300}:{closed}:{closed}/bin:{os.environ['PATH']}")
    for mode in (0o311, 0o600):
        closed.chmod(mode)
        assert (open_wrappers(clang) / "bin" / "gcc-12").exists()
    closed.chmod(0o700)


def test_a_clang_that_links_by_lld_without_an_option_is_asked(clang: Toolchain, tmp_path: Path):
    asked = (
        """case "$*" in *-###) printf '%s\\n' 'clang version 99' ' "/opt/my llvm/bin/ld.lld" "-o" "x"' >&2; esac\n"""
    )
    clang.clang.write_text(clang.clang.read_text() + asked)
    script = "cc -flto a.o -o lto; cc -flto -fuse-ld=bfd a.o -o other; cc a.o -o plain"
    found = built(clang, tmp_path, script, AddedOptions(lto_link=("-three",)))

    assert [call.lto_linker for call in found.calls] == ["lld", "other", ""]
    assert (tmp_path / "tree/lto").read_text() == f"{clang.clang} -flto a.o -o lto -three\n"
    assert (tmp_path / "tree/other").read_text() == f"{clang.clang} -flto -fuse-ld=bfd a.o -o other\n"


def test_compilers_of_one_standard_of_c_compile_by_it(clang: Toolchain, tmp_path: Path):
    found = built(clang, tmp_path, "c89 -c a.c -o a.o && c99 a.c -std=gnu99 -o b && cc -c a.c -o c.o")

    given = {name: (tmp_path / "tree" / name).read_text() for name in ("a.o", "b", "c.o")}
    assert given == {
        "a.o": f"{clang.clang} -std=c89 -c a.c -o a.o\n",
        "b": f"{clang.clang} -std=c99 a.c -std=gnu99 -o b\n",
        "c.o": f"{clang.clang} -c a.c -o c.o\n",
    }
    assert [call.words[0] for call in found.calls] == ["-std=c89", "-std=c99", "-c"]


def test_what_is_precompiled_gets_the_options_of_what_reads_it(clang: Toolchain, tmp_path: Path):
    script = "cc -x c++-header a.h -o a.pch; cc -Xclang -emit-pch -x c-header -c a.c -o b.pch; cc -c start.S -o start.o"
    script += "; c++ --precompile m.cppm -o m.pcm; arm-none-eabi-gcc a.h -o arm.gch"
    found = built(clang, tmp_path, script, AddedOptions(compile=("-one",)))

    made = {name: (tmp_path / "tree" / name).read_text().split()[-1] for name in ("a.pch", "b.pch", "m.pcm")}
    assert made == dict.fromkeys(made, "-one")
    assert not any("-one" in (tmp_path / "tree" / name).read_text() for name in ("start.o", "arm.gch"))
    assert found.calls == ()


def test_objects_that_are_linked_to_an_object_are_of_the_project(clang: Toolchain, tmp_path: Path):
    added = AddedOptions(link=("-two",))
    script = "cc -c a.c -o a.o && cc -nostdlib -Wl,-r a.o -o part.o && rm a.o a.c && cc part.o -o tool"
    found = built(clang, tmp_path, script, added)

    assert [call.kind for call in found.every_call] == ["compile", "other", "link"]
    assert (tmp_path / "tree" / "part.o").read_text() == f"{clang.clang} -nostdlib -Wl,-r a.o -o part.o\n"
    assert [call.kind for call in project_calls(found, tmp_path / "tree").calls] == ["compile", "link"]


def test_links_by_the_linker_itself_and_by_compilers_for_another_machine_are_seen(clang: Toolchain, tmp_path: Path):
    programs = clang.clang.parent
    for name in ("arm-none-eabi-ld", "ld.lld"):
        shutil.copy(clang.clang, programs / name)
    # As a compiler links.
    inner = 'case "$words" in *inner*) ld.lld inner.o -o inner;; esac\n'
    (programs / "real").write_text((programs / "real").read_text() + inner)
    added = AddedOptions(compile=("-one",), link=("-Wl,-two,--three",), lto_link=("-Wl,--four",))
    script = (
        "ld.lld -T board.ld -m elf a.o -o tool && arm-none-eabi-ld b.o -o arm && ld.lld -r a.o b.o -o part.o"
        " && arm-none-eabi-gcc a.o -o by-gcc && cc inner.o -o outer"
        " && printf 'BC\\300\\336' > c.o && ld.lld c.o -o lto && ld.lld --version"
    )
    found = built(clang, tmp_path, script, added)

    tree = tmp_path / "tree"
    assert (tree / "tool").read_text() == f"{programs}/ld.lld -T board.ld -m elf a.o -o tool -two --three\n"
    assert (tree / "inner").read_text() == f"{programs}/ld.lld inner.o -o inner\n"
    assert (tree / "lto").read_text().endswith(" -two --three --four\n")
    assert (tree / "by-gcc").read_text() == f"{programs}/arm-none-eabi-gcc a.o -o by-gcc\n"
    assert [(call.name, call.kind, [path.name for path in call.outputs]) for call in found.calls] == [
        ("ld.lld", "link", ["tool"]),
        ("arm-none-eabi-ld", "link", ["arm"]),
        ("arm-none-eabi-gcc", "link", ["by-gcc"]),
        ("cc", "link", ["outer"]),
        ("ld.lld", "link", ["lto"]),
    ]
    assert [path.name for path in found.calls[0].inputs] == ["a.o"]
    assert found.calls[-1].lto_linker == "lld"


def test_bitcode_is_linked_with_lto_whatever_the_words_say(clang: Toolchain, tmp_path: Path):
    script = "printf 'BC\\300\\336' > b.o && cc -fuse-ld=/x/ld.lld b.o -o lto && cc -fno-lto -fuse-ld=lld b.o -o not"
    found = built(clang, tmp_path, script, AddedOptions(lto_link=("-three",)))

    assert [call.lto_linker for call in found.calls] == ["lld", ""]
    assert (tmp_path / "tree/lto").read_text().endswith(" -three\n")


def test_caches_are_passed_over_and_cross_compilers_are_told_of(clang: Toolchain, tmp_path: Path):
    script = "ccache --version > said && ccache gcc -c a.c -o a.o && arm-none-eabi-gcc -c a.c -o arm.o"
    found = built(
        clang, tmp_path, f"{script} && gcc -c start.S -o start.o && gcc --version", AddedOptions(compile=("-x",))
    )

    tree = tmp_path / "tree"
    assert (tree / "said").read_text() == "cached --version\n"
    assert (tree / "a.o").read_text().endswith(" -x\n")
    assert "-x" not in (tree / "arm.o").read_text()
    assert [call.name for call in found.calls] == ["gcc"]
    assert [(call.kind, call.name) for call in found.others] == [("foreign", "arm-none-eabi-gcc"), ("other", "gcc")]


def test_a_build_that_was_configured_with_wrappers_goes_on_without_them(clang: Toolchain, tmp_path: Path):
    built(clang, tmp_path, "echo $CC > configured", AddedOptions(compile=("-one",)))

    wrapper = (tmp_path / "tree/configured").read_text().strip()
    shutil.rmtree(tmp_path / "wrapping")
    done = process.run([wrapper, "-c", "a.c", "-o", "a.o"], cwd=tmp_path, timeout_seconds=30)
    assert done.returncode == 0
    assert (tmp_path / "a.o").read_text() == f"{clang.clang} -c a.c -o a.o\n"
    assert open_wrappers(clang) == Path(wrapper).parent.parent
    # A Python that was there for one run of mlgokit, as `pipx run` has it, is gone.
    for name, words in {"clang": "", "c99": "-std=c99 ", "arm-none-eabi-gcc": ""}.items():
        script = Path(wrapper).with_name(name)
        script.write_text(script.read_text().replace(sys.executable, "/gone/python"))
        assert process.run([script, "-c", "a.c", "-o", "b.o"], cwd=tmp_path, timeout_seconds=30).returncode == 0
        assert (tmp_path / "b.o").read_text().endswith(f" {words}-c a.c -o b.o\n")


def test_compilers_are_redirected_once_a_library_for_that_can_be_compiled(clang: Toolchain):
    compiles = clang.clang.read_text()
    clang.clang.write_text("#!/bin/sh\necho \"fatal error: 'dlfcn.h' file not found\" >&2; exit 1\n")
    assert not (open_wrappers(clang) / "redirect.so").exists()
    clang.clang.write_text(compiles)
    folder = open_wrappers(clang)
    assert (folder / "redirect.so").exists()
    made = (folder / "redirect.so").stat()
    assert (open_wrappers(clang) / "redirect.so").stat() == made
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("tmp")) == []


def test_what_checks_of_a_build_system_compile_is_not_of_the_project(clang: Toolchain, tmp_path: Path):
    script = "mkdir -p CMakeFiles/3/CompilerIdC && touch conftest.c && cc -c conftest.c -o conftest.o && rm conftest.*"
    script += " && cc -c a.c -o CMakeFiles/3/CompilerIdC/a.o && cc -c a.c -o a.o"
    found = built(clang, tmp_path, script)

    assert len(found.calls) == 3
    project = project_calls(found, tmp_path / "tree")
    assert [call.outputs[0].name for call in project.calls] == ["a.o"]
    assert [(one.name, one.reason.partition(",")[0]) for one in project.left_out] == [
        ("conftest.c", "source and object no longer exist"),
        ("a.c", "the build system compiled it to identify the compiler"),
    ]
    assert (project.seen, project.compilations) == (3, 1)


def sort_out(clang: Toolchain, folder: Path, script: str) -> tuple[list[str], dict[str, str], int]:
    """What a build compiles and into what, what is left out by reason, and how many compilations were seen."""
    project = project_calls(built(clang, folder, f"touch b.c; {script}"), folder / "tree")
    made = [f"{source.name} {call.outputs[0].name}" for call in project.calls for source in call.sources]
    return made, group_by_reason(project.left_out), project.seen


def test_what_was_made_of_sources_that_are_gone_is_found(clang: Toolchain, tmp_path: Path):
    renamed = "cp ../a.c t$n.c; cc -c t$n.c -Dn=$n -o ../tmp.o; mv ../tmp.o $n.o; rm t$n.c"
    linked = "touch $n.c; cc -c $n.c -o t.o; cc t.o -o app$n; rm $n.c t.o"
    made, left_out, seen = sort_out(
        clang,
        tmp_path,
        f"mkdir sub; cd sub; for n in 1 2; do {renamed}; done; cd ..; for n in 4 5; do {linked}; done;"
        "touch g.c; cc -c g.c -o g.tmp.o; cp g.tmp.o g.o; rm g.c g.tmp.o; touch one.c; cc one.c -o made; rm one.c;"
        "touch old.c; cc -c old.c -o old.o; ar rc lib.a old.o; rm old.c old.o; cc -c b.c -o gone.o; rm gone.o",
    )
    assert made == ["t1.c 1.o", "t2.c 2.o", "4.c t.o", "5.c t.o", "g.c g.o", "one.c made", "old.c old.o", "b.c gone.o"]
    assert (left_out, seen) == ({}, 8)


def test_each_compilation_that_is_left_out_has_a_reason(clang: Toolchain, tmp_path: Path):
    made, left_out, seen = sort_out(
        clang,
        tmp_path,
        "for n in 1 2 3 4 5; do touch try$n.c; cc -c try$n.c -o try.o; rm try*; done;"
        "echo o > a.o; cc -c a.c b.c; cc -c a.c -o /dev/null; cc -Dold -c b.c -o b.o; cc -c b.c -o b.o;"
        "arm-none-eabi-gcc -c a.c;"
        'echo "-c \'a.c" > x.rsp; cc @x.rsp; touch c.c; cc -c c.c -o c.o; cc @gone.rsp -o x; rm c.c',
    )
    assert made == ["a.c a.o", "b.c b.o", "c.c c.o"]
    assert left_out == {
        "try1.c, try2.c, try3.c and 2 more": (
            "source and object no longer exist, as with checks of a configure script"
        ),
        "a.c": "its output is discarded (/dev/null)",
        "b.c, b.c": "a later call made its output again",
        "a.c (4)": "it compiles for another machine",
        "cc @x.rsp": (
            "its words are in a response file that is not understood: @x.rsp: expected every quotation "
            'mark to be closed, found "\'a.c\\n"'
        ),
    }
    assert seen == len(made) + 5 + 1 + 2 + 1 + 1


def test_a_build_may_keep_its_own_compilers(clang: Toolchain, tmp_path: Path):
    script = (
        "gcc-12 -c a.c -o 1.o; ccache gcc-12 -c a.c -o 2.o; arm-none-eabi-gcc -c a.c -o 3.o;"
        "echo ${CC-unset} > cc; command -v clang-99 > clang || true"
    )
    found = built(clang, tmp_path, script, AddedOptions(), keeps_compilers=True)

    own = tmp_path / "programs"
    assert [call.program for call in found.calls] == [own / "gcc-12", own / "gcc-12", own / "arm-none-eabi-gcc"]
    assert (tmp_path / "tree/2.o").read_text() == f"{own}/gcc-12 -c a.c -o 2.o\n"
    assert (tmp_path / "tree/cc").read_text() == "unset\n"
    assert (tmp_path / "tree/clang").read_text() == ""


def test_sources_are_kept_while_a_build_compiles_them(clang: Toolchain, tmp_path: Path):
    script = (
        "echo one | gcc -x c -c - -o 1.o; gcc -x c++ -c -o 2.o /dev/stdin < a.c; mkfifo p.c; echo three > p.c &"
        "gcc -c p.c -o 3.o; echo 'int i;' > i.i; gcc -c i.i -o 4.o; gcc -DX -c a.c -o 5.o; gcc -c -include-pch x a.c"
    )
    found = built(clang, tmp_path, script, keeps_sources=True)

    texts = [text for call in found.calls for text in call.texts]
    assert [text.language for text in texts] == ["cpp-output", "c++-cpp-output", *["cpp-output"] * 4]
    whole = [zlib.decompress(text.text.read_bytes()).decode() if text.text else text.reason for text in texts]
    # The script that stands in for clang preprocesses to its words.
    assert [text.split(" -o ")[0].removeprefix(f"{clang.clang} -E -w -Qunused-arguments ") for text in whole] == [
        "-x c -",
        "-x c++ /dev/stdin",
        "it is read from a pipe",
        "int i;\n",
        "-DX a.c",
        "it is compiled with precompiled headers or modules",
    ]
    assert [sorted(path.name for path in text.files) for text in texts] == [[], [], ["p.c"], ["i.i"], ["a.c"], ["a.c"]]
    assert [text.is_piped for text in texts] == [True, True, False, False, False, False]
    assert not any(text.changed for text in texts)
    (tmp_path / "tree/a.c").write_text("another")
    assert [len(text.changed) for text in texts] == [0, 0, 0, 0, 1, 1]


def test_a_build_that_fails_or_is_late_says_so(clang: Toolchain, tmp_path: Path):
    found = built(clang, tmp_path, "echo nothing to make >&2; exit 3")
    assert (found.code, found.reason) == (3, "sh -c 'echo nothing to make >&2; exit 3' ended with 3: nothing to make")
    shutil.rmtree(tmp_path / "wrapping")
    found = built(clang, tmp_path, "sleep 60", seconds=1)
    assert (found.code, found.reason) == (-9, "sh -c 'sleep 60' did not end within 1 s")


def test_settings_of_the_plugin_are_the_users_and_those_of_wrappers_are_not(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLGOKIT_POLICY", ":never")
    for name, value in wrapper_variables(open_wrappers(clang), tmp_path / "settings.json").items():
        monkeypatch.setenv(name, value)

    assert {name: value for name, value in plugin_settings().items() if name.endswith(("POLICY", "ERS", "ING"))} == {
        "MLGOKIT_POLICY": ":never"
    }
    # A build in a wrapped build does not take wrappers for compilers.
    assert open_wrappers(clang) == Path(wrapper_variables(open_wrappers(clang), tmp_path)["CC"]).parent.parent


def test_a_program_that_the_build_has_made_is_found_where_it_was_made(clang: Toolchain, tmp_path: Path):
    commands = [["sh", "-c", "printf '#!/bin/sh\\necho $1 > said\\n' > made; chmod +x made"], ["./made", "well"]]
    (tmp_path / "tree").mkdir()
    found = run_wrapped(
        commands,
        tree=tmp_path / "tree",
        folder=tmp_path / "wrapping",
        toolchain=clang,
        added=AddedOptions(),
        timeout_seconds=30,
    )

    assert found.reason == ""
    assert (tmp_path / "tree/said").read_text() == "well\n"


RUSTC = """#!/bin/sh
# Writes its words, and what of its environment counts, into a file that is called like the crate.
while [ "$1" != --crate-name ]; do shift; done
echo "$* boot=$RUSTC_BOOTSTRAP phase=$MLGOKIT_PHASE cc=$(command -v cc) preload=$LD_PRELOAD" > "$2"
"""


def test_a_program_that_rustc_makes_for_size_by_full_lto_gets_the_plugin(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rustc, small = tmp_path / "programs/rustc", "-C opt-level=z -C lto=fat"
    rustc.write_text(RUSTC)
    rustc.chmod(0o755)
    monkeypatch.setenv("RUSTC_BOOTSTRAP", "mine")
    monkeypatch.setenv("RUSTC_WRAPPER", "sccache")
    calls = (
        f"tool --crate-type bin {small}",
        f"tool2 --crate-type=cdylib {small}",
        f"parts --crate-type lib {small}",
        f"build_script_build --crate-type bin {small}",
        f"tested --crate-type bin --test {small}",
        "fast --crate-type bin -C opt-level=3 -C lto=fat",
    )
    script = " && ".join(f'"$RUSTC_WRAPPER" rustc --crate-name {words}' for words in calls)
    found = built(clang, tmp_path, script, AddedOptions(rustc=("-Zllvm-plugins=p.so",)))

    assert found.reason == ""
    assert [(one.crate, one.kind, one.reason) for one in found.programs] == [
        ("tool", "bin", ""),
        ("tool2", "cdylib", ""),
        ("fast", "bin", "it is compiled with opt-level=3 in place of z or s"),
    ]
    said = {name: (tmp_path / "tree" / name).read_text() for name in ("tool", "parts", "build_script_build", "fast")}
    assert f"{small} -Zllvm-plugins=p.so boot=mine,tool phase=link cc=/" in said["tool"]
    # What it links with is the user's own.
    assert "cc=/usr/bin/cc preload=\n" in said["tool"] or "cc=/bin/cc preload=\n" in said["tool"]
    for name in ("parts", "build_script_build", "fast"):
        assert "llvm-plugins" not in said[name]
        assert "boot=mine phase= " in said[name]

    plain = built(clang, tmp_path / "again", f'"$RUSTC_WRAPPER" rustc --crate-name {calls[0]}')
    assert [(one.crate, one.reason) for one in plain.programs] == [("tool", "")]
    assert "llvm-plugins" not in (tmp_path / "again/tree/tool").read_text()
    wrapper = wrapper_variables(open_wrappers(clang), tmp_path)["RUSTC_WRAPPER"]
    outside = process.run([wrapper, "rustc", "--crate-name", "alone"], cwd=tmp_path, timeout_seconds=30)
    assert outside.returncode == 0, outside.stderr
    assert (tmp_path / "alone").exists()


def test_what_outlives_a_build_has_plain_compilers(clang: Toolchain, tmp_path: Path):
    variables = wrapper_variables(open_wrappers(clang), tmp_path / "gone" / "settings.json")
    compiled = process.run(["sh", "-c", "$CC -c a.c -o a.o"], cwd=tmp_path, env=variables, timeout_seconds=30)
    assert compiled.returncode == 0, compiled.stderr
    assert (tmp_path / "a.o").read_text() == f"{clang.clang} -c a.c -o a.o\n"
    words = [variables["RUSTC_WRAPPER"], "sh", "-c", "echo $* > rustc", "sh", "--crate-name", "tool"]
    made = process.run([*words, "--crate-type", "bin"], cwd=tmp_path, env=variables, timeout_seconds=30)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "rustc").read_text() == "--crate-name tool --crate-type bin\n"
