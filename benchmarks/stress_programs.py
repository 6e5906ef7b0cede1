"""Real projects with the tests of their authors, or round trips of ours: what a miscompilation would break."""

from dataclasses import dataclass

ROUND_TRIP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(include)s
static unsigned char data[400000], packed[500000], again[400000];
int main(void) {
  unsigned long seed = 1, sum = 5381;
  for (size_t i = 0; i < sizeof data; ++i) {
    seed = seed * 6364136223846793005UL + 1442695040888963407UL;
    data[i] = i %% 7 == 3 && i > 5000 ? data[i - 4999] : (i / 1000) %% 3 ? (seed >> 60) + 'a' : seed >> 56;
  }
  for (int level = 1; level <= 9; level += 2) {
    size_t size = sizeof packed, length = sizeof again;
    memset(again, 0, sizeof again);
    %(round)s
    if (length != sizeof data || memcmp(data, again, sizeof data)) return 5;
    for (size_t i = 0; i < size; ++i) sum = sum * 33 ^ packed[i];
    printf("%%d %%zu %%lx\n", level, size, sum);
  }
  return 0;
}
"""
ZLIB = {
    "include": '#include "zlib.h"',
    "round": "uLongf s = size, l = length; if (compress2(packed, &s, data, sizeof data, level)) return 3;"
    " if (uncompress(again, &l, packed, s)) return 4; size = s; length = l;",
}
ZSTD = {
    "include": '#include "zstd.h"',
    "round": "size = ZSTD_compress(packed, size, data, sizeof data, level * 2); if (ZSTD_isError(size)) return 3;"
    " length = ZSTD_decompress(again, length, packed, size); if (ZSTD_isError(length)) return 4;",
}
BROTLI = {
    "include": "#include <brotli/decode.h>\n#include <brotli/encode.h>",
    "round": "if (!BrotliEncoderCompress(level, 22, BROTLI_MODE_GENERIC, sizeof data, data, &size, packed)) return 3;"
    " if (BrotliDecoderDecompress(size, packed, &length, again) != 1) return 4;",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A program made of a project's library and one main file.

    Attributes:
        name: of the program.
        main: the main file below the project's root.
        text: its text, if it is ours.
        extra: other sources below the root that it needs.
        runs: arguments of each run; exit code 0 is success.
        folder: where it runs, below the root.
        same_output: whether standard output must be that of the plain build.
    """

    name: str
    main: str
    text: str = ""
    extra: tuple[str, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ((),)
    folder: str = "."
    same_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A project of ``corpus/sources/projects.toml`` and the programs that exercise it.

    Attributes:
        project: its name there.
        trials: the programs.
        defines: macros beside the project's own.
        include: folders beside the project's own.
        undefined: macros of the project that must not be there: a test's assertions may depend on it.
        libraries: words for the linker.
        heavy: it takes long to build.
    """

    project: str
    trials: tuple[Trial, ...]
    defines: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ("-lm", "-lpthread")
    heavy: bool = False

    def builds(self, wanted: int) -> int:
        """Builds under random policies; a heavy project has two at most."""
        return min(wanted, 2) if self.heavy else wanted


LUA_TESTS = (
    "pm", "sort", "strings", "math", "tpack", "calls", "closure", "coroutine", "events", "goto", "literals", "nextvar",
    "utf8", "vararg", "bitwise", "gc", "db", "api", "code",
)  # fmt: skip
_MARISA = ("base", "io", "vector", "trie", "marisa")
_LEVELDB = (
    "db/dbformat_test", "db/filename_test", "db/log_test", "db/skiplist_test", "db/version_edit_test",
    "db/write_batch_test", "util/arena_test", "util/bloom_test", "util/cache_test", "util/coding_test",
    "util/crc32c_test", "util/hash_test", "table/filter_block_test",
)  # fmt: skip

EXERCISES = (
    Exercise(
        project="zlib",
        trials=(Trial(name="round trip", main="trip.c", text=ROUND_TRIP % ZLIB, same_output=True),),
    ),
    Exercise(
        project="lua",
        trials=(
            Trial(
                name="Lua's own tests",
                main="lua.c",
                folder="testes",
                runs=tuple(("-e_U=true", f"{name}.lua") for name in LUA_TESTS),
            ),
        ),
    ),
    Exercise(
        project="brotli",
        # The corpus leaves this file out, the library needs it.
        trials=(
            Trial(
                name="round trip",
                main="trip.c",
                text=ROUND_TRIP % BROTLI,
                extra=("enc/backward_references.c",),
                same_output=True,
            ),
        ),
    ),
    Exercise(
        project="marisa",
        heavy=True,
        include=("tests",),
        undefined=("NDEBUG",),
        trials=tuple(Trial(name=f"{name}-test", main=f"tests/{name}-test.cc") for name in _MARISA),
    ),
    Exercise(
        project="zstd",
        heavy=True,
        trials=(Trial(name="round trip", main="trip.c", text=ROUND_TRIP % ZSTD, same_output=True),),
    ),
    Exercise(
        project="leveldb",
        heavy=True,
        undefined=("NDEBUG",),
        trials=tuple(
            Trial(name=name, main=f"{name}.cc", extra=("util/testharness.cc", "util/testutil.cc")) for name in _LEVELDB
        ),
    ),
)
