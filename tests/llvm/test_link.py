"""Links by a real lld: what is merged, dropped and kept, and that any code model links against nothing."""

from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import measure_object, project_image_estimate
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

SHARED = """
void sink(int);
template <class T> __attribute__((noinline)) T shared(T x) {
  for (int i = 0; i < x; ++i) { sink(i); sink(i * 3); sink(x - i); }
  return x;
}
__attribute__((used)) static int dead(int x) { sink(x); sink(x + 1); return 3; }
"""
FIRST = SHARED + "int first(int x) { return shared(x) + 1; } extern int table[4]; int table[4] = {1, 2, 3, 4};"
SECOND = SHARED + "int second(int x) { return shared(x) * 2; } int third(int x) { return shared(x) * 2; }"
STRANGE = """
extern thread_local int outside; extern __thread int plain; thread_local int own;
extern __thread int initial __attribute__((tls_model("initial-exec")));
int undefined_function(int); extern int undefined_variable; extern "C" int weak() __attribute__((weak));
int threads() { return outside + plain + own + initial; }
int calls(int x) { return undefined_function(x) + undefined_variable + (weak ? weak() : 0); }
int (*pointers[])(int) = {undefined_function, calls};
"""


def compile_source(toolchain: Toolchain, output: Path, source: str, *flags: str) -> Path:
    path = output.with_suffix(".cc")
    path.write_text(source)
    words = ["-Oz", "-std=c++17", "-w", "-ffunction-sections", "-fdata-sections", *flags]
    completed = process.run([toolchain.clangxx, *words, "-c", path, "-o", output], timeout_seconds=60)
    assert completed.returncode == 0, completed.stderr
    return output


def link(
    toolchain: Toolchain, objects: list[Path], *, roots: tuple[str, ...] | None = None, icf: bool = False
) -> LinkedImage:
    if toolchain.lld is None:
        pytest.skip(f"no lld {toolchain.major}")
    image = link_image(
        objects,
        objects[0].with_suffix(".image"),
        roots=link_roots(objects) if roots is None else roots,
        lld=toolchain.lld,
        timeout_seconds=60,
        icf=icf,
    )
    assert image.status is LinkStatus.LINKED, image.stderr
    assert image.image == image.text + image.rodata + image.eh_frame
    return image


@pytest.fixture
def objects(toolchain: Toolchain, tmp_path: Path) -> list[Path]:
    return [
        compile_source(toolchain, tmp_path / f"{name}.o", source, "--target=x86_64-linux-gnu")
        for name, source in (("first", FIRST), ("second", SECOND))
    ]


def test_roots_are_the_strong_definitions(objects: list[Path]):
    assert link_roots(objects) == ("_Z5firsti", "_Z5thirdi", "_Z6secondi", "table")


def test_comdat_code_is_once_in_the_image(toolchain: Toolchain, objects: list[Path]):
    sizes = [measure_object(path) for path in objects]
    bytes_of = dict(zip(sizes[0].function_names, sizes[0].function_text.tolist(), strict=True))
    kept = sum(each.totals.text for each in sizes) - bytes_of["_Z6sharedIiET_S0_"] - 2 * bytes_of["_ZL4deadi"]
    image = link(toolchain, objects)
    # Each of the four functions may be padded.
    assert 0 <= image.text - kept < 4 * 16
    assert image.image < project_image_estimate(sizes)


def test_what_no_root_reaches_is_dropped(toolchain: Toolchain, objects: list[Path]):
    whole, half = link(toolchain, objects), link(toolchain, objects, roots=("_Z5firsti",))
    assert half.text < whole.text
    assert half.eh_frame < whole.eh_frame


def test_two_links_give_the_same_sizes(toolchain: Toolchain, objects: list[Path]):
    assert link(toolchain, objects) == link(toolchain, objects)


def test_folding_makes_identical_functions_one(toolchain: Toolchain, objects: list[Path]):
    assert link(toolchain, objects, icf=True).text < link(toolchain, objects).text


def test_several_mains_link(toolchain: Toolchain, tmp_path: Path):
    sources = ["int main() { return 1; } int a() { return 2; }", "int main() { return 3; } int b() { return 4; }"]
    objects = [compile_source(toolchain, tmp_path / f"{n}.o", source) for n, source in enumerate(sources)]
    assert link(toolchain, objects).text > 0


@pytest.mark.parametrize(
    "target",
    [
        "x86_64-linux-gnu",
        "aarch64-linux-gnu",
        "armv7a-linux-gnueabihf",
        "thumbv6m-none-eabi",
        "i386-linux-gnu",
        "riscv32-unknown-elf",
    ],
)
@pytest.mark.parametrize("model", ["-fPIC", "-fPIE", "-fno-pie", "-fno-plt"])
def test_undefined_symbols_of_any_kind_link_in_any_code_model(
    toolchain: Toolchain, tmp_path: Path, target: str, model: str
):
    path = compile_source(toolchain, tmp_path / "strange.o", STRANGE, f"--target={target}", model)
    image = link(toolchain, [path])
    assert image.stderr == ""
    assert image.text > 0


def test_a_damaged_object_is_a_failed_link(toolchain: Toolchain, tmp_path: Path, objects: list[Path]):
    assert toolchain.lld is not None
    objects[1].write_bytes(objects[1].read_bytes()[:200])
    image = link_image(objects, tmp_path / "image", roots=(), lld=toolchain.lld, timeout_seconds=60)
    assert image.status is LinkStatus.FAILED
    assert "second.o" in image.stderr
