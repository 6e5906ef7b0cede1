"""What a link keeps of the modules, by real linkers; and a search that counts it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.llvm.searching import INLINING_ALONE, is_smaller, tune_until

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.link import known_objects, link_words, read_link
from mlgokit.builds.measurement import Measure
from mlgokit.builds.roots import find_roots
from mlgokit.builds.site import BuildCommands
from mlgokit.commands.check import Check, run as check
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.live import dead_functions, mark_live
from mlgokit.compiler.objects.measure import ObjectSizes, measure_object
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

A = """
int other(int);
static int local(int x) { return x * x + other(x); }
int last(int x) { return x + 5; }
int once(int x) { return local(x) - last(x); }
int shared(int x) { return x * 3; }
int unused(int x) { return last(x) * local(x); }
MANY
int by_data(int x) { return x - 8; }
int (*table)(int) = by_data;
int in_a_circle(int x) { return x ? in_a_circle(x - 1) : x; }
int main(int c, char **v) { return once(c) + table(c); }
"""
B = """
int shared(int);
int other(int x) { return shared(x) + 1; }
int called_back(int x) { return x ^ 7; }
"""
# More than the end of what a linker prints that is kept of other links.
A = A.replace(
    "MANY", " ".join(f"int unused_number_{number}(int x) {{ return x + {number}; }}" for number in range(300))
)
TARGETS = ("x86_64-linux-gnu", "aarch64-linux-gnu", "thumbv7m-none-eabi", "riscv32-unknown-elf", "x86_64-w64-mingw32")


def compiled(folder: Path, toolchain: Toolchain, *words: str) -> dict[str, Path]:
    objects: dict[str, Path] = {}
    for name, text in (("a", A), ("b", B)):
        (folder / f"{name}.c").write_text(text)
        objects[name] = folder / f"{name}.o"
        command = [toolchain.clang, "-Oz", "-ffunction-sections", "-fno-inline", *words, "-c", f"{name}.c"]
        subprocess.run([*command, "-o", objects[name]], cwd=folder, check=True, timeout=60)
    return objects


def measured(objects: dict[str, Path]) -> dict[str, ObjectSizes]:
    return {name: measure_object(path, references=True) for name, path in objects.items()}


def found_roots(
    command: str, folder: Path, toolchain: Toolchain, target: str = "x86_64-linux-gnu"
) -> dict[str, frozenset[str]]:
    objects = compiled(folder, toolchain, "-fPIC" if "linux" in target else "-Oz", f"--target={target}")
    return link_roots(command, objects, folder, toolchain)


def link_roots(command: str, objects: dict[str, Path], folder: Path, toolchain: Toolchain) -> dict[str, frozenset[str]]:
    known = known_objects(objects, ["a", "b"])
    plan = read_link(link_words(command), folder=folder, known=known, toolchain=toolchain)
    how = Measure(plans={"app": plan}, command=(), modules=("a", "b"), timeout_seconds=60)
    return find_roots(how, objects, measured(objects), scratch=folder / "scratch")


@pytest.mark.parametrize("target", TARGETS)
def test_functions_are_followed_from_the_roots(tmp_path: Path, toolchain: Toolchain, target: str):
    sizes = measured(compiled(tmp_path, toolchain, f"--target={target}"))

    assert dead_in(sizes["a"], "main") == {"shared", "unused", "in_a_circle"}
    assert dead_in(sizes["a"], "shared") == {"local", "last", "once", "unused", "in_a_circle", "main"}
    assert dead_in(sizes["b"], "other") == {"called_back"}


def dead_in(sizes: ObjectSizes, *roots: str) -> set[str]:
    return {name for name in dead_functions(mark_live(sizes, roots)) if not name.startswith(("OUTLINED", "unused_"))}


def test_functions_in_one_section_stay_together(tmp_path: Path, toolchain: Toolchain):
    objects = compiled(tmp_path, toolchain, "-fno-function-sections")

    assert dead_functions(mark_live(measure_object(objects["a"], references=True), set())) == ()


@pytest.mark.parametrize("linker", ["lld", "bfd", "gold"])
def test_what_a_link_needs_of_a_module(tmp_path: Path, toolchain: Toolchain, linker: str):
    if linker != "lld" and shutil.which(f"ld.{linker}") is None:
        pytest.skip(f"needs ld.{linker}")
    chosen = f"--ld-path={toolchain.lld}" if linker == "lld" else f"-fuse-ld={linker}"
    roots = found_roots(f"{toolchain.clang} {chosen} a.o b.o -Wl,--gc-sections -o app", tmp_path, toolchain)

    assert roots == {"a": {"main", "shared"}, "b": {"other"}}


@pytest.mark.parametrize("linker", ["lld", "bfd"])
def test_what_a_link_for_windows_needs(tmp_path: Path, toolchain: Toolchain, linker: str):
    if shutil.which("x86_64-w64-mingw32-ld") is None:
        pytest.skip("needs MinGW: apt-get install mingw-w64")
    chosen = f"--ld-path={toolchain.lld}" if linker == "lld" else f"-fuse-ld={shutil.which('x86_64-w64-mingw32-ld')}"
    command = f"{toolchain.clang} --target=x86_64-w64-mingw32 {chosen} a.o b.o -Wl,--gc-sections -o app.exe"

    # GNU ld keeps functions that unwind tables describe.
    kept = {"unused"} if linker == "bfd" else set[str]()
    roots = found_roots(command, tmp_path, toolchain, "x86_64-w64-mingw32")
    assert roots == {"a": {"main", "shared", *kept}, "b": {"other"}}


def test_an_object_that_a_library_holds_in_vain_needs_nothing(tmp_path: Path, toolchain: Toolchain):
    (tmp_path / "c.c").write_text("int unused(int x) { return x; } int main(void) { return 0; }\n")
    words = [toolchain.clang, "-Oz", "-ffunction-sections", "-fPIC", "-c", "c.c", "-o", "c.o"]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    compiled(tmp_path, toolchain, "-fPIC")
    subprocess.run(["ar", "rc", "libb.a", "b.o"], cwd=tmp_path, check=True, timeout=60)
    command = f"{toolchain.clang} --ld-path={toolchain.lld} c.o libb.a -Wl,--gc-sections -o app"

    assert found_roots(command, tmp_path, toolchain) == {"b": set()}


def test_an_inline_function_is_needed_where_another_module_is(tmp_path: Path, toolchain: Toolchain):
    header = "inline __attribute__((noinline)) int both(int x) { return x + 7; }\n"
    header += "inline __attribute__((noinline)) int vain(int x) { return x + 9; }\n"
    texts = {
        "a": f"{header}int used(int); int unused(int x) {{ return vain(x); }} int dead(int x) {{ return both(x); }}\n"
        "int main() { return used(3); }\n",
        "b": f"{header}int used(int x) {{ return both(x); }}\n",
    }
    objects = {name: tmp_path / f"{name}.o" for name in texts}
    for name, text in texts.items():
        (tmp_path / f"{name}.cpp").write_text(text)
        words = [toolchain.clangxx, "-Oz", "-ffunction-sections", "-fno-inline", "-c", f"{name}.cpp", "-o", f"{name}.o"]
        subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    command = f"{toolchain.clangxx} --ld-path={toolchain.lld} a.o b.o -Wl,--gc-sections -Wl,-s -o app"
    roots = link_roots(command, objects, tmp_path, toolchain)

    assert roots == {"a": {"main", "_Z4bothi"}, "b": {"_Z4usedi"}}
    assert dead_in(measured(objects)["a"], *roots["a"]) == {"_Z6unusedi", "_Z4deadi", "_Z4vaini"}


def test_what_a_library_exports_is_needed(tmp_path: Path, toolchain: Toolchain):
    (tmp_path / "map").write_text("{ global: unused; called_back; local: *; };")
    command = f"{toolchain.clang} --ld-path={toolchain.lld} a.o b.o -shared -Wl,--gc-sections -Wl,--version-script=map"
    roots = found_roots(f"{command} -o app.so", tmp_path, toolchain)

    assert roots == {"a": {"unused", "shared"}, "b": {"called_back", "other"}}


def test_a_link_that_discards_nothing_needs_everything(tmp_path: Path, toolchain: Toolchain):
    command = f"{toolchain.clang} --ld-path={toolchain.lld} a.o b.o"

    assert found_roots(f"{command} -o app", tmp_path, toolchain) == {}
    assert found_roots(f"{command} -Wl,--no-such-option -Wl,--gc-sections -o app", tmp_path, toolchain) == {}


STEP = """
int stepN(int x) {
  int sum = N;
  for (int i = 0; i < x; ++i) { sum += port * N; if (sum > 100) sum -= port; }
  return sum;
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program whose functions are all called once, and all external."""
    folder = tmp_path / "steps"
    folder.mkdir()
    steps = "".join(STEP.replace("N", str(number)) for number in range(1, 7))
    calls = " + ".join(f"step{number}(c)" for number in range(1, 6))
    (folder / "app.c").write_text(f"volatile int port;\n{steps}int main(int c, char **v) {{ return {calls}; }}\n")
    (folder / "Makefile").write_text(
        "app: app.o\n\t$(CC) app.o -Wl,--gc-sections -o app\napp.o: app.c\n\t$(CC) -Oz -ffunction-sections -c app.c\n"
    )
    return folder


def test_a_search_counts_what_the_link_keeps(project: Path, toolchain: Toolchain):
    given = Tune(
        built=BuildCommands(build=("make",), build_folder=project),
        budget="0.5s",
        output=project.parent / "tuned.so",
        folder=project.parent / "tune",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        **INLINING_ALONE,
    )
    tuned = tune_until(is_smaller, given)

    assert tuned.built is not None
    (program,) = tuned.built.programs
    # Calls and unwind tables of functions that were inlined, while the object becomes larger by their bodies.
    assert program.plain.image - program.tuned.image >= tuned.plain_bytes - tuned.tuned_bytes > 0
    plain = measure_object(compile_app(project, toolchain), references=True)
    assert tuned.plain_bytes < plain.llvm_size_text

    found = check(Check(plugin=Path(tuned.plugin), built=given.built, compiler=given.compiler))
    assert not found.tune_again


def compile_app(project: Path, toolchain: Toolchain) -> Path:
    command = [toolchain.clang, "-Oz", "-ffunction-sections", "-c", "app.c", "-o", "plain.o"]
    subprocess.run(command, cwd=project, check=True, timeout=60)
    return project / "plain.o"
