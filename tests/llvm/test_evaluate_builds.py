"""A real build both ways: by its own command, and by its compile and link commands; with link-time optimization too."""

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.images import weigh_image
from mlgokit.commands.evaluate import Evaluate, exit_code, run
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.evaluation.records import Evaluation

pytestmark = pytest.mark.llvm

FILES = {
    "parts.h": "int work(int, const int *);\nint spare(int, const int *);\nextern int table[64];\n",
    "part.c": """
#include "parts.h"
#ifdef BREAK
#error broken on purpose
#endif
int table[64];
static int mix(int x, int y) {
  int s = x;
  for (int i = 0; i < 5; ++i) s = (s << 3) ^ (s >> 2) ^ (y * 31 + i);
  return s;
}
int work(int x, const int *p) { return mix(x, p[0]) + mix(p[1], x) * mix(p[2], p[3]); }
int spare(int x, const int *p) { return mix(x, p[5]) - mix(p[1], x); }
""",
    "main.c": """
#include "parts.h"
#include <stdio.h>
int main(int argc, char **argv) {
  int s = 0;
  for (int i = 0; i < argc; ++i) s += work(i, table) + work(s, table + 4) + spare(i, table + 1) + spare(s, table);
  printf("%d\\n", s);
  return 0;
}
""",
    "start.S": ".globl nothing\nnothing:\n\tret\n",
    # As in the wild: a link of its own, folded, with what is not needed dropped; assembly beside C.
    "Makefile": """
CFLAGS = -Oz -ffunction-sections -fdata-sections $(LTO)
tool: main.o part.o start.o
\t$(CC) $(CFLAGS) -fuse-ld=lld -Wl,--gc-sections -Wl,--icf=all $^ -o $@
main.o part.o: parts.h
start.o: start.S
\t$(CC) -Werror -c $< -o $@
""",
}
KINDS = {"": "", "full": "-flto", "thin": "-flto=thin"}
Evaluated = Callable[..., tuple[Evaluation, int]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def evaluated(project: Path, toolchain: Toolchain) -> Evaluated:
    def evaluate(**given: Any) -> tuple[Evaluation, int]:
        compiler = CompilerOptions(llvm=toolchain.major, workers=2)
        facts: dict[str, Any] = {"folder": project} if "build" in given else {}
        config = Evaluate(compiler=compiler, **(facts | given))
        found = run(config)
        return found, exit_code(config, found)

    return evaluate


def by_hand(project: Path, toolchain: Toolchain, lto: str, where: Path, **settings: str) -> Path:
    """The tool as a shell would build it, with further words for the compiler or the linker."""
    shutil.copytree(project, where)
    programs = where / "bin"
    programs.mkdir()
    assert toolchain.lld is not None
    (programs / "ld.lld").symlink_to(toolchain.lld)
    environment = os.environ | settings | {"PATH": f"{programs}:{os.environ['PATH']}"}
    extra = environment.pop("EXTRA", "")
    words = f"-Oz -ffunction-sections -fdata-sections {lto}".split()
    for name in ("main", "part"):
        argv = [toolchain.clang, *words, *shlex.split(extra), "-c", f"{name}.c", "-o", f"{name}.o"]
        done = process.run(argv, timeout_seconds=60, cwd=where, env=environment)
        assert done.returncode == 0, done.stderr
    script = f"{toolchain.clang} -Werror -c start.S -o start.o && {toolchain.clang} {shlex.join(words)} -fuse-ld=lld"
    script += f" -Wl,--gc-sections -Wl,--icf=all main.o part.o start.o -o tool {environment.pop('LINK', '')}"
    done = process.run(["sh", "-c", script], timeout_seconds=60, cwd=where, env=environment)
    assert done.returncode == 0, done.stderr
    return where / "tool"


def counted(toolchain: Toolchain, path: Path) -> int:
    """What llvm-size and awk say."""
    size = toolchain.clang.resolve().parent / "llvm-size"
    done = process.run(["sh", "-c", f"{size} {path} | awk 'NR == 2 {{ print $1 }}'"], timeout_seconds=60)
    return int(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_those_that_a_shell_builds(
    project: Path, toolchain: Toolchain, plugin: Path, evaluated: Evaluated, tmp_path: Path, kind: str
):
    lto = KINDS[kind]
    found, code = evaluated(policy=(":always",), build=(f"make -j2 LTO={lto}",))

    plain = by_hand(project, toolchain, lto, tmp_path / "plain")
    judged = by_hand(
        project, toolchain, lto, tmp_path / "judged", EXTRA=f"-fpass-plugin={plugin}", MLGOKIT_POLICY=":always"
    )
    (one,) = found.projects
    (image,) = one.images
    assert (image.image, image.before.lto, image.after.lto) == ("tool", kind, kind)
    assert image.before.sha256 == weigh_image(plain).row.sha256
    assert image.after.sha256 == weigh_image(judged).row.sha256
    assert image.after.sha256 != image.before.sha256
    for row, tool in ((image.before, plain), (image.after, judged)):
        assert row.image == counted(toolchain, tool)
    if not kind:
        assert {row.module: row.before.objects for row in one.module_rows} == {
            name: counted(toolchain, plain.with_name(name)) for name in ("main.o", "part.o")
        }
        assert one.after.objects == sum(counted(toolchain, judged.with_name(name)) for name in ("main.o", "part.o"))
    assert sorted(row.module for row in one.module_rows) == ["main.o", "part.o"]
    assert {row.after.status for row in one.module_rows} == {"bitcode" if kind else "ok"}
    assert {(row.before.plugin, row.after.plugin) for row in one.module_rows} == {(False, True)}
    assert not image.after.plugin
    assert any(function.function in {"work", "main"} for function in image.differing)
    # Everything inlined is larger here, with and without link-time optimization.
    assert one.after.image > one.before.image
    assert found.verdict is not None
    assert not found.verdict.ship
    assert code == 1
    assert "Linked image grows by more than 0.3 % in project +" in found.verdict.sentence


def test_sources_that_are_in_no_link_are_told_of(toolchain: Toolchain, tmp_path: Path):
    entries = list[dict[str, str]]()
    for name, text in (("tool", "int main(void) { return 0; }\n"), ("other", "int other;\n")):
        (tmp_path / f"{name}.c").write_text(text)
        command = f"clang -Oz -c {name}.c -o {name}.o"
        entries.append({"directory": str(tmp_path), "file": f"{name}.c", "command": command})
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    config = Evaluate(
        plain=True,
        compile_commands=tmp_path / "compile_commands.json",
        link_command=(f"{toolchain.clang} tool.o -o tool",),
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    said = list[str]()
    run(config, report=lambda _done, _total, label: said.append(label))
    assert "1 of 2 sources of the database are in none of the links" in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_builds_own_commands_give_the_same_images(
    project: Path, toolchain: Toolchain, evaluated: Evaluated, kind: str
):
    words = f"-Oz -ffunction-sections -fdata-sections {KINDS[kind]}"
    entries = [
        {
            "directory": str(project),
            "file": f"{name}.c",
            "command": f"clang {words} -c {name}.c -o {name}.o",
            "output": f"{name}.o",
        }
        for name in ("main", "part")
    ]
    (project / "compile_commands.json").write_text(json.dumps(entries))
    done = process.run([toolchain.clang, "-c", "start.S", "-o", "start.o"], timeout_seconds=60, cwd=project)
    assert done.returncode == 0
    link = f"{toolchain.clang} {words} -fuse-ld=lld -Wl,--gc-sections -Wl,--icf=all main.o part.o start.o -o tool"
    given = {"policy": (":always",), "plugin_in": "both" if kind else "compile"}
    links = (link, f"{link}-exported -Wl,--export-dynamic")
    database = project / "compile_commands.json"
    commands, _ = evaluated(compile_commands=database, link_command=links, costs="yes", **given)
    built, _ = evaluated(build=(f"make LTO={KINDS[kind]}",), **given)

    (first, exported), (second,) = (one.projects[0].images for one in (commands, built))
    assert (first.image, exported.image) == ("tool", "tool-exported")
    assert exported.before.image > first.before.image
    # Register allocation is where the code is generated.
    costs = commands.projects[0].costs
    assert costs is not None
    assert costs.functions > 0
    assert any(function.after and function.after.cost for function in first.differing) is bool(kind)
    assert costs.unread == ""
    assert (first.before.lto, first.after.plugin) == (kind, bool(kind))
    for side in ("before", "after"):
        here, there = getattr(first, side), getattr(second, side)
        assert (here.text, here.rodata, here.eh_frame) == (there.text, there.rodata, there.eh_frame)
        assert here.image > 0
    assert first.before.image != first.after.image


def test_the_linker_has_the_plugin_where_asked(
    project: Path, toolchain: Toolchain, plugin: Path, evaluated: Evaluated, tmp_path: Path
):
    found, _ = evaluated(policy=(":never",), plugin_in="link", build=("make LTO=-flto",))
    judged = by_hand(
        project, toolchain, "-flto", tmp_path / "judged",
        LINK=f"-Wl,--load-pass-plugin={plugin}", MLGOKIT_POLICY=":never",
    )  # fmt: skip

    (one,) = found.projects
    assert one.images[0].after.sha256 == weigh_image(judged).row.sha256
    assert (one.images[0].before.plugin, one.images[0].after.plugin) == (False, True)
    assert not any(row.after.plugin for row in one.module_rows)
    assert found.after.plugin_in == "link"


@pytest.mark.parametrize("kind", ["", "full"])
def test_a_plain_build_against_itself_has_no_difference(evaluated: Evaluated, kind: str):
    found, code = evaluated(plain=True, costs="yes", build=(f"make LTO={KINDS[kind]}",))

    (one,) = found.projects
    assert one.images[0].before.sha256 == one.images[0].after.sha256
    assert not any(row.differing for row in one.module_rows)
    assert {change.mean for change in found.overall.values()} == {0.0}
    assert one.costs is not None
    assert one.costs.unread == ""
    assert ("cost" in found.overall) is (one.costs.functions > 0)
    assert code == 1


def test_a_compilation_that_fails_on_one_side_is_a_row_and_no_ship(evaluated: Evaluated):
    found, code = evaluated(options="-DBREAK", build=("make -k",))

    (one,) = found.projects
    rows = {row.module: row for row in one.module_rows}
    assert (rows["part.o"].before.status, rows["part.o"].after.status) == ("ok", "failed")
    assert "broken on purpose" in rows["part.o"].after.reason
    assert (rows["main.o"].before.status, rows["main.o"].after.status) == ("ok", "ok")
    assert (one.images[0].before.status, one.images[0].after.status) == ("linked", "absent")
    assert one.link_failure.startswith("after: make -k ended with 2: ")
    assert found.verdict is not None
    assert "part.o: " in found.verdict.reasons[0]
    assert code == 1


def test_a_build_without_compilers_is_refused(evaluated: Evaluated, project: Path):
    with pytest.raises(UsageError, match=r"^--build: expected calls of clang, cc, c\+\+ or the like by way of PATH, "):
        evaluated(plain=True, build=("true",))
    (project / "tool").write_text("there")
    with pytest.raises(UsageError, match=r"^--images: expected patterns of files that the build makes, .* for nothing"):
        evaluated(plain=True, build=("make",), images=(f"{project}/nothing*",))


def test_compilers_past_the_wrappers_are_told_of(evaluated: Evaluated, toolchain: Toolchain):
    past = f"env -i PATH=/usr/bin:/bin make CC={toolchain.clang}"
    with pytest.raises(
        UsageError,
        match=r"^--build: no wrapped compiler was called, but 2 objects were made, such as main.o by .*clang .*; "
        "start compilers by name",
    ):
        evaluated(policy=(":always",), build=(past,))
    found, _ = evaluated(policy=(":always",), build=(f"{past} part.o", f"make CC={toolchain.clang}"))

    rows = {row.module: row for row in found.projects[0].module_rows}
    assert {name: (row.before.status, row.after.status) for name, row in rows.items()} == {
        "main.o": ("ok", "ok"),
        "part.o": ("passed_by", "passed_by"),
    }
    assert "made it and bypassed the wrappers" in rows["part.o"].after.reason


def test_objects_that_the_build_removes_are_told_of(evaluated: Evaluated):
    found, _ = evaluated(policy=(":always",), build=("sh -c 'cc -Oz -c part.c && rm part.o; cc -Oz -c main.c'",))

    rows = {row.module: row for row in found.projects[0].module_rows}
    assert {name: row.after.status for name, row in rows.items()} == {"main.o": "ok", "part.o": "left_out"}
    assert rows["part.o"].after.reason == "the build has removed the object, so that it cannot be measured"


def test_options_of_the_link_are_a_side_and_the_folder_stays_as_it_was(evaluated: Evaluated, project: Path):
    before = sorted(path.name for path in project.iterdir())
    found, _ = evaluated(link_options="-Wl,--icf=none -Wl,--no-gc-sections", build=("make",), images=("to*",))

    (one,) = found.projects
    assert one.images[0].after.text > one.images[0].before.text
    assert found.after.label == "-Wl,--icf=none -Wl,--no-gc-sections"
    assert sorted(path.name for path in project.iterdir()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_build_of_its_own_command_has_call_trees(evaluated: Evaluated, tmp_path: Path, kind: str):
    found, _ = evaluated(policy=(":always",), build=(f"make LTO={KINDS[kind]}",), output=tmp_path / "found.json")
    if kind:
        assert (found.trees, found.no_trees) == ((), "no object of the build holds a function that differs")
        return
    assert found.no_trees == ""
    (project,) = found.projects
    modules = {one.function: row.module for row in project.module_rows for one in row.differing}
    assert {one.function: one.module for one in found.trees} == modules
    for one in found.trees:
        assert one.failure == ""
        assert one.growth == (one.after or 0) - (one.before or 0) != 0
        assert "mix" in {one.function, *(line.site.callee for line in one.lines)}
