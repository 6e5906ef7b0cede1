"""Commands of the README and of how-tos, run word for word in a small project that is built in several ways."""

import os
import re
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
from tests.llvm.small_calls import source_of_calls

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain
from mlgokit.policy.pretrained import policy_files

pytestmark = pytest.mark.llvm

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {
    "file.cpp": 'extern "C" int puts(const char *);\nint main() { return puts("file") < 0; }\n',
    # A search that is asked for without a budget has this one.
    "mlgokit.toml": 'workers = 1\n[tune]\nbudget = "1s"\n[advise]\nwithout = ["lto", "lto-thin", "Os", "icf-all"]\n',
    "Makefile": """
        CC = clang-22
        CFLAGS = -Oz
        app: main.o
        \t$(CC) $(LDFLAGS) $(CFLAGS) main.o -o app
        main.o: main.c
        \t$(CC) $(CFLAGS) -c main.c -o main.o
        clean:
        \trm -f app main.o
        check: app
        \ttest `./app | wc -l` = 24
    """,
    "CMakeLists.txt": """
        cmake_minimum_required(VERSION 3.13)
        project(app C CXX)
        enable_testing()
        add_executable(app main.c)
        add_test(NAME app COMMAND app)
    """,
    "configure": """
        #!/bin/sh
        for word; do export "$word"; done
        printf 'app:\\n\t%s -xc %s %s main.c -o app\\n' "${CXX:-clang++}" "$CXXFLAGS" "$LDFLAGS" > Makefile
        printf 'check:\\n\t./app\\n' >> Makefile
    """,
}  # fmt: skip


@pytest.fixture
def project(toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    (folder / "configure").chmod(0o755)
    (folder / "main.c").write_text(source_of_calls("int main(void)", 24, end="return 0; "))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, path in (("clang", toolchain.clang), ("clang++", toolchain.clangxx)):
        for version in ("-22", ""):
            (programs / f"{name}{version}").symlink_to(path)
    (programs / "mlgokit").write_text(f'#!/bin/sh\nexec {sys.executable} -m mlgokit "$@"\n')
    (programs / "mlgokit").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv(LOCATION_VARIABLE, str(toolchain.clang.parent.parent))
    monkeypatch.chdir(folder)
    return folder


def run(script: str, folder: Path) -> str:
    done = process.run(["sh", "-ec", script], cwd=folder, timeout_seconds=400)
    assert done.returncode == 0, f"{script}\n{done.stdout.decode()}{done.stderr}"
    return done.stdout.decode()


def lines_of(document: str, heading: str) -> list[str]:
    """The commands below a heading of a document, one a line."""
    text = "\n" + (ROOT / document).read_text()
    begin = text.index(f"\n{heading}\n")
    level = heading.partition(" ")[0]
    found = re.search(rf"^{level} ", text[begin + len(heading) + 1 :], re.MULTILINE)
    part = text[begin : begin + len(heading) + 1 + found.start() if found else None]
    return [line for block in BLOCK.findall(part) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_readme_deploys_the_pretrained_policies(project: Path):
    export, *compile_and_link = lines_of("README.md", "## Deploy the pretrained policies")
    said = run(export, project)
    assert str((project / "policy.so").resolve()) in said
    for line in compile_and_link:
        run(line, project)
    assert run("./program", project) == "file\n"
    assert len(compile_and_link) == 2


def test_the_readme_tunes_one_project(project: Path):
    """A search, and a look at what it left: several seconds."""
    configure = "cmake -S . -B build -DCMAKE_C_COMPILER=clang-22 -DCMAKE_C_FLAGS=-Oz -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
    run(configure, project)
    tune, check = lines_of("README.md", "## Tune one project")
    assert "Smaller: " in run(tune.replace("30m", "1s"), project)
    assert (project / "tuned.so").exists()
    assert "the build changes by" in run(check, project)


@pytest.mark.slow  # a dozen exports and compilations; those of the README are a short form
def test_policies_are_deployed(project: Path, toolchain: Toolchain):
    if toolchain.opt is None:
        pytest.skip(f"LLVM {toolchain.major}: there is no opt")
    (project.parent / "bin" / "opt-22").symlink_to(toolchain.opt)
    (project / "quickstart/train").mkdir(parents=True)
    shutil.copy(policy_files(["builtin:size"])[0], project / "quickstart/train/final.policy")
    run("clang++-22 -Oz -Xclang -disable-llvm-passes -emit-llvm -c file.cpp -o file.bc", project)
    exports, compilations, settings = (
        lines_of("docs/how-to/deploy.md", f"## {title}") for title in ("Export", "Compile", "Settings")
    )
    for line in (*exports, *compilations):
        run(line.replace("default<Oz>", f"default<{'O2' if toolchain.major >= 23 else 'Oz'}>"), project)
    assert {"policy.so", "two.so", "careful.so", "program", "file.opt.bc"} <= {path.name for path in project.iterdir()}
    # clang 19 knows options only of a plugin that is loaded early, as the last line does with a plugin of its own.
    early = "-Xclang -load -Xclang ./policy.so " if toolchain.major == 19 else ""
    for line in settings[:2]:
        run(line.replace("-mllvm", f"{early}-mllvm"), project)
    assert (project / "file.log").exists()


def test_a_plugin_is_tried_in_a_build(project: Path, toolchain: Toolchain):
    run("mlgokit export plugin builtin:Oz --output policy.so", project)
    (project / "tuned.so").symlink_to((project / "policy.so").resolve())
    run("cmake -S . -B build -DCMAKE_C_COMPILER=clang-22 -DCMAKE_C_FLAGS=-Oz", project)
    lines = [
        line
        for line in lines_of("docs/how-to/builds.md", "# How to build with a plugin")
        if line.startswith("mlgokit build ")
    ]
    assert len(lines) == 3
    for line in lines:
        run("make clean", project)
        run(line.replace("--llvm 22", f"--llvm {toolchain.major}"), project)
        assert (project / ("build/app" if "cmake" in line else "app")).exists()


@pytest.mark.slow  # three searches, each of which has tests of its own
@pytest.mark.parametrize("number", range(3))
def test_builds_are_tuned_by_one_command(number: int, project: Path):
    lines = [one for one in lines_of("docs/how-to/builds.md", "## Tune a build by one command") if " tune " in one][:3]
    assert len(lines) == 3
    if "ninja" in lines[number]:
        if shutil.which("ninja") is None:
            pytest.skip("ninja is not installed")
        run("cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=MinSizeRel -DCMAKE_C_COMPILER=clang-22", project)
    said = run(lines[number], project)
    assert "Smaller: " in said
    assert "Add to the build: " in said


@pytest.mark.slow  # trials of a dozen flags, twice; those of cargo are in test_advise.py
def test_flags_are_advised(project: Path):
    lines = lines_of("docs/how-to/advise.md", "# How to find the free flags of a build")
    assert [line.split()[:3] for line in lines] == [["mlgokit", "advise", "--build"]] * 2 + [
        ["mlgokit", "advise", "--cargo"]
    ]
    for number, line in enumerate(lines[:2]):
        said = run(f"{line} --folder advice-{number}", project)
        assert "Add to the build: " in said
        assert (project / f"advice-{number}" / "advice.html").exists()


@pytest.mark.slow  # a whole search; what it runs has tests of its own
def test_settings_spare_the_words(project: Path):
    for name in ("CMakeLists.txt", "configure", "mlgokit.toml"):
        (project / name).unlink()
    text = (ROOT / "docs/how-to/settings.md").read_text()
    init, advise, tune, check = text.partition("```text\n")[2].partition("```")[0].splitlines()
    run(init, project)
    settings = (project / "mlgokit.toml").read_text().replace('"30m"', '"1s"')
    (project / "mlgokit.toml").write_text(f'{settings}[advise]\nwithout = ["lto", "lto-thin"]\n')
    assert "Add to the build: " in run(advise, project)
    assert "Smaller: " in run(tune, project)
    assert "the build changes by" in run(check, project)
