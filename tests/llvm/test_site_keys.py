"""Keys of call sites with a real compiler: what they outlive, and that a changed function never finds an old one's."""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mlgokit.compiler import process
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.tables.decisions import TableEntry, make_entry, write_table
from mlgokit.traces.function_id import function_id
from mlgokit.traces.log import Log, read_log

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

BASE = """
int get(int); void put(int); double real(double); void stop(const char *, int) __attribute__((noreturn));
struct pair { int first, second; };
static int low(int x) { if (x > 99) stop("too much", __LINE__); return get(x) + get(x + 1); }
static int mid(int x) { put(x); return low(x) * low(x + 1); }
static int wide(struct pair *p) { p->first = get(p->second); return (int)real(1.5) + low(p->first); }
int top(struct pair *p) { return mid(p->first) + low(p->second) + wide(p); }
int other(int x) { put(x); return mid(x - 1); }
"""
FUNCTIONS = ("low", "mid", "wide", "top", "other")
Keys = dict[tuple[str, str], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    toolchain: Toolchain
    plugin: Path
    folder: Path

    def log(
        self,
        text: str,
        *options: str,
        policy: str = ":never",
        name: str = "code.c",
        decisions: Path | None = None,
        flips: float = 0,
    ) -> Log:
        source = self.folder / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        settings = {
            "MLGOKIT_POLICY": policy,
            "MLGOKIT_LOG": str(log),
            "MLGOKIT_SEED": "3",
            "MLGOKIT_FLIP_PROBABILITY": str(flips),
        }
        settings |= {"MLGOKIT_DECISIONS": str(decisions)} if decisions else {}
        words = [self.toolchain.clang, "-Oz", *options, f"-fpass-plugin={self.plugin}", "-c", source]
        done = process.run([*words, "-o", self.folder / "code.o"], timeout_seconds=60, env=os.environ | settings)
        assert done.returncode == 0, done.stderr
        return read_log(log)

    def keys(self, text: str, *options: str, policy: str = ":never", name: str = "code.c") -> Keys:
        return keys_of(self.log(text, *options, policy=policy, name=name))


def keys_of(log: Log, functions: tuple[str, ...] = FUNCTIONS) -> Keys:
    names = {function_id(name): name for name in functions}
    found: Keys = defaultdict(list)
    columns = (log.columns[name][:, 0].tolist() for name in ("caller_id", "callee_id", "site"))
    for caller, callee, site in zip(*columns, strict=True):
        found[names[caller], names[callee]].append(site)
    return dict(found)


@pytest.fixture
def bench(toolchain: Toolchain, tmp_path: Path) -> Bench:
    return Bench(toolchain=toolchain, plugin=build_plugin(toolchain), folder=tmp_path)


def test_keys_are_all_different_and_outlive_what_is_no_change(bench: Bench):
    base = bench.keys(BASE)
    every = [key for keys in base.values() for key in keys]
    assert len(every) == len(set(every)) == 7
    assert all(key % 2 == 0 for key in every)
    same = {
        "lines moved": "\n\n\n" + BASE,
        "a function above": "int early(int x) { return x * 7; }\n" + BASE,
        "another comment": BASE.replace("put(x);", "/* why */ put(x);"),
        "other local names": BASE.replace("int x", "int value").replace("x)", "value)").replace("x ", "value "),
        "another text": BASE.replace("too much", "far too much"),
        "a private type has another name": BASE.replace("struct pair", "struct couple"),
    }
    for why, text in same.items():
        assert bench.keys(text) == base, why
    assert bench.keys(BASE, name="deep/er/renamed.c") == base
    assert bench.keys(BASE, "-g") == base
    assert bench.keys(BASE, "-DUNUSED=1", "-fno-omit-frame-pointer") == base


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("x + 1);", "x + 2);", {"low", "mid"}),
        ("return low(x) * low(x + 1)", "put(9); return low(x) * low(x + 1)", {"mid"}),
        ("return low(x) * low(x + 1)", "int y = low(x); put(9); return y * low(x + 1)", {"mid"}),
        ("int x) { put(x); return low(x) *", "unsigned x) { put(x); return low(x) *", {"mid"}),
        ("p->first = get", "*(volatile int *)&p->first = get", {"wide"}),
        ("real(1.5)", "real(1.25)", {"wide"}),
        ("get(p->second)", "get(p->first)", {"wide"}),
        ("int top(", "__attribute__((cold)) int top(", {"top"}),
        ("int first, second;", "int first, between, second;", {"wide", "top"}),
        ("static int mid", "__attribute__((noinline)) static int mid", {"mid"}),
    ],
)  # fmt: skip
def test_a_function_that_changed_has_no_old_key_and_no_other_has_a_new_one(
    bench: Bench, before: str, after: str, changed: set[str]
):
    assert before in BASE
    old, new = bench.keys(BASE), bench.keys(BASE.replace(before, after))
    if "noinline" in after:
        # Nobody asks about a call of it any more.
        old = {names: keys for names, keys in old.items() if names[1] != "mid"}
    assert set(new) == set(old)
    for names in old:
        if changed.isdisjoint(names):
            assert new[names] == old[names], names
        else:
            assert set(new[names]).isdisjoint(old[names]), names


COPIES = """
int get(int); void put(int);
static int leaf(int x) { return get(x) + get(x * 3); }
static int one(int x) { put(1); return leaf(x); }
static int two(int x) { put(2); return leaf(x + 5); }
int top(int x) { return one(x) + two(x); }
"""


def copied_keys(bench: Bench, text: str) -> list[int]:
    """Keys of leaf's calls in top, to which they came through one and two."""
    functions = ("leaf", "one", "two", "top")
    keys = keys_of(bench.log(text), functions)
    outer = [key for (caller, _), found in keys.items() for key in found if caller == "top"]
    every = np.array([key for found in keys.values() for key in found], np.int64).view(np.uint64)
    inlined = np.isin(every, np.array(outer, np.int64).view(np.uint64))
    write_table(bench.folder / "table", [make_entry([function_id("top")], every, inlined)])
    log = bench.log(text, decisions=bench.folder / "table")
    assert log.columns["decided_by_table"][:, 0].tolist().count(0) == 2
    return keys_of(log, functions)["top", "leaf"]


def test_copies_of_one_call_are_told_apart_by_the_way_they_came(bench: Bench):
    old = copied_keys(bench, COPIES)
    assert len(set(old)) == 2
    for changed in ("put(1)", "put(2)"):
        new = copied_keys(bench, COPIES.replace(changed, "put(7)"))
        assert len(set(new)) == 2
        assert len(set(new) & set(old)) == 1, changed
    assert set(copied_keys(bench, COPIES.replace("x * 3", "x * 5"))).isdisjoint(old)
    swapped = copied_keys(bench, COPIES.replace("one(x) + two(x)", "two(x) + one(x)"))
    assert set(swapped).isdisjoint(old)


@st.composite
def program_and_edit(draw: st.DrawFn) -> tuple[list[str], int]:
    """Bodies of functions, each calling earlier ones, and which of them is edited."""
    bodies: list[str] = []
    for index in range(draw(st.integers(3, 6))):
        called = draw(st.lists(st.integers(0, index - 1), min_size=1, max_size=3)) if index else []
        number = draw(st.integers(0, 3))
        calls = " ".join(f"s += f{other}(s + {place % 2});" for place, other in enumerate(called))
        bodies.append(f"int s = get(x + {number}); {calls} return s;")
    return bodies, draw(st.integers(0, len(bodies) - 1))


def program(bodies: list[str]) -> str:
    functions = [
        f"{'static ' if index + 1 < len(bodies) else ''}int f{index}(int x) {{ {body} }}"
        for index, body in enumerate(bodies)
    ]
    return "int get(int);\n" + "\n".join(functions) + "\n"


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=program_and_edit())
def test_no_key_of_an_edited_function_is_known(bench: Bench, made: tuple[list[str], int]):
    bodies, edited = made
    names = tuple(f"f{index}" for index in range(len(bodies)))
    changed = bodies.copy()
    changed[edited] = changed[edited].replace("get(x +", "get(x + 9 +")
    for policy in (":never", ":always"):
        old = keys_of(bench.log(program(bodies), policy=policy, flips=0.4), names)
        new = keys_of(bench.log(program(changed), policy=policy, flips=0.4), names)
        owner = {key: pair for pair, keys in old.items() for key in keys}
        for pair, keys in new.items():
            for key in keys:
                if key in owner:
                    assert owner[key] == pair
                    assert f"f{edited}" not in pair


@pytest.mark.parametrize("entry", ["int main(void)", "static __attribute__((constructor)) void start(void)"])
def test_modules_that_share_all_their_names_find_their_own_decisions(bench: Bench, entry: str):
    text = f"int get(int); void put(int);\nstatic int part(int x) {{ return get(x) * NUMBER + get(x + 1); }}\n{entry} "
    text += "{ put(part(1)); put(part(2) + NUMBER);" + (" return 0; }" if "main" in entry else " }")
    names = ("part", "main", "start")
    own = [function_id("main" if "main" in entry else "start")]
    entries: list[TableEntry] = []
    for number, inlined in ((3, True), (4, False)):
        keys = keys_of(bench.log(text.replace("NUMBER", str(number))), names)
        sites = np.array([key for found in keys.values() for key in found], np.int64).view(np.uint64)
        entries.append(make_entry(own, sites, np.full(len(sites), inlined)))
    for order in (entries, entries[::-1]):
        write_table(bench.folder / "table", order)
        for number, inlined in ((3, 1), (4, 0)):
            log = bench.log(text.replace("NUMBER", str(number)), decisions=bench.folder / "table")
            assert log.columns["decided_by_table"][:, 0].tolist() == [1, 1]
            assert log.columns["inlining_decision"][:, 0].tolist() == [inlined, inlined]
