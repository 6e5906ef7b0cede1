"""Compilers that stay, and functions that are not generated again, against the plain way, on a module of our own."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compile import CompileStatus
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.tables.decisions import strong_names
from mlgokit.tune.search import Bench, ModuleState, MovePriority, confirm_composed, indifferent, step
from mlgokit.tune.state import Build, Keys, build_of

pytestmark = pytest.mark.llvm

SOURCE = """
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square final : Shape { double side = 1.5; double area() const override { return side * side * 0.25 + 3.75; } };

namespace {
std::string quoted(const std::string& text, char mark) {
  std::string result(1, mark);
  for (char letter : text) { if (letter == mark) result += '!'; result += letter; }
  return result + mark;
}
int weigh(const std::vector<int>& values) {
  int sum = 0;
  for (int value : values) sum += value % 7 ? value * 3 : -value;
  return sum;
}
int chosen(int number) {
  switch (number) {
    case 1: return 17; case 2: return weigh({1, 2}); case 3: return weigh({4}); case 4: return 90; case 5: return -4;
    case 6: return weigh({9, 9}); case 7: return 12; default: return 0;
  }
}
__attribute__((noinline)) void fill(double* into, int count) {
  for (int i = 0; i < count; ++i) into[i] = i * 0.125 + 2.5;
}
}  // namespace

std::string part(int count, const char* text) {
  std::map<std::string, std::vector<int>> rows;
  for (int index = 0; index < count; ++index) rows[quoted(text + std::to_string(index % 3), 'm')].push_back(index);
  std::string result;
  for (const auto& [name, values] : rows) result += name + std::to_string(weigh(values)) + ";";
  return result;
}
int guarded(const std::string& text) {
  try { return std::stoi(quoted(text, 'q')) + chosen(int(text.size())); }
  catch (const std::invalid_argument& error) { return int(std::string(error.what()).size()); }
  catch (...) { return chosen(int(text.size()) + 1); }
}
double areas(std::vector<Square> squares) {
  std::sort(squares.begin(), squares.end(), [](const Square& a, const Square& b) { return a.area() < b.area(); });
  double numbers[16], sum = 0;
  fill(numbers, 16);
  for (const Square& square : squares) sum += square.area() * numbers[0];
  return sum;
}
"""
OPTIONS = ("-Oz", "-std=c++17", "-ffunction-sections", "-fdata-sections", "-fPIC")
TABLES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A module, how it is compiled from the beginning each time, and decisions to compile it with."""

    module: Module
    plain: Bench
    build: Build
    tables: list[dict[int, bool]]

    @property
    def names(self) -> Keys:
        return strong_names(self.build.sizes)


def put_bitcode(toolchain: Toolchain, folder: Path, *options: str, text: str = SOURCE) -> Path:
    folder.mkdir(exist_ok=True)
    source, bitcode = folder / "module.cc", folder / "module.bc"
    source.write_text(text)
    words = [toolchain.clangxx, "-c", *OPTIONS, *options, "-Xclang", "-disable-llvm-passes", "-emit-llvm", source]
    done = process.run([*words, "-o", bitcode], timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    return bitcode


@pytest.fixture(scope="module")
def subject(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    bitcode = put_bitcode(toolchain, tmp_path_factory.mktemp(f"resident-{toolchain.major}"))
    options = (
        "-cc1",
        "-triple",
        toolchain.target,
        "-Oz",
        "-ffunction-sections",
        "-fdata-sections",
        "-funwind-tables=2",
    )
    options += ("-mrelocation-model", "pic", "-pic-level", "2", "-fcxx-exceptions", "-fexceptions")
    module = Module(
        name="module",
        project="ours",
        language="c++",
        held_out=False,
        bitcode=bitcode,
        bitcode_bytes=0,
        command_line=options,
    )
    plain = Bench(toolchain=toolchain, plugin=build_plugin(toolchain), timeout_seconds=60, residents=None, known=None)
    build = build_of(plain.compile(module))
    assert build is not None
    rng = np.random.default_rng(7)
    sites = build.site.tolist()
    tables = [build.decisions]
    for turned in (2, 8, 24, len(sites))[: TABLES - 1]:
        chosen = [sites[place] for place in rng.choice(len(sites), min(turned, len(sites)), replace=False).tolist()]
        tables.append(build.decisions | {site: not build.decisions[site] for site in chosen})
    return Subject(module=module, plain=plain, build=build, tables=tables)


@pytest.fixture
def residents() -> Iterator[Residents]:
    found = Residents()
    yield found
    found.close()


def account(sizes: ObjectSizes | None) -> tuple[object, ...]:
    """Everything that is known of an object, in an order that does not depend on that of its functions."""
    assert sizes is not None
    signatures = (*sizes.signatures, "")
    functions = zip(
        sizes.function_names,
        sizes.function_bytes.tolist(),
        sizes.function_except_table.tolist(),
        [signatures[index] for index in sizes.function_signature.tolist()],
        strict=True,
    )
    groups = zip(sizes.signatures, sizes.signature_rest.tolist(), sizes.signature_data.tolist(), strict=True)
    return sizes.totals, sorted(functions), sorted(groups), sizes.rest.tolist()


def test_a_resident_writes_the_objects_and_logs_of_compilers_that_begin_at_the_beginning(
    subject: Subject, residents: Residents, tmp_path: Path
):
    bench = dataclasses.replace(subject.plain, residents=residents)
    for number, table in enumerate(subject.tables):
        objects = tmp_path / f"{number}.a", tmp_path / f"{number}.b"
        first = subject.plain.compile(subject.module, decisions=table, names=subject.names, keep_object=objects[0])
        second = bench.compile(subject.module, decisions=table, names=subject.names, keep_object=objects[1])
        assert first.status is second.status is CompileStatus.OK
        assert objects[0].read_bytes() == objects[1].read_bytes()
        logs = [result.logs["inline-size"].columns for result in (first, second)]
        assert all((logs[0][name] == logs[1][name]).all() for name in logs[0])
        assert second.user_seconds > 0
    assert residents.declined == {}


@pytest.fixture(scope="module")
def whole(subject: Subject) -> list[tuple[object, ...]]:
    """The account of the object of each table, compiled from the beginning and generated whole."""
    results = [subject.plain.compile(subject.module, decisions=table, names=subject.names) for table in subject.tables]
    return [account(result.sizes) for result in results]


@pytest.mark.parametrize("stays", [False, True])
def test_sizes_with_known_functions_are_those_of_the_whole_object(
    subject: Subject, whole: list[tuple[object, ...]], residents: Residents, stays: bool
):
    known = KnownFunctions()
    bench = dataclasses.replace(subject.plain, residents=residents if stays else None, known={"module": known})
    generated = 0
    for number in (*range(len(subject.tables)), 2):
        generated = known.misses
        found = bench.compile(subject.module, decisions=subject.tables[number], names=subject.names)
        assert account(found.sizes) == whole[number]
    assert known.refused == ""
    if subject.plain.toolchain.target.startswith("x86_64"):
        # The last one had been compiled before. What refers to constants that all share, or catches types, remains.
        assert 0 < known.misses - generated < len(subject.build.sizes.function_names) / 2


# LLVM replaces the second argument of `show` by what `numbered` has returned, as long as it sees the body of that.
RETURNING = """
void show(int, const char*);
static int weigh(int x) { return (x * 37 + 11) % 1013; }
__attribute__((noinline)) char* numbered(int n) {
  static char text[80];
  text[n % 79] = weigh(n) % 10;
  return text;
}
void first(int n) { show(weigh(n), numbered(n)); }
void second(int n) { numbered(n); show(weigh(n + 1), numbered(n)); }
"""


def test_a_caller_that_sees_what_its_callee_returns_is_generated_with_it(
    toolchain: Toolchain, subject: Subject, tmp_path: Path
):
    module = dataclasses.replace(subject.module, bitcode=put_bitcode(toolchain, tmp_path, text=RETURNING))
    build = build_of(subject.plain.compile(module))
    assert build is not None
    known = KnownFunctions()
    bench = dataclasses.replace(subject.plain, known={"module": known})
    assert account(bench.compile(module).sizes) == account(build.sizes)
    for site, inlined in build.decisions.items():
        table = build.decisions | {site: not inlined}
        names = strong_names(build.sizes)
        whole, found = (one.compile(module, decisions=table, names=names) for one in (subject.plain, bench))
        assert account(found.sizes) == account(whole.sizes) != account(build.sizes)
    assert known.hits > 0
    generated = known.misses
    assert account(bench.compile(module).sizes) == account(build.sizes)
    assert known.misses == generated, "nothing calls `numbered` that is not known itself"


def test_modules_in_which_functions_may_depend_on_each_other_are_generated_whole(
    toolchain: Toolchain, subject: Subject, tmp_path: Path
):
    options = (*subject.module.command_line, "-mllvm", "-enable-ipra")
    modules = [dataclasses.replace(subject.module, command_line=options)]
    for option in ("-g", "-fcf-protection=branch") if toolchain.target.startswith("x86_64") else ("-g",):
        bitcode = put_bitcode(toolchain, tmp_path / f"with{option}", option)
        modules.append(dataclasses.replace(subject.module, name=option, bitcode=bitcode))
    bench = dataclasses.replace(subject.plain, known={})
    for module in modules:
        for _ in range(2):
            assert bench.compile(module).status is CompileStatus.OK
    assert bench.known is not None
    assert all(not known.codes and not known.hits for known in bench.known.values())


def test_a_compilation_beyond_its_deadline_is_killed_and_the_next_one_is_not(subject: Subject, residents: Residents):
    bench = dataclasses.replace(subject.plain, residents=residents)
    assert bench.compile(subject.module).status is CompileStatus.OK
    hasty = dataclasses.replace(bench, timeout_seconds=1e-3)
    late = hasty.compile(subject.module)
    assert late.status is CompileStatus.TIMED_OUT
    assert bench.compile(subject.module).status is CompileStatus.OK
    assert residents.declined == {}


def test_a_module_that_does_not_compile_fails_as_it_does_from_the_beginning(
    subject: Subject, residents: Residents, tmp_path: Path
):
    (tmp_path / "bad.policy").write_bytes(b"no policy")
    bench = dataclasses.replace(subject.plain, residents=residents)
    found, plain = (one.compile(subject.module, policy=str(tmp_path / "bad.policy")) for one in (bench, subject.plain))
    assert found.status is plain.status is CompileStatus.FAILED
    assert found.reason == plain.reason
    (sentence,) = residents.declined.values()
    assert "bad.policy" in sentence
    assert bench.compile(subject.module).status is CompileStatus.OK
    broken = dataclasses.replace(subject.module, bitcode=tmp_path / "bad.policy")
    assert bench.compile(broken).status is CompileStatus.FAILED


def test_a_child_that_is_killed_is_compiled_again_from_the_beginning(
    subject: Subject, residents: Residents, monkeypatch: pytest.MonkeyPatch
):
    bench = dataclasses.replace(subject.plain, residents=residents)
    assert bench.compile(subject.module).status is CompileStatus.OK
    (resident,) = residents._idle.values()
    resident.process.kill()
    found = bench.compile(subject.module)
    assert found.status is CompileStatus.OK
    assert found.sizes is not None
    assert found.sizes.totals == subject.build.sizes.totals
    assert "died" in next(iter(residents.declined.values()))


def test_only_so_many_stay(subject: Subject):
    residents = Residents(most=1)
    bench = dataclasses.replace(subject.plain, residents=residents)
    other = dataclasses.replace(subject.module, command_line=(*subject.module.command_line, "-fmath-errno"))
    pids: list[int] = []
    for module in (subject.module, other):
        assert bench.compile(module).status is CompileStatus.OK
        pids += [one.process.pid for one in residents._idle.values()]
    assert len(pids) == 2
    assert not is_running(pids[0])
    residents.close()
    assert not is_running(pids[1])


KILLED = """
import sys, time
from pathlib import Path
from mlgokit.compiler.reuse.resident import Residents
residents = Residents()
residents.run(sys.argv[1:], environment={}, request={}, output=Path("/dev/null"), timeout_seconds=60)
print(*(one.process.pid for one in residents._idle.values()), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_killed_search_leaves_no_compiler_behind(subject: Subject):
    bench = subject.plain
    words = [str(bench.toolchain.clang), *subject.module.command_line, f"-fpass-plugin={bench.plugin}"]
    words += ["-x", "ir", str(subject.module.bitcode), "-emit-obj", "-o", "-"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    argv = [sys.executable, "-c", KILLED, *words]
    child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    (pid,) = map(int, child.stdout.readline().split())
    assert is_running(pid)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(timeout=30)
    child.stdout.close()
    end = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < end:
        pass
    assert not is_running(pid)


def test_builds_that_the_search_composes_are_what_the_compiler_makes(subject: Subject, residents: Residents):
    bench = dataclasses.replace(subject.plain, residents=residents, known={})
    name = subject.module.name
    one = ModuleState(module=subject.module, plain=subject.build.sizes, build=subject.build)
    account = account_of([name], {name: one.build.sizes}, objective=Objective.LINK_AWARE)
    first, rng = account.image, np.random.default_rng(1)
    composed: list[Build] = []
    for _ in range(12):
        done = step(
            bench,
            one,
            account,
            lock=threading.Lock(),
            order=MovePriority(rank=indifferent, noise=1.0, most=64, tries=1),
            rng=rng,
        )
        for move in done.failed:
            one.tried[move] = 1
        if done.build is not None:
            one.build = done.build
            account.put(name, done.build.sizes)
        one.composed, one.composed_steps = done.composed, done.composed_steps
        if done.composed is not None and done.kept:
            composed.append(done.composed)
    last = confirm_composed(bench, one, account, lock=threading.Lock())
    assert composed
    assert account.image < first
    alike = 0
    for found in composed:
        real = build_of(subject.plain.compile(subject.module, decisions=found.decisions, names=subject.names))
        assert real is not None
        # Four bytes of filling are the last function's, whichever that is.
        off = abs(found.sizes.llvm_size_text - real.sizes.llvm_size_text)
        alike += found.decisions == real.decisions and off <= 4
    assert alike >= 0.75 * len(composed)
    best = last.build or one.build
    whole = build_of(subject.plain.compile(subject.module, decisions=best.decisions, names=subject.names))
    assert whole is not None
    assert whole.sizes.totals == best.sizes.totals
