"""Objects and programs of other formats than ELF: measured as LLVM measures them, tuned, and run."""

import dataclasses
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.test_size import check_totals

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.site import BuildCommands
from mlgokit.commands import check, evaluate, tune
from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals, read_object
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import ADVISED_MAJOR, Toolchain
from mlgokit.errors import InputError

pytestmark = pytest.mark.llvm

CODE = """
template <int N> struct Scaled { __attribute__((noinline)) int by(int x) const { return x * N + N / 3; } };
struct Shape { virtual int area(int) const; int size; };
int Shape::area(int x) const { return x * size; }
const int table[] = {3, 1, 4, 1, 5, 9, 2, 6};
int written[4] = {1, 2, 3, 4};
int zero[100];
extern int outside(int);
static int choose(int x) {
  switch (x) { case 1: return outside(3); case 2: return 70; case 3: return 14; case 4: return x * outside(x);
               case 5: return 92; case 6: return outside(65); case 7: return 35; default: return zero[x & 7]; }
}
int first(int x) { return Scaled<3>().by(x) + table[x & 7] + choose(x); }
int second(int x) { written[x & 3] = x; return first(x) + Scaled<7>().by(x); }
"""
PROGRAM = {
    "part.h": """
static inline int score(const char *s, int n) { int r = 7; for (int i = 0; i < n; i++) r = r * 31 + s[i]; return r; }
static inline int within(int x, int low, int high) { return x < low ? low : x > high ? high : x * 2 - low; }
int apply(const char *s, int n); int mix(int a, int b);
""",
    "part.c": """
#include "part.h"
static int step(int a, int b) { return within(a ^ b, -100, 99) + within(a - b, 3, 9) + score((const char *)&a, 4); }
int apply(const char *s, int n) { return step(score(s, n), n) + step(n, n + 1) + within(score(s, n / 2), 0, 77); }
int mix(int a, int b) { return step(a, b) * step(b, a) + step(a + 1, b) + within(b, a, a + 9); }
""",
    "main.c": """
#include "part.h"
int printf(const char *, ...);
int main(void) {
  int sum = 0;
  for (int i = 0; i < 20; i++) sum += mix(i, within(i, 1, 5)) ^ (apply("hello", 5) + mix(i, sum));
  printf("%d\\n", sum);
  return 0;
}
""",
    "Makefile": """
app: main.o part.o
\t$(CC) $(TARGET) -Oz main.o part.o $(LINK) -o app
%.o: %.c part.h
\t$(CC) $(TARGET) -Oz -ffunction-sections $(CFLAGS) -c $< -o $@
""",
}
SYSTEM = """--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '/usr/lib/libSystem.B.dylib'
exports:
  - targets: [ arm64-macos ]
    symbols: [ _printf ]
...
"""
"""Of the system's library of macOS what the program uses: enough to be linked, not to be run."""
RUN_WASM = """
import { WASI } from 'node:wasi'; import { readFileSync } from 'node:fs';
const wasi = new WASI({ version: 'preview1', args: ['app'], env: {} });
const module = new WebAssembly.Module(readFileSync(process.argv[2]));
process.exit(wasi.start(new WebAssembly.Instance(module, wasi.getImportObject())));
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A target whose objects are not ELF.

    Attributes:
        target: its triple.
        link: options of the link of a program.
        needs: a file of the C library without which nothing is linked.
        package: the package that has it.
        runner: the program that runs its programs; none if they are not run.
    """

    target: str
    link: str = ""
    needs: Path = Path("/")
    package: str = ""
    runner: str = ""

    def command(self, program: Path) -> list[str | Path]:
        """What runs a program."""
        if self.runner == "node":
            script = program.with_name("run.mjs")
            script.write_text(RUN_WASM)
            return ["node", "--no-warnings", script, program]
        return [self.runner, program]


PLATFORMS = {
    "wasm": Platform(
        target="wasm32-unknown-wasi",
        link="-Wl,--strip-all",
        needs=Path("/usr/lib/wasm32-wasi/libc.a"),
        package="wasi-libc",
        runner="node",
    ),
    "COFF": Platform(
        target="x86_64-w64-mingw32",
        link="-fuse-ld=lld -static -s -Wl,--gc-sections -Wl,--icf=all",
        needs=Path("/usr/x86_64-w64-mingw32/lib/libmingw32.a"),
        package="gcc-mingw-w64-x86-64-posix",
        runner="wine",
    ),
    "Mach-O": Platform(
        target="arm64-apple-macos13", link="-fuse-ld=lld -isysroot sdk -Wl,-dead_strip -Wl,-adhoc_codesign"
    ),
}
OTHERS = pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)


def run(*words: str | Path, cwd: Path | None = None) -> bytes:
    done = process.run(words, timeout_seconds=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tool(toolchain: Toolchain, name: str) -> Path:
    found = toolchain.find_tool(name)
    if found is None:
        pytest.skip(f"LLVM {toolchain.major}: there is no {name}")
    return found


def compiled(toolchain: Toolchain, platform: Platform, output: Path, text: str = CODE) -> Path:
    """An object of C++."""
    source = output.with_suffix(".cpp")
    source.write_text(text)
    words = (f"--target={platform.target}", "-Oz", "-ffunction-sections", "-fdata-sections")
    run(toolchain.clangxx, *words, "-c", source, "-o", output)
    return output


def listed_sizes(toolchain: Toolchain, path: Path) -> dict[str, int]:
    """Bytes of sections by name, as ``llvm-size -A`` lists them."""
    sizes: dict[str, int] = {}
    for line in run(tool(toolchain, "llvm-size"), "-A", path).decode().splitlines()[2:]:
        words = line.split()
        if len(words) == 3 and words[0] != "section":
            sizes[words[0]] = sizes.get(words[0], 0) + int(words[1])
    return sizes


def expect_library(platform: Platform) -> None:
    """Skip where a C library for the target is not installed."""
    if not platform.needs.exists():
        pytest.skip(f"{platform.target}: expected {platform.needs}, found none; apt-get install {platform.package}")


@pytest.mark.every_major
@OTHERS
def test_every_byte_of_an_object_has_one_owner(toolchain: Toolchain, targets: str, tmp_path: Path, platform: Platform):
    if "wasm32" not in targets:
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")
    path = compiled(toolchain, platform, tmp_path / "code.o")
    sizes = measure_object(path)
    assert sizes.totals == file_totals(path)
    assert int(sizes.function_bytes.sum() + sizes.signature_rest.sum() + sizes.rest.sum()) == sizes.llvm_size_text
    shared = {"ZNK6ScaledILi3EE2byEi", "ZNK6ScaledILi7EE2byEi"}
    assert {name.lstrip("_") for name in sizes.signatures} >= shared
    strong = {name.lstrip("_") for name in link_roots([path])}
    assert strong >= {"Z5firsti", "Z6secondi", "ZNK5Shape4areaEi"}
    assert strong.isdisjoint(shared)
    assert {name.lstrip("_") for name in sizes.function_names} >= {"Z5firsti", *shared}


@OTHERS
def test_a_damaged_file_is_refused_or_read_without_other_errors(
    toolchain: Toolchain, targets: str, tmp_path: Path, platform: Platform
):
    if "wasm32" not in targets:
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")
    whole = compiled(toolchain, platform, tmp_path / "code.o").read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for place in rng.integers(0, len(whole), 60).tolist():
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        for data in (whole[:place], bytes(changed)):
            try:
                measure_object(data, references=True)
                link_roots([data])
                read_object(data).layout()
            except InputError:
                refused += 1
    assert refused >= 50


# Numbers of sections change their form behind 32,767 and 65,279; so many take the assembler some seconds.
@pytest.mark.parametrize("count", [32_800, 65_300])
def test_functions_of_coff_objects_with_very_many_sections_are_all_found(
    toolchain: Toolchain, targets: str, tmp_path: Path, count: int
):
    if "wasm32" not in targets:
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")
    source, output = tmp_path / "many.s", tmp_path / "many.o"
    source.write_text(
        ".macro function\n"
        '.section .text$f\\@,"xr",discard,f\\@\n'
        ".def f\\@; .scl 2; .type 32; .endef\n"
        ".globl f\\@\n"
        "f\\@: ret\n"
        ".endm\n"
        f".rept {count}\nfunction\n.endr\n"
    )
    run(toolchain.clang, f"--target={PLATFORMS['COFF'].target}", "-c", source, "-o", output)
    sizes = measure_object(output)
    assert (sizes.totals.text, int(sizes.function_text.sum()), int(sizes.rest.sum())) == (count, count, 0)
    assert len(sizes.function_names) == len(sizes.signatures) == len(set(sizes.function_signature.tolist())) == count
    assert len(read_object(output).layout().names) == count


def test_functions_of_wasm_have_the_sizes_that_llvm_names(toolchain: Toolchain, targets: str, tmp_path: Path):
    if "wasm32" not in targets:
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")
    path = compiled(toolchain, PLATFORMS["wasm"], tmp_path / "code.o")
    sizes, sections = measure_object(path), listed_sizes(toolchain, path)
    named = run(tool(toolchain, "llvm-nm"), "--print-size", "--defined-only", path).decode().splitlines()
    functions = {words[3]: int(words[1], 16) for words in map(str.split, named) if words[2].lower() in "tw"}
    assert dict(zip(sizes.function_names, sizes.function_text.tolist(), strict=True)) == functions
    assert sizes.totals.text == sections["CODE"]
    assert sizes.totals.data + sizes.totals.bss == 16 + 400


@pytest.fixture
def project(toolchain: Toolchain, tmp_path: Path) -> Path:
    """The sources of a program, with a Makefile."""
    if toolchain.major != ADVISED_MAJOR:
        pytest.skip(f"the C libraries for other targets are installed for LLVM {ADVISED_MAJOR}")
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in PROGRAM.items():
        (folder / name).write_text(text)
    library = folder / "sdk/usr/lib/libSystem.tbd"
    library.parent.mkdir(parents=True)
    library.write_text(SYSTEM)
    return folder


def made_program(toolchain: Toolchain, project: Path, name: str, make: str, flags: str) -> Path:
    """The program as a user builds it with these flags, in a folder of its own."""
    folder = project.with_name(name)
    shutil.copytree(project, folder)
    run("sh", "-c", f"{make} CC={toolchain.clang} CFLAGS='{flags}'", cwd=folder)
    program = next(path for path in (folder / "app", folder / "app.exe") if path.exists())
    assert read_object(program).is_image
    return program


def expect_the_same(platform: Platform, one: Path, other: Path) -> None:
    """Both programs print the same, or nothing runs them here, which is said."""
    if platform.runner and shutil.which(platform.runner) is None:
        warnings.warn(f"{platform.target}: there is no {platform.runner}, so sizes alone are compared", stacklevel=1)
    elif platform.runner:
        assert run(*platform.command(one)) == run(*platform.command(other)) != b""


@OTHERS
def test_two_builds_of_a_program_are_compared(
    toolchain: Toolchain, plugin: Path, project: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    """A build is made four times, and two programs are run: several seconds."""
    expect_library(platform)
    make = f"make TARGET='--target={platform.target}' LINK='{platform.link}'"
    judged = evaluate.run(
        evaluate.Evaluate(
            policy=("inline-size=:never",),
            build=(make,),
            folder=project,
            compiler=CompilerOptions(llvm=toolchain.major, workers=2),
        )
    )
    (image,) = (image for one in judged.projects for image in one.images)
    plain = made_program(toolchain, project, "plain", make, "")
    monkeypatch.setenv("MLGOKIT_POLICY", ":never")
    never = made_program(toolchain, project, "never", make, f"-fpass-plugin={plugin}")
    assert image.before.image == file_totals(plain).llvm_size_text
    assert image.after.image == file_totals(never).llvm_size_text != image.before.image
    expect_the_same(platform, plain, never)


@pytest.mark.slow
@OTHERS
def test_a_program_is_tuned_on_its_link_and_does_the_same(
    toolchain: Toolchain, project: Path, tmp_path: Path, platform: Platform
):
    """The promise is what the user's own link gives, and what was tuned still applies."""
    expect_library(platform)
    make = f"make TARGET='--target={platform.target}' LINK='{platform.link}'"
    built = BuildCommands(build=(make,), build_folder=project)
    compiler = CompilerOptions(llvm=toolchain.major, workers=2)
    config = tune.Tune(
        built=built,
        budget="0.5s",
        objective="linked",
        output=tmp_path / "tuned.so",
        folder=tmp_path / "tune",
        compiler=compiler,
    )
    found = tune.run(config)

    assert found.judged is not None
    assert found.built is not None
    # For WebAssembly nothing is searched that only forks of the code generator can try.
    assert {found.allocated is None, found.passes is None} == {"wasm32" in platform.target}
    (program,) = found.built.programs
    promised = (program.plain.image, program.tuned.image)
    assert promised == (found.judged.before, found.judged.after)
    assert program.tuned.image < program.plain.image
    made = [
        made_program(toolchain, project, name, make, flags) for name, flags in (("plain", ""), ("tuned", found.flag))
    ]
    assert tuple(file_totals(path).llvm_size_text for path in made) == promised
    expect_the_same(platform, *made)

    judged = evaluate.run(
        evaluate.Evaluate(plugin=tmp_path / "tuned.so", build=(make,), folder=project, compiler=compiler)
    )
    (image,) = (image for one in judged.projects for image in one.images)
    assert (image.before.image, image.after.image) == promised
    shipped = evaluate.run(evaluate.Evaluate(policy=("builtin:Oz",), build=(make,), folder=project, compiler=compiler))
    assert any("for wasm32, to LLVM" in sentence for sentence in shipped.left_alone) == ("wasm32" in platform.target)
    kept = check.run(check.Check(plugin=tmp_path / "tuned.so", built=built, compiler=compiler))
    assert kept.built is not None
    assert [one.tuned.image for one in kept.built.programs] == [program.tuned.image]


@OTHERS
def test_a_corpus_is_linked_without_a_link_command(
    toolchain: Toolchain, targets: str, tmp_path: Path, platform: Platform
):
    if "wasm32" not in targets:
        pytest.skip(f"LLVM {toolchain.major}: {toolchain.clang} generates code for its own processor alone")
    if toolchain.lld is None:
        pytest.skip(f"no lld {toolchain.major}")
    other = "template <int N> struct Scaled { int by(int x) const { return x * N + N / 3; } };\n"
    other += (
        "static int dead(int x) { return x; }\nint third(int x) { return Scaled<3>().by(x) * Scaled<9>().by(x); }\n"
    )
    objects = [
        compiled(toolchain, platform, tmp_path / "code.o"),
        compiled(toolchain, platform, tmp_path / "other.o", other),
    ]
    roots = link_roots(objects)
    whole = link_image(objects, tmp_path / "whole", roots=roots, lld=toolchain.lld, timeout_seconds=60)
    assert whole.status is LinkStatus.LINKED, whole.stderr
    few = link_image(objects, tmp_path / "few", roots=roots[:1], lld=toolchain.lld, timeout_seconds=60)
    assert 0 < few.text < whole.text
    assert whole.image == whole.text + whole.rodata + whole.eh_frame
    assert check_totals(toolchain, tmp_path / "whole").sections
