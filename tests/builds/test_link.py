"""Link commands of builds: which words are replaced, and by what; the linker here is a script."""

import sys
from pathlib import Path

import pytest

from mlgokit.builds.link import (
    OUTPUT,
    LinkPlan,
    image_names,
    known_objects,
    link,
    link_words,
    note_shared_libraries,
    place_objects,
    plan_link,
    read_link,
)
from mlgokit.builds.measurement import Measure, link_build
from mlgokit.compiler.objects.archive import read_members, write_archive
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError

TOOLCHAIN = Toolchain(
    major=19, version="19.1.7", clang=Path("clang"), clangxx=Path("clang++"), version_text="clang version 19.1.7"
)
CONCATENATE = """
import sys
words = sys.argv[1:]
output = words[words.index("-o") + 1]
data = [open(word, "rb").read() for word in words if word.endswith((".o", ".so")) and word[0] != "-"]
open(output, "wb").write(b"".join(data) or b"nothing")
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    for name in ("main.o", "sub/one.o", "sub/two.o", "foreign.o"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / "linker.py").write_text(CONCATENATE)
    return folder


def outputs(build: Path) -> dict[str, Path]:
    return {f"p/{name}": build / name for name in ("main.o", "sub/one.o", "sub/two.o")}


def planned(command: str, build: Path) -> LinkPlan:
    known = outputs(build)
    return plan_link(link_words(command), folder=build, outputs=known, modules=sorted(known), toolchain=TOOLCHAIN)


def planned_any(command: str, build: Path) -> LinkPlan:
    known = outputs(build)
    objects = known_objects(known, sorted(known))
    return read_link(link_words(command), folder=build, known=objects, toolchain=TOOLCHAIN)


def tuned(build: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in outputs(build):
        path = build.parent / "tuned" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.upper().encode())
        found[name] = path
    return found


def test_objects_are_replaced_by_their_paths_and_others_stay(build: Path, tmp_path: Path):
    command = f": && {sys.executable} linker.py foreign.o ./sub/../sub/two.o {build}/main.o -o tool && :"
    plan = planned(command, build)
    assert plan.modules == ("p/sub/two.o", "p/main.o")
    linked = link(plan, tuned(build), tmp_path / "scratch", timeout_seconds=30)
    assert not linked.reason
    assert linked.image.read_bytes() == b"foreign.oP/SUB/TWO.OP/MAIN.O"
    assert not (build / "tool").exists()


def test_a_module_without_an_object_keeps_the_one_of_the_build(build: Path, tmp_path: Path):
    plan = planned(f"{sys.executable} linker.py main.o sub/one.o -o tool", build)
    objects = tuned(build)
    del objects["p/main.o"]
    assert link(plan, objects, tmp_path / "s", timeout_seconds=30).image.read_bytes() == b"main.oP/SUB/ONE.O"


def test_placeholders_stand_for_all_modules_and_the_output(build: Path, tmp_path: Path):
    plan = planned(f"{sys.executable} linker.py {{objects}} -o {{output}}", build)
    linked = link(plan, tuned(build), tmp_path / "scratch", timeout_seconds=30)
    assert linked.image.read_bytes() == b"P/MAIN.OP/SUB/ONE.OP/SUB/TWO.O"


def test_response_files_are_read_and_dependency_files_are_not_written(build: Path):
    (build / "objects.rsp").write_text('main.o "sub/one.o"\n')
    plan = planned("ld -Wl,--dependency-file=link.d @objects.rsp -o tool", build)
    assert plan.words == ("ld", "main.o", "sub/one.o", "-o", "{output}")
    assert plan.modules == ("p/main.o", "p/sub/one.o")


@pytest.mark.skipif(not Path("/usr/bin/ar").exists(), reason="needs ar")
def test_libraries_are_found_among_the_options_of_a_linker(build: Path, tmp_path: Path):
    assert not write_archive(Path("/usr/bin/ar"), build / "liba.a", [build / "sub/one.o"], timeout_seconds=30)
    for words in ("-Wl,--whole-archive,liba.a,--no-whole-archive", "-Wl,--whole-archive -Xlinker liba.a -Wl,-s"):
        plan = planned(f"{sys.executable} linker.py main.o {words} -o tool", build)
        assert plan.modules == ("p/main.o", "p/sub/one.o")
        placed = place_objects(plan, tuned(build), tmp_path, timeout_seconds=30)
        assert "-Wl,--whole-archive" in placed
        assert not {"liba.a", "-Wl,liba.a"} & set(placed)
    # It would be another library by its whole path.
    for words in ("-Wl,--exclude-libs,liba.a,-s", "-Xlinker --exclude-libs -Xlinker liba.a"):
        assert planned(f"clang main.o {words} -o tool", build).modules == ("p/main.o",)


def test_a_library_that_an_option_names_by_its_file_name_need_not_be_there(build: Path):
    for command in ("clang main.o -Xlinker --exclude-libs -Xlinker libgone.a", "ld main.o --exclude-libs libgone.a"):
        assert planned(f"{command} -o tool", build).modules == ("p/main.o",)


def test_an_output_may_be_in_one_word_with_its_option():
    assert link_words("cc -obin/app -object a.o") == ("cc", "-o", "{output}", "-object", "a.o")
    assert link_words("ld -omagic a.o -o a") == ("ld", "-omagic", "a.o", "-o", "{output}")
    assert image_names(["cc a.o -obin/app"]) == ["app"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("clang -Wl,-Map=a.map,--gc-sections main.o", "clang -Wl,--gc-sections main.o"),
        ("clang -Wl,--icf=all,-Map,a.map,-s main.o", "clang -Wl,--icf=all,-s main.o"),
        ("clang -Wl,-Map -Wl,a.map,-s main.o", "clang -Wl,-s main.o"),
        # By CMake with clang.
        ("clang -Xlinker -Map=a.map -shared main.o", "clang -shared main.o"),
        ("clang -Xlinker -Map -Xlinker a.map -Xlinker -s main.o", "clang -Xlinker -s main.o"),
        # By CMake for MinGW: the import library would be that of the scratch image.
        ("gcc -shared -Wl,--out-implib,liba.dll.a main.o", "gcc -shared main.o"),
        ("ld.lld --Map a.map --dependency-file=a.d -s main.o", "ld.lld -s main.o"),
        ("clang -save-temps -Wl,-soname,a.so main.o", "clang -save-temps -Wl,-soname,a.so main.o"),
    ],
)
def test_only_what_writes_further_files_is_dropped_from_a_link(command: str, words: str):
    assert link_words(f"{command} -o tool") == (*words.split(), "-o", "{output}")


@pytest.mark.skipif(not Path("/usr/bin/ar").exists(), reason="needs ar")
def test_a_library_is_made_again_with_the_objects_that_it_has_of_the_build(build: Path, tmp_path: Path):
    stranger = tmp_path / "elsewhere" / "two.o"
    stranger.parent.mkdir()
    stranger.write_bytes(b"of another library")
    members = [build / "sub/one.o", build / "foreign.o", stranger]
    assert not write_archive(Path("/usr/bin/ar"), build / "liball.a", members, timeout_seconds=30)
    plan = planned(f"{sys.executable} linker.py main.o liball.a -o tool", build)
    assert plan.modules == ("p/main.o", "p/sub/one.o")
    assert not link(plan, tuned(build), tmp_path / "scratch", timeout_seconds=30).reason
    (made,) = (tmp_path / "scratch").glob("*/liball.a")
    assert [one.data() for one in read_members(made)] == [b"P/SUB/ONE.O", b"foreign.o", b"of another library"]
    assert read_members(build / "liball.a")[0].data() == b"sub/one.o"


@pytest.mark.skipif(not Path("/usr/bin/ar").exists(), reason="needs ar")
def test_a_static_library_that_is_searched_for_is_made_again_and_a_shared_one_stays(build: Path, tmp_path: Path):
    for folder in ("first", "second"):
        (build / folder).mkdir()
    library = build / "second/libparts.a"
    assert not write_archive(Path("/usr/bin/ar"), library, [build / "sub/one.o"], timeout_seconds=30)
    linker = f"{sys.executable} linker.py main.o"
    plan = planned(f"{linker} -Lfirst -L second -lparts -lm -o tool", build)
    assert plan.modules == ("p/main.o", "p/sub/one.o")
    placed = place_objects(plan, tuned(build), tmp_path, timeout_seconds=30)
    (made,) = tmp_path.glob("*/libparts.a")
    assert placed[3:] == ["-Lfirst", "-L", "second", str(made), "-lm", "-o", "{output}"]
    assert [one.data() for one in read_members(made)] == [b"P/SUB/ONE.O"]

    (build / "first/libparts.so").touch()
    for words, modules in (
        ("-lparts", ()),
        ("-static -lparts", ("p/sub/one.o",)),
        ("-Wl,-Bstatic -lparts -Wl,-Bdynamic -lm", ("p/sub/one.o",)),
        ("-Wl,-Bstatic -lm -Wl,-Bdynamic -lparts", ()),
        ("-l:libparts.a", ("p/sub/one.o",)),
    ):
        assert planned(f"{linker} -Lfirst -Lsecond {words} -o tool", build).modules == ("p/main.o", *modules)


def test_a_program_is_linked_with_the_shared_libraries_of_the_same_build(build: Path, tmp_path: Path):
    made = {name: build / name for name in ("tool", "libtwo.so.1", "libone.so", "plain.so")}
    for path in made.values():
        path.write_bytes(b"old " + path.name.encode() + b" ")
    (build / "libtwo.so").symlink_to("libtwo.so.1")
    linker = f"{sys.executable} linker.py"
    commands = {
        "tool": f"{linker} main.o -L. -ltwo libone.so plain.so -o tool",
        "libtwo.so.1": f"{linker} -Wl,-soname,libtwo.so.1 sub/two.o ./libone.so -o libtwo.so.1",
        "libone.so": f"{linker} -Wl,-soname=libone.so sub/one.o -o libone.so",
        "plain.so": f"{linker} foreign.o -o plain.so",
    }
    plans = note_shared_libraries({name: planned_any(command, build) for name, command in commands.items()}, made)
    how = Measure(plans=plans, command=(), modules=tuple(outputs(build)), timeout_seconds=30)
    assert how.waves() == [["libone.so", "plain.so"], ["libtwo.so.1"], ["tool"]]
    assert how.linked_modules({"tool"}) == set(outputs(build))
    assert how.linked_modules({"libtwo.so.1"}) == {"p/sub/two.o", "p/sub/one.o"}

    first = link_build(how, tuned(build), tmp_path / "first")
    assert not first.failures
    assert first.images["libtwo.so.1"].read_bytes() == b"P/SUB/TWO.OP/SUB/ONE.O"
    assert first.images["tool"].read_bytes() == b"P/MAIN.OP/SUB/TWO.OP/SUB/ONE.OP/SUB/ONE.Oold plain.so "
    changed = build.parent / "one.o"
    changed.write_bytes(b"1")
    second = link_build(how, {**tuned(build), "p/sub/one.o": changed}, tmp_path / "second", earlier=first)
    assert second.images["tool"].read_bytes() == b"P/MAIN.OP/SUB/TWO.O11old plain.so "


def test_a_link_of_more_objects_than_a_command_line_takes_gets_a_response_file(build: Path, tmp_path: Path):
    (build / "many.py").write_text(
        "import sys\n"
        "(name,) = [word[1:] for word in sys.argv if word[0] == '@']\n"
        "words = open(name).read().split('\\n')\n"
        "open(words[words.index('-o') + 1], 'w').write(f'{len(words)} {words[-3]} {words[-1]}')\n"
    )
    (build / "all.rsp").write_text("main.o " + f"{'./' * 500}foreign.o " * 2_200)
    plan = planned(f"{sys.executable} many.py @all.rsp 'it s.o' -o tool", build)
    linked = link(plan, tuned(build), tmp_path / "s", timeout_seconds=30, added=["-Wl,-a b"])
    assert not linked.reason
    assert linked.image.read_text() == "2205 -o '-Wl,-a b'"


def test_a_long_link_without_tuned_objects_gets_a_response_file_too(build: Path, tmp_path: Path):
    linker = build / "linker"
    linker.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "(name,) = [word[1:] for word in sys.argv[1:]]\n"
        "words = open(name).read().split('\\n')\n"
        "open(words[words.index('-o') + 1], 'w').write(str(len(words)))\n"
    )
    linker.chmod(0o755)
    words = (str(linker), *[f"{'./' * 500}foreign.o"] * 2_200, "-o", OUTPUT)
    linked = link(LinkPlan(words=words, folder=build, modules=()), {}, tmp_path / "s", timeout_seconds=30)
    assert (linked.reason, linked.image.read_text()) == ("", "2202")


def test_a_failed_link_is_a_result(build: Path, tmp_path: Path):
    failing = link(planned("false main.o -o tool", build), tuned(build), tmp_path / "a", timeout_seconds=30)
    assert failing.reason == "the link ended with 1: no message"
    silent = link(planned("true main.o -o tool", build), tuned(build), tmp_path / "b", timeout_seconds=30)
    assert silent.reason == "the link wrote no file where {output} or -o is"
    (build / "slow.py").write_text("import time; time.sleep(60)")
    slow = link(
        planned(f"{sys.executable} slow.py main.o -o t", build), tuned(build), tmp_path / "c", timeout_seconds=1
    )
    assert slow.reason == "the link did not end within 1 s"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("", "--link-command: expected a command, found an empty one"),
        ("ld 'main.o", "--link-command: expected every quotation mark to be closed"),
        ("ld main.o -o tool && strip tool", "expected one command without a shell's operators, found '&&'"),
        ("ld {objcts} -o {output}", "expected no placeholder but {objects} and {output}, found {objcts}"),
        ("ld -Wl,{objects} -o {output}", "expected {objects} as a word of its own"),
        ("ld main.o", "expected -o with the file that it writes, or {output}, found neither"),
        ("ld main.o -o a ld main.o -o b", "expected one command with one -o, found 2"),
        ("ld foreign.o -o tool", "none of the tuned modules' objects is in the command"),
        ("ld main.o libgone.a -o tool", "libgone.a, found no such file; build the project first"),
    ],
)
def test_a_command_that_cannot_serve_is_refused(build: Path, command: str, sentence: str):
    with pytest.raises(UsageError) as raised:
        planned(command, build)
    assert sentence in str(raised.value)
