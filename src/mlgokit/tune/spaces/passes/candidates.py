"""What a search toggles when the code of a function is generated: passes, attributes and options of LLVM.

Optional passes ask a gate whether they may run; :data:`EXCLUDED` has those that always run nevertheless, with the
reason. In tables and trials :func:`mlgokit.compiler.reuse.trials.pass_number` of a name identifies each candidate.
"""

from collections.abc import Iterable, Mapping, Sequence

CANDIDATES = (
    "frame-pointer",
    "no-pushed-constants",
    "early-machinelicm",
    "minsize",
    "machine-scheduler",
    "block-placement",
    "codegenprepare",
    "machine-cse",
    "-grow-region-complexity-budget=0",
    "machine-sink",
    "twoaddressinstruction",
    "branch-folder",
    "-misched-prera-direction=topdown",
    "-machine-sink-split=0",
    "-disable-phi-elim-edge-splitting=1",
    "-pre-RA-sched=list-ilp",
    "-pre-RA-sched=source",
    "-greedy-reverse-local-assignment=1",
    "-sink-insts-to-avoid-spills=1",
    "no-jump-tables",
    "shrink-wrap",
    "machine-cp",
    "-tail-dup-placement=0",
    "-phi-elim-split-all-critical-edges=1",
    "-join-globalcopies=1",
    "-misched=ilpmin",
    "-force-precise-rotation-cost=1",
    "-pre-RA-sched=list-burr",
    "-join-splitedges=1",
    "early-tailduplication",
    "tailduplication",
    "peephole-opt",
    "consthoist",
    "machinelicm",
    "postra-machine-sink",
    "mergeicmps",
    "expand-memcmp",
    "early-ifcvt",
    "opt-phis",
    "dead-mi-elimination",
    "machine-latecleanup",
    "partially-inline-libcalls",
    "interleaved-access",
    "post-RA-sched",
    "postmisched",
)
"""What is toggled, those with the largest measured gains first: passes, by LLVM's command-line names, which are
skipped; :data:`ATTRIBUTES`; and :data:`OPTIONS`."""
ATTRIBUTES = ("minsize", "no-jump-tables", "frame-pointer", "no-pushed-constants")
"""Attributes of a function, before instructions are selected: ``minsize`` is removed, the others are added."""
_X86_ROWS = ("frame-pointer", "no-pushed-constants")
"""Attributes that save rows of unwind tables on x86; `plugin/passes/UnwindRows.cpp` says where they apply."""
OPTIONS = tuple(name for name in CANDIDATES if name.startswith("-"))
"""Options of LLVM, which are set while the code of one function is generated. `plugin/passes/FunctionOptions.cpp` has
the same."""
OUTLINED = frozenset({"aarch64", "arm", "thumbv6m", "riscv32", "riscv64"})
"""Architectures whose machine outliner takes code out of functions with ``minsize``. Trials do not see it, so there the
attribute stays."""
_TYPE_PROMOTION = "type-promotion"
_ARM = (
    "if-converter",
    "arm-prera-ldst-opt",
    "arm-ldst-opt",
    _TYPE_PROMOTION,
    "arm-execution-domain-fix",
    "arm-block-placement",
    "hardware-loops",
)
_X86 = (
    "x86-cf-opt",
    "x86-optimize-leas",
    "x86-fixup-bw-insts",
    "x86-cmov-conversion",
    "lrshrink",
    "x86-partial-reduction",
    "x86-avoid-sfb",
    "x86-execution-domain-fix",
    "x86-fixup-leas",
    "x86-domain-reassignment",
)
_RISCV = (
    "riscv-make-compressible",
    "riscv-codegenprepare",
    "riscv-merge-base-offset",
    "riscv-fold-mem-offset",
    "riscv-copyelim",
    "riscv-late-branch-opt",
    "riscv-load-store-opt",
    "riscv-move-merge",
    "riscv-push-pop-opt",
    _TYPE_PROMOTION,
    "riscv-dead-defs",
    "riscv-promote-const",
)
ONLY_ON: Mapping[str, tuple[str, ...]] = {
    "x86_64": _X86,
    "i386": _X86,
    "arm": _ARM,
    "thumbv6m": _ARM,
    "aarch64": (
        "aarch64-ldst-opt",
        "aarch64-ccmp",
        "aarch64-cond-br-tuning",
        "aarch64-condopt",
        "aarch64-copyelim",
        "aarch64-mi-peephole-opt",
        "aarch64-simdinstr-opt",
        "aarch64-stp-suppress",
        _TYPE_PROMOTION,
        "aarch64-dead-defs",
        "aarch64-promote-const",
    ),
    "riscv32": _RISCV,
    "riscv64": _RISCV,
}
"""By architecture, passes that only some targets run; they are toggled after the others."""
REPEATED = ("machine-cp", "dead-mi-elimination")
"""Passes that run more than once on a function; the second run is a candidate of its own."""

EXCLUDED: Mapping[str, str] = {
    **dict.fromkeys(
        ("x86-isel", "arm-isel", "aarch64-isel", "riscv-isel"),
        "instructions are then selected as at -O0, and the code is several times slower",
    ),
    "stack-coloring": "variables then share no stack, so deep recursions may no longer fit",
    "stack-slot-coloring": "spills then share no stack, for the same reason",
    "fixup-statepoint-caller-saved": "garbage collectors go by what it does",
    "break-false-deps": "it costs bytes for speed only, which estimates do not see",
    "objc-arc-contract": "it runs over all functions before their code is generated",
    "Local Dynamic TLS Access Clean-up": "LLVM has no argument for it",
    "X86 Atom pad short functions": "LLVM has no argument for it",
    "remove-loads-into-fake-uses": "it is for debugging",
    "loop-reduce": "loop passes do not say whose loop it is; it is left out beside passes of the optimizer",
    "canon-freeze": "loop passes do not say whose loop it is",
}
"""Optional passes that a search never leaves out, with the reason."""


def candidates_of(architectures: Iterable[str]) -> Sequence[tuple[str, int]]:
    """What to toggle on targets, by their :func:`mlgokit.module.architecture_of`.

    Returns:
        Names, each with the run of the pass on a function that is toggled: 0 for the first, and for what is no pass.

    Example:
        >>> found = candidates_of(["riscv32"])
        >>> ("riscv-copyelim", 0) in found, ("machine-cp", 1) in found, ("x86-cf-opt", 0) in found
        (True, True, False)
        >>> [[(name, 0) in found for found in (found, candidates_of(["x86_64"]))] for name in ATTRIBUTES]
        [[False, True], [True, True], [False, True], [False, True]]
    """
    targets = dict.fromkeys(architectures)
    unwanted = () if "x86_64" in targets or "i386" in targets else _X86_ROWS
    if not OUTLINED.isdisjoint(targets):
        unwanted = (*unwanted, "minsize")
    common = [name for name in CANDIDATES if name not in unwanted]
    target_specific = dict.fromkeys(name for one in targets for name in ONLY_ON.get(one, ()))
    return (*((name, 0) for name in (*common, *target_specific)), *((name, 1) for name in REPEATED))
