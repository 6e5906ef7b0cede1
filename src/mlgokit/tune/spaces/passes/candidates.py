"""Passes of the code generator that may be left out, those first that gave most where it was measured.

LLVM asks a gate about these alone; what it requires, it never asks about. Of what it asks about, :data:`EXCLUDED` has
the passes that stay in nevertheless, with the reason.
"""

from collections.abc import Mapping

CANDIDATES = (
    "early-machinelicm",
    "block-placement",
    "codegenprepare",
    "machine-cse",
    "machine-sink",
    "twoaddressinstruction",
    "branch-folder",
    "shrink-wrap",
    "machine-cp",
    "machine-scheduler",
    "early-tailduplication",
    "tailduplication",
    "peephole-opt",
    "x86-cf-opt",
    "consthoist",
    "machinelicm",
    "x86-optimize-leas",
    "x86-fixup-bw-insts",
    "postra-machine-sink",
    "mergeicmps",
    "expand-memcmp",
    "x86-cmov-conversion",
    "early-ifcvt",
    "opt-phis",
    "dead-mi-elimination",
    "machine-latecleanup",
    "lrshrink",
    "partially-inline-libcalls",
    "x86-partial-reduction",
    "x86-avoid-sfb",
    "x86-execution-domain-fix",
    "x86-fixup-leas",
    "x86-domain-reassignment",
    "interleaved-access",
    "post-RA-sched",
)
"""By LLVM's arguments."""
REPEATED = ("machine-cp", "dead-mi-elimination")
"""Those that run twice on a function; the second time is a candidate of its own."""

EXCLUDED: Mapping[str, str] = {
    "x86-isel": "instructions are then selected as at -O0, which is several times slower",
    "stack-coloring": "variables then share no stack, so deep recursions may no longer fit",
    "stack-slot-coloring": "spills then share no stack, for the same reason",
    "fixup-statepoint-caller-saved": "garbage collectors go by what it does",
    "break-false-deps": "it costs bytes for speed only, which estimates do not see",
    "objc-arc-contract": "it runs over all functions before their code is generated",
    "Local Dynamic TLS Access Clean-up": "LLVM has no argument for it",
    "X86 Atom pad short functions": "LLVM has no argument for it",
    "remove-loads-into-fake-uses": "it is for debugging",
    "loop-reduce": "loop passes do not say whose loop it is",
    "canon-freeze": "loop passes do not say whose loop it is",
}
"""Asked about by LLVM, and always let run by a search."""
