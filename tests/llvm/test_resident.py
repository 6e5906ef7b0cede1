"""Compilers that stay, and functions that are not generated again, against the plain way, on a module of our own."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.bitcode import put_bitcode
from tests.llvm.containers import CONTAINERS

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.account import account_of
from mlgokit.compiler.objects.measure import Objective, ObjectSizes
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.known_decisions import KnownDecisions
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import strong_names
from mlgokit.tune.loop import run_search
from mlgokit.tune.spaces.inlining.opening import open_inlining
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.state import Keys, ModuleState
from mlgokit.tune.spaces.inlining.step import (
    MovePriority,
    compile_decided,
    confirm_composed,
    indifferent,
    request_of,
    step,
)

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SOURCE = (
    CONTAINERS
    + """
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square final : Shape { double side = 1.5; double area() const override { return side * side * 0.25 + 3.75; } };
struct Refused { int letter; };

namespace {
Text quoted(const Text& text, char mark) {
  Text result;
  result += mark;
  for (char letter : text.letters) { if (letter == mark) result += '!'; result += letter; }
  return result += mark;
}
int number(const Text& text) {
  int sum = 0;
  for (char letter : text.letters) {
    if (letter < '0' || letter > '9') throw Refused{letter};
    sum = sum * 10 + letter - '0';
  }
  return sum;
}
int weigh(const List<int>& values) {
  int sum = 0;
  for (int value : values) sum += value % 7 ? value * 3 : -value;
  return sum;
}
List<int> listed(int first, int second) { List<int> made; made.add(first); if (second) made.add(second); return made; }
int chosen(int number) {
  switch (number) {
    case 1: return 17; case 2: return weigh(listed(1, 2)); case 3: return weigh(listed(4, 0)); case 4: return 90;
    case 5: return -4; case 6: return weigh(listed(9, 9)); case 7: return 12; default: return 0;
  }
}
template <class T, class Before> void sort(List<T>& list, Before before) {
  for (int last = 1; last < list.count; ++last)
    for (int place = last; place > 0 && before(list.first[place], list.first[place - 1]); --place) {
      T kept = list.first[place];
      list.first[place] = list.first[place - 1];
      list.first[place - 1] = kept;
    }
}
__attribute__((noinline)) void fill(double* into, int count) {
  for (int i = 0; i < count; ++i) into[i] = i * 0.125 + 2.5;
}
}  // namespace

Text part(int count, const char* text) {
  Rows<List<int>> rows;
  for (int index = 0; index < count; ++index) rows[quoted(text + Text(index % 3), 'm')].add(index);
  Text result;
  for (const auto& row : rows.rows) result += row.name + "=" + weigh(row.value) + ";";
  return result;
}
int guarded(const Text& text) {
  try { return number(quoted(text, 'q')) + chosen(text.letters.count); }
  catch (const Refused& error) { return quoted(error.letter, 'r').letters.count; }
  catch (...) { return chosen(text.letters.count + 1); }
}
double areas(List<Square> squares) {
  sort(squares, [](const Square& a, const Square& b) { return a.area() < b.area(); });
  double numbers[16], sum = 0;
  fill(numbers, 16);
  for (const Square& square : squares) sum += square.area() * numbers[0];
  return sum;
}
"""
)
LIBRARY = """
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
"""The same with the library's containers, which take three times as long, and of whose calls searches compose more."""
OPTIONS = ("-Oz", "-std=c++17", "-ffunction-sections", "-fdata-sections", "-fPIC")
TABLES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A module, how it is compiled from the beginning each time, and decisions to compile it with."""

    module: Module
    plain: ClangCompiler
    build: Compilation
    tables: list[dict[int, bool]]

    @property
    def names(self) -> Keys:
        return strong_names(self.build.measured)


def make_subject(toolchain: Toolchain, folder: Path, text: str) -> Subject:
    bitcode = put_bitcode(toolchain.clangxx, folder / "module.cc", text, *OPTIONS)
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
    plain = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    build = compile_decided(plain, module)
    assert build.ok
    rng = np.random.default_rng(7)
    decisions = build.decisions.by_site
    sites = list(decisions)
    tables = [decisions]
    for turned in (2, 8, 24, len(sites))[: TABLES - 1]:
        chosen = [sites[place] for place in rng.choice(len(sites), min(turned, len(sites)), replace=False).tolist()]
        tables.append(decisions | {site: not decisions[site] for site in chosen})
    return Subject(module=module, plain=plain, build=build, tables=tables)


@pytest.fixture(scope="module")
def subject(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return make_subject(toolchain, tmp_path_factory.mktemp(f"resident-{toolchain.major}"), SOURCE)


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
    compiler = dataclasses.replace(subject.plain, residents=residents)
    for number, table in enumerate(subject.tables):
        objects = tmp_path / f"{number}.a", tmp_path / f"{number}.b"
        first = compile_decided(subject.plain, subject.module, table, subject.names, keep_object=objects[0])
        second = compile_decided(compiler, subject.module, table, subject.names, keep_object=objects[1])
        assert first.status is second.status is CompileStatus.OK
        assert objects[0].read_bytes() == objects[1].read_bytes()
        decided = [dataclasses.asdict(result.decisions) for result in (first, second)]
        assert all(np.array_equal(decided[0][name], decided[1][name]) for name in decided[0])
        assert second.user_seconds > 0
    assert residents.declined == {}


@pytest.fixture(scope="module")
def whole(subject: Subject) -> list[tuple[object, ...]]:
    """The account of the object of each table, compiled from the beginning and generated whole."""
    results = [compile_decided(subject.plain, subject.module, table, subject.names) for table in subject.tables]
    return [account(result.sizes) for result in results]


@pytest.mark.parametrize("stays", [False, True])
def test_sizes_with_known_functions_are_those_of_the_whole_object(
    subject: Subject, whole: list[tuple[object, ...]], residents: Residents, stays: bool
):
    known = KnownFunctions()
    compiler = dataclasses.replace(subject.plain, residents=residents if stays else None, known={"module": known})
    generated = 0
    for number in (*range(len(subject.tables)), 2):
        generated = known.misses
        found = compile_decided(compiler, subject.module, subject.tables[number], subject.names)
        assert account(found.sizes) == whole[number]
    assert known.refused == ""
    if subject.plain.toolchain.target.startswith("x86_64"):
        # The last one had been compiled before. What catches types remains.
        assert 0 < known.misses - generated < len(subject.build.measured.function_names) / 2


@pytest.mark.parametrize("stays", [False, True])
def test_a_compiler_ends_where_it_decided_as_before(
    subject: Subject, whole: list[tuple[object, ...]], residents: Residents, tmp_path: Path, stays: bool
):
    decided = KnownDecisions()
    compiler = dataclasses.replace(subject.plain, residents=residents if stays else None, decided=decided)
    found = Compilation(status=CompileStatus.FAILED)
    for number in (*range(len(subject.tables)), 2):
        found = compile_decided(compiler, subject.module, subject.tables[number], subject.names)
        assert account(found.sizes) == whole[number]
    assert (decided.hits, decided.misses) == (1, len(subject.tables))
    alone = compile_decided(subject.plain, subject.module, subject.tables[2], subject.names)
    logs = [dataclasses.asdict(result.decisions) for result in (found, alone)]
    assert all(np.array_equal(logs[0][name], logs[1][name]) for name in logs[0])
    compile_decided(compiler, subject.module, subject.tables[2], subject.names, keep_object=tmp_path / "kept.o")
    assert (tmp_path / "kept.o").stat().st_size > 0, "an object that is kept is made"


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
    bitcode = put_bitcode(toolchain.clangxx, tmp_path / "module.cc", RETURNING, *OPTIONS)
    module = dataclasses.replace(subject.module, bitcode=bitcode)
    build = compile_decided(subject.plain, module)
    assert build.ok
    known = KnownFunctions()
    compiler = dataclasses.replace(subject.plain, known={"module": known})
    assert account(compile_decided(compiler, module).sizes) == account(build.sizes)
    decisions = build.decisions.by_site
    for site, inlined in decisions.items():
        table = decisions | {site: not inlined}
        names = strong_names(build.measured)
        whole, found = (compile_decided(one, module, table, names) for one in (subject.plain, compiler))
        assert account(found.sizes) == account(whole.sizes) != account(build.sizes)
    assert known.hits > 0
    generated = known.misses
    assert account(compile_decided(compiler, module).sizes) == account(build.sizes)
    assert known.misses == generated, "nothing calls `numbered` that is not known itself"


def test_modules_in_which_functions_may_depend_on_each_other_are_generated_whole(
    toolchain: Toolchain, subject: Subject, tmp_path: Path
):
    options = (*subject.module.command_line, "-mllvm", "-enable-ipra")
    modules = [dataclasses.replace(subject.module, command_line=options)]
    for option in ("-g", "-fcf-protection=branch") if toolchain.target.startswith("x86_64") else ("-g",):
        bitcode = put_bitcode(toolchain.clangxx, tmp_path / f"with{option}.cc", SOURCE, *OPTIONS, option)
        modules.append(dataclasses.replace(subject.module, name=option, bitcode=bitcode))
    compiler = dataclasses.replace(subject.plain, known={})
    for module in modules:
        for _ in range(2):
            assert compile_decided(compiler, module).status is CompileStatus.OK
    assert compiler.known is not None
    assert all(not known.codes and not known.hits for known in compiler.known.values())


def test_a_compilation_beyond_its_deadline_is_killed_and_the_next_one_is_not(subject: Subject, residents: Residents):
    compiler = dataclasses.replace(subject.plain, residents=residents)
    assert compile_decided(compiler, subject.module).status is CompileStatus.OK
    hasty = dataclasses.replace(compiler, timeout_seconds=1e-3)
    late = compile_decided(hasty, subject.module)
    assert late.status is CompileStatus.TIMED_OUT
    assert compile_decided(compiler, subject.module).status is CompileStatus.OK
    assert residents.declined == {}


def test_a_module_that_does_not_compile_fails_as_it_does_from_the_beginning(
    subject: Subject, residents: Residents, tmp_path: Path
):
    (tmp_path / "bad.policy").write_bytes(b"no policy")
    compiler = dataclasses.replace(subject.plain, residents=residents)
    bad = str(tmp_path / "bad.policy")
    found, plain = (one.compile(subject.module, request_of(policy=bad)) for one in (compiler, subject.plain))
    assert found.status is plain.status is CompileStatus.FAILED
    assert found.reason == plain.reason
    (sentence,) = residents.declined.values()
    assert "bad.policy" in sentence
    assert compile_decided(compiler, subject.module).status is CompileStatus.OK
    broken = dataclasses.replace(subject.module, bitcode=tmp_path / "bad.policy")
    assert compile_decided(compiler, broken).status is CompileStatus.FAILED


def test_a_child_that_is_killed_is_compiled_again_from_the_beginning(
    subject: Subject, residents: Residents, monkeypatch: pytest.MonkeyPatch
):
    compiler = dataclasses.replace(subject.plain, residents=residents)
    assert compile_decided(compiler, subject.module).status is CompileStatus.OK
    (resident,) = residents._idle
    resident.process.kill()
    found = compile_decided(compiler, subject.module)
    assert found.status is CompileStatus.OK
    assert found.measured.totals == subject.build.measured.totals
    assert "ended, or did not kill" in next(iter(residents.declined.values()))


def test_the_number_of_residents_is_bounded(subject: Subject):
    residents = Residents(most=1)
    compiler = dataclasses.replace(subject.plain, residents=residents)
    other = dataclasses.replace(subject.module, command_line=(*subject.module.command_line, "-fmath-errno"))
    pids: list[int] = []
    for module in (subject.module, other):
        assert compile_decided(compiler, module).status is CompileStatus.OK
        pids += [one.process.pid for one in residents._idle]
    assert len(pids) == 2
    assert not is_running(pids[0])
    residents.close()
    assert not is_running(pids[1])


KILLED = """
import sys, time
from pathlib import Path
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.reuse.resident import Residents
residents = Residents()
line = Cc1Line(sys.argv[1], own=sys.argv[2:])
residents.run(line, environment={}, request={}, output=Path("/dev/null"), timeout_seconds=60)
print(*(one.process.pid for one in residents._idle), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_killed_search_leaves_no_compiler_behind(subject: Subject):
    compiler = subject.plain
    words = [str(compiler.toolchain.clang), *subject.module.command_line, f"-fpass-plugin={compiler.plugin}"]
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


def test_builds_that_the_search_composes_are_what_the_compiler_makes(
    toolchain: Toolchain, residents: Residents, tmp_path: Path
):
    subject = make_subject(toolchain, tmp_path, LIBRARY)
    compiler = dataclasses.replace(subject.plain, residents=residents, known={})
    name = subject.module.name
    one = ModuleState(module=subject.module, plain=subject.build.measured, build=subject.build)
    account = account_of([name], {name: one.build.measured}, objective=Objective.LINK_AWARE)
    first, rng = account.image, np.random.default_rng(1)
    composed: list[Compilation] = []
    for _ in range(12):
        done = step(
            compiler,
            one,
            account,
            priority=MovePriority(rank=indifferent, noise=1.0, most=64, tries=1),
            rng=rng,
        )
        for move in done.failed:
            one.tried[move] = 1
        if done.build is not None:
            one.build = done.build
            account.put(name, done.build.measured)
        one.composed, one.climb.composed_steps = done.composed, done.composed_steps
        if done.composed is not None and done.kept:
            composed.append(done.composed)
    last = confirm_composed(compiler, one, account)
    assert composed
    assert account.image < first
    alike = 0
    for found in composed:
        decisions = found.decisions.by_site
        real = compile_decided(subject.plain, subject.module, decisions, subject.names)
        assert real.ok
        # Four bytes of filling are the last function's, whichever that is.
        off = abs(found.measured.llvm_size_text - real.measured.llvm_size_text)
        alike += decisions == real.decisions.by_site and off <= 4
    assert alike >= 0.75 * len(composed)
    best = last.build or one.build
    whole = compile_decided(subject.plain, subject.module, best.decisions.by_site, subject.names)
    assert whole.measured.totals == best.measured.totals


def test_what_two_workers_merge_in_one_module_is_what_the_compiler_makes(
    subject: Subject, residents: Residents, tmp_path: Path
):
    compiler = dataclasses.replace(subject.plain, workers=2, residents=residents, known={})
    config = SearchConfig(refits=(), most=6, restarts=2)
    search = open_inlining([subject.module], compiler=compiler, config=config, folder=tmp_path, report=say_nothing)
    begin = search.compilations
    run_search(search, seconds=30, workers=2, report=say_nothing, clock=lambda: float(search.compilations - begin))
    (unit,) = search.space.units
    assert search.space.account.image < search.space.plain_bytes
    assert unit.composed is None
    whole = compile_decided(subject.plain, subject.module, unit.build.decisions.by_site, unit.names)
    assert whole.measured.totals == unit.build.measured.totals
    assert whole.decisions.by_site == unit.build.decisions.by_site
