"""Tries every option without a value, or with a number, of ``clang_options.tsv``: what does it do beside the code?

Usage::

    python scripts/try_options.py /usr/lib/llvm-22

Compiles a source, and its bitcode, once for each option in an empty folder, under strace, and prints the options with
which clang wrote or removed a file, started a program, opened a socket, or printed to standard output. Of those that
are new in a major, the others may go into ``option_review.toml`` after somebody has read what they are.
"""

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import option_table

CALLS = "openat,open,creat,execve,mkdir,mkdirat,rename,renameat,renameat2,unlink,socket,connect,symlink,link"
READS = re.compile(r'openat\((?!.*(O_WRONLY|O_RDWR|O_CREAT|O_APPEND|O_TRUNC))|"/dev/null"|execve\(.*"-cc1"|exited|SIG')
SOURCE = """
struct A { virtual int f(int); int g; };
int A::f(int x) { return x + g; }
static int sum(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] > 3 ? a[i] * i : ~a[i]; return s; }
int copy(int *a, int *b, int n) { for (int i = 0; i < n; i++) b[i] = a[i] * 2 + 1; return sum(a, n) + sum(b, n - 1); }
int choose(int x) { switch (x) { case 1: return 5; case 2: return 9; case 3: return x * x; default: return 0; } }
double mean(double x, double y) { return (x + y) / 2; }
"""


def attempts(word: str, kind: str) -> list[tuple[list[str], str]]:
    """The words of each compilation, and the kind of its input."""
    if kind == "flag":
        return [([word], "c++"), ([word], "ir")]
    values = {"llvm-flag": f"-{word}", "llvm-number": f"-{word}=1"}
    return [(["-mllvm", values[kind]], "ir")] if kind in values else []


def noticed(clang: Path, words: list[str], language: str, source: Path) -> list[str]:
    """What else clang did."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder, tempfile.NamedTemporaryFile() as log:
        argv = [str(clang), "-cc1", "-O2", *words, "-emit-obj", "-o", "/dev/null", "-x", language, str(source)]
        traced = ["strace", "-f", "-qq", "-o", log.name, "-e", f"trace={CALLS}", *argv]
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LLVM_DISABLE_SYMBOLIZATION": "1"}
        done = process.run(traced, timeout_seconds=40, cwd=Path(folder), env=environment)
        calls = [line for line in Path(log.name).read_text(errors="replace").splitlines() if not READS.search(line)]
        return calls + ([f"{len(done.stdout)} bytes of output"] if done.stdout else [])


def main(folder: Path) -> None:
    """Try them all."""
    clang = folder / "bin" / "clang"
    with tempfile.TemporaryDirectory() as scratch:
        inputs = {"c++": Path(scratch, "a.cc"), "ir": Path(scratch, "a.bc")}
        inputs["c++"].write_text(SOURCE)
        own = ["-O2", "-disable-llvm-passes", "-emit-llvm-bc", "-o", str(inputs["ir"]), str(inputs["c++"])]
        if process.run(Cc1Line(clang, own=own), timeout_seconds=60).returncode:
            sys.exit(f"{clang}: expected it to compile, found an error")
        tried = [
            (words, language) for word, kind in option_table().kinds.items() for words, language in attempts(word, kind)
        ]
        with ThreadPoolExecutor(4) as pool:
            results = pool.map(lambda item: noticed(clang, item[0], item[1], inputs[item[1]]), tried)
            for (words, language), found in zip(tried, results, strict=True):
                if found:
                    sys.stdout.write(f"{' '.join(words)} ({language}): {found[0][:160]}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
