"""Hostile command lines for :mod:`fuzz_gate`: options by the names that clang and LLVM have, in every way to write one.

A line is words of a driver, or of ``clang -cc1``. Most options in it are good ones, some are of :data:`EVIL`, the rest
are drawn from all that clang and LLVM know. Values name a library that leaves a canary, files that nobody may change,
other options, and text that does not fit.
"""

import functools

import numpy as np

from mlgokit.compiler.options.parse import option_table

Rng = np.random.Generator


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GOOD = _words("""
    -O2 -Os -g -fPIC -Wall -DNDEBUG -DA=1 -I. -Iinclude -std=gnu11 -march=native -fopenmp -pthread -fno-exceptions
    -ffunction-sections -fno-plt -w -fstack-protector-strong -D_FORTIFY_SOURCE=2
""")
GOOD_CC1 = _words("""
    -O2 -Os -mrelocation-model=pic -vectorize-loops -ffunction-sections -fdata-sections -funwind-tables=2
    -mframe-pointer=none -fno-rounding-math -mconstructor-aliases -disable-llvm-passes -std=c++17 -fgnuc-version=4.2.1
""")
PAIRS_CC1 = (
    ("-target-cpu", "x86-64"), ("-target-feature", "+sse2"), ("-target-feature", "-avx"), ("-tune-cpu", "generic"),
    ("-mrelocation-model", "pic"), ("-pic-level", "2"), ("-mllvm", "-inline-threshold=5"), ("-target-abi", "sysv"),
)  # fmt: skip
"""Good options whose value is a word of its own: without the one, the other is another option."""
EVIL = _words("""
    -fplugin -fpass-plugin -load -plugin -add-plugin -plugin-arg-evil -fplugin-arg-evil-x -load-pass-plugin -mlir -mmlir
    -dependency-file -dependency-dot -MF -MJ -MD -MMD -MT -MQ -MG -o -diagnostic-log-file -stack-usage-file
    -fstack-usage -serialize-diagnostic-file -serialize-diagnostics --serialize-diagnostics -stats-file -ftime-trace
    -ftime-trace-granularity -save-temps --save-temps -dumpdir -dumpbase -aux-info -gen-cdb-fragment-path
    --gen-cdb-fragment-path -header-include-file -fmodules-cache-path -fmodule-output -fmodules -fcxx-modules
    -fimplicit-module-maps -fmodule-map-file -fmodule-file -fprebuilt-module-path -emit-pch -emit-module
    -emit-module-interface -emit-header-unit -emit-llvm -S -E -M -MM -fsyntax-only -ast-dump -ast-dump-filter
    -rewrite-objc -fixit -fixit= -fixit-to-temporary -code-completion-at -analyze -analyzer-output -analyzer-checker
    --analyze --analyzer-output -emit-html -extract-api --emit-extension-symbol-graphs -extract-api-ignores
    --product-name --symbol-graph-dir -index-store-path -index-ignore-system-symbols -opt-record-file
    -fsave-optimization-record -foptimization-record-file -opt-record-passes -split-dwarf-output -split-dwarf-file
    -gsplit-dwarf -coverage-notes-file -coverage-data-file -ftest-coverage -fprofile-arcs --coverage
    -fprofile-instr-generate -fprofile-generate -fcs-profile-generate -fprofile-instrument-path -fprofile-list
    -fprofile-use -fprofile-instr-use -fprofile-sample-use -fmemory-profile -fcrash-diagnostics -fcrash-diagnostics-dir
    -gen-reproducer -fproc-stat-report -fembed-offload-object -fembed-bitcode -fthin-link-bitcode -fthinlto-index
    -flto -flto= -fwhole-program-vtables -foffload-lto -fopenmp-targets -fopenmp-host-ir-file-path --offload-arch
    --offload -fsycl -fsycl-device-only --cuda-path --cuda-gpu-arch --hip-path --rocm-path --amdgpu-arch-tool
    --nvptx-arch-tool -Xopenmp-target -Xarch_host -Xarch_x86_64 -Xarch_device -Xcuda-ptxas -Xcuda-fatbinary -x -xc++
    -wrapper -B --prefix -specs --specs -config --config --config-system-dir --config-user-dir --no-default-config
    -fuse-ld -ld-path --ld-path -ccc-install-dir -ccc-gcc-name -ccc-print-phases -resource-dir -working-directory
    -print-file-name --print-search-dirs -target --target -mcpu -mtune -march -mllvm -Xclang -Xassembler -Xlinker
    -Xpreprocessor -Xanalyzer -Xclangas -Wa, -Wl, -Wp, -cc1 -cc1as -cc1gen-reproducer -### -v --version -help --help
    --driver-mode -fdriver-only -canonical-prefixes -no-canonical-prefixes -no-integrated-as -fno-integrated-as
    -no-integrated-cpp -fno-integrated-cc1 -fintegrated-cc1 -traditional-cpp -pipe -include -include-pch -imacros
    -ivfsoverlay -vfsoverlay -iprefix -isystem -I -D -U -idirafter -isysroot --sysroot -F -iframework
    -fapinotes-modules -iapinotes-modules -fdebug-compilation-dir -fdebug-prefix-map -fcoverage-prefix-map
    -ffile-prefix-map -frandomize-layout-seed-file -fsanitize -fsanitize-ignorelist -fsanitize-coverage-allowlist
    -fxray-always-instrument -mlink-builtin-bitcode -mlink-cuda-bitcode -fcuda-include-gpubinary -find-pch-source
    -main-file-name -pch-through-header -ftrivial-auto-var-init -fmacro-prefix-map -mregparm -mdebug-pass -print-stats
    -fbuiltin-module-map -fexperimental-openacc-macro-override -frewrite-includes -frewrite-map-file -C -CC -P -H
    -fdump-record-layouts -fdump-vtable-layouts -fplugin-arg- -Fmodule -arch -static -shared -r -Tpolly -z -u -e -L -l
    @evil.rsp @nested.rsp -- - --bogus -fbogus-x -fbogus-y=
""")
EVIL_LLVM = _words("""
    load polly polly-export polly-import polly-ast-dump polly-dot-graph stats stats-json info-output-file time-passes
    print-changed print-after-all print-module-scope filter-print-funcs dot-cfg-dir dot-cfg-after
    cfg-dot-filename-prefix view-edge-bundles view-dag-combine1-dags view-cfg callgraph-dot-filename-prefix
    debug-only debug pass-remarks-output
    lto-pass-remarks-output lto-embed-bitcode profile-file pgo-test-profile-file pgo-memop-max-version
    print-pipeline-passes opt-bisect-limit opt-bisect-print-ir-path verify-each reduce-crash mir-debugify
    irce-print-changed-loops ml-inliner-model-under-training training-log inliner-interactive-channel-base
    regalloc-evict-interactive-channel-base enable-ml-inliner cgscc-inline-replay function-annotation-filename
    sample-profile-file memprof-dot-file-path-prefix memprof-module-summary-prefix write-relbf
    amdgpu-dump-hsa-metadata attributor-print-dep print-summary-global-ids as-secure-log-file-name
    secure-log-file-name asm-show-inst dwarf-version emulated-tls fatal-warnings save-temp-labels crash-diagnostics-dir
    crel dump-input help help-list help-hidden version print-options print-all-options mlgokit-policy mlgokit-log
    mlgokit-decisions inline-threshold unroll-count simplify-cfg-sink trap-unreachable target-abi tail-merge-size
    bbsections-profile-path basic-block-sections ctx-profile-dump ctx-prof-use-prof start-after stop-after run-pass
""")
VALUES = (
    "./evil.so", "evil.so", "BUILD/evil.so", "precious", "./precious", "BUILD/precious", "../precious", "OUT/new",
    "BUILD/new", "new", "./new.d", "@evil.rsp", "@BUILD/evil.rsp", "-load", "-fplugin=./evil.so", "-o", "-Xclang",
    "-mllvm", "evil.cfg", "evil", "./evil", "evil,x", ".", "..", "BUILD", "", "=", ",", " ", "0", "1", "-1",
    "99999999999999999999",
    "native", "nvptx64", "amdgcn-amd-amdhsa", "gfx90a", "x86_64-pc-linux-gnu", "all", "obj", "cwd", "cl", "g++",
    "cuda", "c", "c++", "ir", "none", "list=precious", "file", "a=b", "a\nb", "\u00e9\u4e2d", "\udc80",
    "\x1b[31m", "$(touch new)",
    "`touch new`", ";touch new", "|touch new", "x" * 300, "%s%n", "*", "/dev/null", "a.h", "alias,precious",
    "precious,-load,./evil.so", "always", "thin", "full", "'", '"', "\\", "module.modulemap", "overlay.yaml",
)  # fmt: skip
"""``BUILD`` is the build's folder, ``OUT`` one beside it."""


@functools.cache
def _known(of_llvm: bool) -> tuple[str, ...]:  # noqa: FBT001  (the key of a cache)
    kinds = option_table().kinds
    return tuple(sorted(word for word, kind in kinds.items() if kind.startswith("llvm") == of_llvm))


def _one(rng: Rng, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]


def _value(rng: Rng) -> str:
    if rng.random() < 0.1:
        return _one(rng, EVIL)
    return _one(rng, VALUES)


def _spelled(rng: Rng, name: str, value: str | None) -> list[str]:
    """One option in one of the ways to write it, some of which no compiler takes."""
    if rng.random() < 0.06:
        name = name[: int(rng.integers(2, len(name) + 1))] if len(name) > 2 else name
    if rng.random() < 0.04:
        name = f"-{name}" if not name.startswith("--") else name[1:]
    if rng.random() < 0.02:
        name = name.swapcase()
    if value is None:
        return [name]
    how = int(rng.integers(5))
    if how == 0 or name.endswith(("=", ",")):
        return [name + value]
    if how == 1:
        return [f"{name}={value}"]
    if how == 2:
        return [name, f"={value}"] if rng.random() < 0.05 else [name, value]
    return [name, value]


def _hidden(rng: Rng, words: list[str]) -> list[str]:
    """The words behind an option that passes them on."""
    how = int(rng.integers(9))
    if how == 0:
        return [f"-Wp,{','.join(words)}"]
    if how == 1:
        return [f"-W{_one(rng, ('l', 'a'))},{','.join(words)}"]
    if how == 2:
        return [f"/clang:{word}" for word in words]
    if how == 3:
        return [f"-Xarch_{_one(rng, ('host', 'x86_64', 'device', 'arm64'))}", " ".join(words)]
    passed = _one(
        rng, ("-Xclang", "-Xclang", "-Xclang", "-Xpreprocessor", "-Xlinker", "-Xassembler", "-Xopenmp-target")
    )
    if rng.random() < 0.1:
        # The values of one option are words to another.
        words.insert(int(rng.integers(len(words) + 1)), passed)
    return [part for word in words for part in (passed, word)]


def _llvm(rng: Rng) -> list[str]:
    name = _one(rng, EVIL_LLVM) if rng.random() < 0.6 else _one(rng, _known(True))
    option = _one(rng, ("-", "-", "-", "--", "")) + name
    how = int(rng.integers(4))
    if how == 0:
        return ["-mllvm", option]
    if how == 1:
        return ["-mllvm", option, "-mllvm", _value(rng)]
    if how == 2:
        return [f"-mllvm={option}={_value(rng)}"]
    return ["-mllvm", f"{option}={_value(rng)}"]


def _option(rng: Rng, *, cc1: bool) -> list[str]:
    draw = rng.random()
    if draw < 0.15:
        words = _llvm(rng)
    else:
        name = _one(rng, EVIL) if draw < 0.75 else _one(rng, _known(False))
        words = _spelled(rng, name, _value(rng) if rng.random() < 0.75 else None)
    hide = rng.random()
    return _hidden(rng, words) if hide < (0.05 if cc1 else 0.4) else words


def line(rng: Rng, *, cc1: bool = False) -> list[str]:
    """Options of a driver, or after a ``-cc1`` that is not among them."""
    good = GOOD_CC1 if cc1 else GOOD
    parts = [[_one(rng, good)] for _ in range(int(rng.integers(0, 5)))]
    for _ in range(int(rng.integers(0, 3))):
        pair = list(PAIRS_CC1[int(rng.integers(len(PAIRS_CC1)))])
        parts.append(pair if cc1 else [part for word in pair for part in ("-Xclang", word)])
    for _ in range(int(rng.choice([0, 0, 1, 1, 1, 2, 3]))):
        parts.insert(int(rng.integers(len(parts) + 1)), _option(rng, cc1=cc1))
    words = [word for part in parts for word in part]
    how = rng.random()
    if words and how < 0.05:
        words += words
    elif len(words) > 1 and how < 0.10:
        at = int(rng.integers(len(words) - 1))
        words[at : at + 2] = [words[at] + words[at + 1]]
    elif how < 0.70:
        for _ in range(int(rng.integers(1, 4))):
            _shift(rng, words)
    return words


def _shift(rng: Rng, words: list[str]) -> None:
    """Drop, double, empty or move one word, so that others come to stand where a value or an option was."""
    if not words:
        return
    at, to, how = int(rng.integers(len(words))), int(rng.integers(len(words) + 1)), int(rng.integers(5))
    if how == 0:
        del words[at]
    elif how == 1:
        words.insert(to, words[at])
    elif how == 2:
        words[at] = ""
    elif how == 3:
        words.insert(to, "")
    else:
        words.insert(min(to, len(words) - 1), words.pop(at))
