"""What the dynamic linker needs for calls, held to what lld writes."""

import functools
from pathlib import Path

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.objects.object_file import Image
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

SOURCE = """
int first(int), second_of_them(int);
int own(int i) { return i + 3; }
static int hidden(int i) { return i * i + 7; }
int a(int i) { return first(i) + 1; }
int b(int i) { return first(i) + hidden(i); }
#ifdef MORE
int c(int i) { return second_of_them(i) + 1; }
int d(int i) { return own(i) + 1; }
#else
int c(int i) { return i * 5 + 1; }
int d(int i) { return i * 9 + 1; }
#endif
int (*data)(int) = first;
"""
FLAGS = ("-Oz", "-fno-inline", "-fno-optimize-sibling-calls", "-ffunction-sections", "-fPIC", "-c")
LINKS: dict[Image, tuple[str, ...]] = {"library": ("-shared",), "program": ("-pie", "--dynamic-linker=/lib/ld.so")}


@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu"])
@pytest.mark.parametrize("image", LINKS)
def test_calls_that_are_bound_later_weigh_what_the_image_gains(
    toolchain: Toolchain, request: pytest.FixtureRequest, tmp_path: Path, image: Image, target: str
):
    if not target.startswith("x86"):
        request.getfixturevalue("other_targets")
    (tmp_path / "m.c").write_text(SOURCE)
    (tmp_path / "others.c").write_text("int first(int i) { return i; }\nint second_of_them(int i) { return i; }\n")
    run = functools.partial(process.run, timeout_seconds=60, cwd=tmp_path)
    compiler = [str(toolchain.clang), f"--target={target}", *FLAGS]
    assert run([*compiler, "others.c", "-o", "others.o"]).returncode == 0
    assert run([str(toolchain.lld), "-shared", "others.o", "-o", "others.so"]).returncode == 0
    predicted: list[int] = []
    linked: list[int] = []
    for name, more in (("less", ()), ("more", ("-DMORE",))):
        link = [str(toolchain.lld), *LINKS[image], f"{name}.o", "others.so", "-e", "a", "-o", name]
        for argv in ([*compiler, *more, "m.c", "-o", f"{name}.o"], link):
            done = run(argv)
            assert done.returncode == 0, done.stderr
        plain, whole = measure_object(tmp_path / f"{name}.o"), measure_object(tmp_path / f"{name}.o", image=image)
        assert plain.totals == whole.totals
        own = (whole.function_bytes - plain.function_bytes).sum(axis=1)
        predicted.append(int(own.sum()))
        totals = file_totals(tmp_path / name)
        linked.append(totals.llvm_size_text - int(plain.function_bytes.sum()))
        # What is called by both is shared by both.
        sizes = dict(zip(whole.function_names, own.tolist(), strict=True))
        assert abs(sizes["a"] - sizes["b"]) <= 2
        assert sizes["own"] == 0
    assert predicted[0] > 0
    assert predicted[1] - predicted[0] == pytest.approx(linked[1] - linked[0], abs=16)
