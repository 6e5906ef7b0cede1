"""The wheel that `make wheel` built, in an environment that has nothing else: no checkout, no JAX, no LLVM headers."""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parent.parent.parent
SECONDS = 900
PACKAGED_MAJORS = (19, 22)
"""As in ``scripts/wheel.py``."""
SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
static int add(int x) { return get(x) + get(x + N); }
static int twice(int x) { put(x); return add(x) * add(x + 1); }
extern "C" int hot_N(int n) { int v = get(N); for (int i = 0; i < n; i++) v += twice(v + i) - add(i); return v; }
extern "C" void once_N(int i) { put(twice(i) + add(i)); put(twice(i + 1) - add(get(i))); }
"""


@pytest.fixture(scope="session")
def wheel() -> Path:
    found = sorted((ROOT / "build" / "wheel").glob("mlgokit-*.whl"))
    assert len(found) == 1, "expected one wheel in build/wheel; run `make wheel`"
    return found[0]


Printed = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment with the wheel and what it depends on, and a compiler without headers."""

    folder: Path

    def run(self, *words: str | Path, major: int = PACKAGED_MAJORS[-1], code: int = 0) -> Printed:
        """What a program of the environment prints."""
        surroundings = {
            "PATH": f"{self.folder}/venv/bin:/usr/bin:/bin",
            "HOME": str(self.folder / "person"),
            "MLGOKIT_LLVM": str(self.folder / f"llvm-{major}"),
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "300",
        }
        program = self.folder / "venv" / "bin" / str(words[0])
        done = subprocess.run(
            [program, *words[1:]],
            cwd=self.folder,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done


def without_headers(major: int, folder: Path) -> None:
    """The installed clang of a major as if its headers were not: a copy of the program, links to the rest."""
    real = find_toolchain(major)
    (folder / "bin").mkdir(parents=True)
    # A link would lead to the installation with the headers.
    shutil.copy(real.clang, folder / "bin" / "clang")
    (folder / "bin" / "clang++").symlink_to("clang")
    (folder / "lib").symlink_to(real.clang.parent.parent / "lib")
    for name in ("opt", "llc", "ld.lld"):
        tool = real.clang.parent / name
        if tool.exists():
            (folder / "bin" / name).symlink_to(tool)


def pinned(folder: Path) -> Path:
    """The versions that the other tests run with, as constraints."""
    text = (ROOT / "requirements" / "dev.txt").read_text().replace("\\\n", "")
    lines = [line.partition(" --hash")[0] for line in text.splitlines() if line and not line.startswith("#")]
    (folder / "constraints.txt").write_text("\n".join(lines))
    return folder / "constraints.txt"


@pytest.fixture(scope="session")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("wheel")
    found = Place(folder=folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], timeout=SECONDS, check=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--retries", "5"]
    # In the user's own surroundings, which may say where packages come from.
    with contextlib.suppress(KeyError):
        os.environ.pop("PYTHONPATH")
    subprocess.run(
        [folder / "venv" / "bin" / "python", *words, "--constraint", pinned(folder), wheel],
        cwd=folder,
        timeout=SECONDS,
        check=True,
    )
    for major in PACKAGED_MAJORS:
        without_headers(major, folder / f"llvm-{major}")
    return found


def project(folder: Path) -> Path:
    """A compilation database of three files."""
    folder.mkdir()
    entries: list[dict[str, str]] = []
    for number in range(3):
        source = folder / f"m{number}.cpp"
        source.write_text(SOURCE.replace("N", str(number)))
        words = f"clang++ -Oz -ffunction-sections -c {source} -o m{number}.o"
        entries.append({"directory": str(folder), "file": str(source), "command": words})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


def test_the_wheel_is_small_and_says_what_is_in_it(wheel: Path):
    assert wheel.stat().st_size <= 8_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(set(names)) == len(names)
        assert {info.date_time for info in archive.infolist()} == {archive.infolist()[0].date_time}
        (own,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        recorded = dict(line.rsplit(",", 2)[:2] for line in archive.read(own).decode().splitlines())
        assert recorded.keys() == set(names)
        for name in names:
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            assert recorded[name] == ("" if name == own else f"sha256={digest}"), name
        index = json.loads(archive.read("mlgokit/prebuilt/index.json"))
        here = [entry["series"] for entry in index["prebuilt"] if entry["processor"] == os.uname().machine]
        assert [int(series.split(".")[0]) for series in here] == list(PACKAGED_MAJORS)
        objects = [name for name in names if name.endswith(".o")]
        assert len(objects) == sum(len(entry["objects"]) for entry in index["prebuilt"])
        places = (str(ROOT).encode(), b"/usr/lib/llvm", b"building-")
        assert not [name for name in objects if any(text in archive.read(name) for text in places)]


def test_a_checkout_elsewhere_gives_the_same_bytes(wheel: Path, tmp_path: Path):
    subprocess.run(["git", "clone", "--quiet", "--local", ROOT, tmp_path / "elsewhere"], timeout=60, check=True)
    status = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    if status.stdout:
        pytest.skip("the checkout has changes that are not committed")
    script = tmp_path / "elsewhere" / "scripts" / "wheel.py"
    subprocess.run(
        [sys.executable, script, "--output", tmp_path / "again", "--majors", str(PACKAGED_MAJORS[-1]), "--only-here"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "elsewhere" / "src")},
        timeout=1500,
        check=True,
    )

    (again,) = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        # One major is compiled anew, so what lists the objects of all is another.
        compared = [info for info in second.infolist() if not info.filename.endswith(("/RECORD", "/index.json"))]
        assert [name for name in second.namelist() if name not in set(first.namelist())] == []
        for info in compared:
            assert first.read(info.filename) == second.read(info.filename), info.filename
            other = first.getinfo(info.filename)
            assert (other.date_time, other.external_attr) == (info.date_time, info.external_attr)


def test_the_command_line_works_in_an_empty_environment(place: Place):
    assert "tune" in place.run("mlgokit", "--help").stdout
    place.run("python", "-c", "import mlgokit, sys; assert 'venv' in mlgokit.__file__")
    place.run("python", "-c", "import jax", code=1)


@pytest.mark.parametrize("major", PACKAGED_MAJORS)
def test_doctor_says_which_plugin_comes_prebuilt(place: Place, major: int):
    found = json.loads(place.run("mlgokit", "doctor", "--json", major=major).stdout)

    first = found["toolchains"][0]
    assert (first["major"], first["include_dir"], first["usable"]) == (major, None, True)
    (check,) = [check for check in first["checks"] if check["name"] == "plugin"]
    assert check["detail"].startswith(
        f"comes prebuilt for LLVM {major}.1 on {os.uname().machine}, and the compiler loads"
    )
    system = {check["name"]: check for check in found["system"]}
    assert f"LLVM {major}.1 on {os.uname().machine}" in system["prebuilt plugins"]["detail"]
    assert not system["learning framework"]["works"]
    assert found["usable"]
    assert not [line for line in found["advice"] if f"llvm-{major}-dev" in line]


@pytest.mark.parametrize("major", PACKAGED_MAJORS)
def test_tune_needs_no_headers_and_says_that_it_fits_no_policy_without_jax(place: Place, major: int):
    database = project(place.folder / f"project-{major}")
    output = place.folder / f"tuned-{major}.so"

    done = place.run(
        *("mlgokit", "tune", "--compile-commands", database, "--budget", "20s"),
        *("--folder", place.folder / f"tune-{major}", "--output", output),
        major=major,
    )

    text = " ".join((done.stdout + done.stderr).split())
    assert "without jax and optax the search cannot fit a policy that orders what to try" in text
    assert "pip install 'mlgokit[train]'" in text
    compile_with(place, major, output)


@pytest.mark.parametrize("major", PACKAGED_MAJORS)
def test_a_policy_is_exported_without_headers(place: Place, major: int):
    nothing = np.zeros(1, np.float32)
    policy = Policy(
        problem="inline-size",
        features=("callee_users",),
        normaliser=SignedLog(mean=nothing, scale=nothing, clip=1.0),
        layers=(Layer(np.zeros((1, 1, 2), np.float32), np.array([[1, 0]], np.float32)),),
        output=OutputKind.LOGITS,
    )
    save_policy(policy, place.folder / f"never-{major}.policy")
    output = place.folder / f"never-{major}.so"

    place.run("mlgokit", "export", "plugin", place.folder / f"never-{major}.policy", "--output", output, major=major)

    assert b"put" in compile_with(place, major, output)


def compile_with(place: Place, major: int, plugin: Path) -> bytes:
    """The object that the compiler without headers makes with a plugin."""
    source = place.folder / f"one-{major}.cpp"
    source.write_text(SOURCE.replace("N", "1"))
    clang = place.folder / f"llvm-{major}" / "bin" / "clang++"
    subprocess.run(
        [clang, "-Oz", f"-fpass-plugin={plugin}", "-c", source, "-o", source.with_suffix(".o")],
        timeout=SECONDS,
        check=True,
    )
    return source.with_suffix(".o").read_bytes()
