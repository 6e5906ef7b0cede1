"""Tuning for executed instructions: a small program that is profiled, searched, counted and published, or not."""

import json
import re
from pathlib import Path

import pytest

from mlgokit.builds.site import BuildCommands
from mlgokit.commands import check
from mlgokit.commands.tune import run as tune
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import RejectedError, UsageError
from mlgokit.files import digest_file
from mlgokit.pages.markdown import render_markdown
from mlgokit.tune.page import tuned_page
from mlgokit.tune.result import Tuned

pytestmark = pytest.mark.llvm

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
extern const char table[20000];
const char table[20000] = "abc";
#define MIX a ^= b * 2654435761u; a += a << 5; b ^= a >> 11; a += b ^ (a << 3); b += a >> 7;
static unsigned mix(unsigned a, unsigned b) { MIX MIX MIX MIX return a; }
/* Among its calls only those are inlined that are as hot as the loop below. */
__attribute__((minsize, noinline)) unsigned sum(unsigned n) {
  unsigned s = 0;
  for (unsigned i = 0; i < n; i++) s = mix(s, i + table[i % 20000]);
  return s;
}
__attribute__((minsize, noinline)) unsigned last(unsigned n) { return mix(n, n); }
__attribute__((noinline)) unsigned hottest(unsigned n) {
  unsigned s = n;
  for (unsigned i = 0; i < 120 * n; i++) s ^= s << 3 ^ i;
  return s;
}
int main(int count, char **words) {
  if (count < 2) {
    printf("%ld\\n", (long)last - (long)sum); // the size of `sum`
    return 0;
  }
  unsigned n = atoi(words[1]), more = count > 2 ? atoi(words[2]) : 0;
  printf("%u %u\\n", sum(n + more) + hottest(n), n > 7 ? last(n) : mix(n, 3));
  return 0;
}
"""
SLOWER = "#!/bin/sh\necho x >> {log}\nfor i in $(cat {log}); do ./app 900; done\n"
"""Runs the program once more each time."""
SLOWER_SUM = """#!/bin/sh
size=$(./app)
test -e {known} || echo $size > {known}
test $size = $(cat {known}) || more=9000
exec ./app 700 $more
"""
"""Lets one function work more where it is another one than in the plain build, which is counted first."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a program."""
    root = tmp_path_factory.mktemp("speed")
    (root / "app").mkdir()
    (root / "app" / "app.c").write_text(SOURCE)
    for name, text in {
        "slower.sh": SLOWER.format(log=root / "log"),
        "slower_sum.sh": SLOWER_SUM.format(known=root / "known"),
    }.items():
        script = root / "app" / name
        script.write_text(text)
        script.chmod(0o755)
    return root


def config(place: Path, toolchain: Toolchain, **options: object) -> Tune:
    """The call that tunes the program."""
    given: dict[str, object] = {
        "built": BuildCommands(build=(f"{toolchain.clang} -O2 app.c -o app",), build_folder=place / "app"),
        "objective": "instructions",
        "run": ("./app 3000",),
        "held_out": ("./app 700",),
        "budget": "2s",
        "folder": place / "tune",
        "output": place / "tuned.so",
    }
    return Tune(**given | options)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def tuned(folder: Path, toolchain: Toolchain) -> Tuned:
    """What a tuning of two seconds found, which other tests look at."""
    return tune(config(folder, toolchain))


def test_a_gain_is_found_and_counted(tuned: Tuned, folder: Path) -> None:
    in_profile, held_out = tuned.runs
    assert (in_profile.command, in_profile.held_out, held_out.held_out) == ("./app 3000", False, True)
    assert in_profile.tuned < 0.99 * in_profile.plain
    assert held_out.tuned < held_out.plain
    assert tuned.counter.startswith("callgrind")
    assert (folder / "tuned.profdata").exists()


def test_the_image_is_within_its_bound(tuned: Tuned) -> None:
    assert tuned.built is not None
    (program,) = tuned.built.programs
    assert 0 < program.tuned.image <= 1.01 * program.plain.image


def test_what_to_add_names_profile_and_plugin(tuned: Tuned, folder: Path) -> None:
    assert tuned.built is not None
    assert f"-fprofile-use={folder / 'tuned.profdata'} -fpass-plugin={folder / 'tuned'}-" in tuned.built.line


def test_a_check_of_bytes_says_how_to_count_again(tuned: Tuned, folder: Path) -> None:
    with pytest.raises(UsageError, match="found one tuned for executed instructions; count them again by"):
        check.run(check.Check(plugin=Path(tuned.plugin), built=BuildCommands(build=("make",), build_folder=folder)))


def test_the_page_has_the_counts(tuned: Tuned) -> None:
    shown = render_markdown(tuned_page(tuned))
    assert "Executed instructions: " in shown
    assert "of runs that are not in the profile: " in shown
    assert "| ./app 700 | no |" in shown
    assert Tuned.from_json(json.loads(json.dumps(tuned.to_json()))).runs == tuned.runs


def test_a_function_that_executes_more_is_taken_back(folder: Path, toolchain: Toolchain) -> None:
    place, told = folder / "one", list[str]()
    again = config(folder, toolchain, held_out=("./slower_sum.sh",), folder=place, output=folder / "one.so")

    # Once the program is the plain one again, the script lets it work as much as before.
    with pytest.raises(RejectedError, match="found that no run executed fewer instructions with the plugin"):
        tune(again, report=lambda _done, _total, label: told.append(label))
    assert any(re.match(r"taken back in \d functions?: `\./slower_sum\.sh` executed", label) for label in told)


def test_what_runs_slower_is_not_published(tuned: Tuned, folder: Path, toolchain: Toolchain) -> None:
    before = digest_file(Path(tuned.plugin))
    again = config(folder, toolchain, go_on=True, budget="0s", held_out=("./slower.sh",))
    with pytest.raises(RejectedError, match=r"expected fewer executed instructions .* `\./slower\.sh` executed"):
        tune(again)
    assert digest_file(Path(tuned.plugin)) == before
