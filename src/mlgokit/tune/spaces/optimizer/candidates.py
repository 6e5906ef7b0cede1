"""Which passes of the optimizer may be left out, and which are tried first."""

from collections.abc import Mapping

EXCLUDED: Mapping[str, str] = {
    "InlinerPass": "whether a call is inlined is a decision of its own",
    "ModuleInlinerWrapperPass": "it holds the inliner and what runs with it",
    "LoopSimplifyPass": "loop passes count on the form that it makes",
    "LCSSAPass": "loop passes count on the form that it makes, and crash or make other programs without it",
    "CorrelatedValuePropagationPass": "it says of every function that it changed it, and gave 0.01 %",
    "LowerConstantIntrinsicsPass": "calls that it proves dead may name functions that are nowhere",
    "LowerExpectIntrinsicPass": "probabilities of branches would be lost, by which all estimates go",
    "PostOrderFunctionAttrsPass": "what it finds is seen by callers in other components",
    "ArgumentPromotionPass": "callers in other components change with a signature",
    "CoroSplitPass": "a coroutine is not whole without it",
    "CoroElidePass": "a coroutine is not whole without it",
    "CoroAnnotationElidePass": "a coroutine is not whole without it",
    "EntryExitInstrumenterPass": "who asked for instrumentation wants it everywhere",
    "InjectTLIMappings": "it says what exists, and changes no code",
    "AlignmentFromAssumptionsPass": "it says what is known, and changes no code",
    "LoopSinkPass": "it goes by profiles",
    "AnnotationRemarksPass": "it only reports",
    "WarnMissedTransformationsPass": "it only reports",
}
"""Asked about by LLVM, and always let run by a search, with the reason."""

MINSIZE = "minsize"
"""No pass: the attribute, which stands with passes that change a function; without it, it is made as at ``-Os``."""

FIRST: Mapping[str, float] = {
    MINSIZE: 20.0,
    "MemCpyOptPass": 9.1,
    "LICMPass": 6.9,
    "IndVarSimplifyPass": 5.3,
    "InstSimplifyPass": 2.0,
    "GVNPass": 1.6,
    "SLPVectorizerPass": 1.4,
    "SimplifyCFGPass": 0.9,
    "LoopRotatePass": 0.9,
    "SROAPass": 0.65,
    "InstCombinePass": 0.6,
    "TailCallElimPass": 0.6,
    "ReassociatePass": 0.3,
    "JumpThreadingPass": 0.1,
    "EarlyCSEPass": 0.1,
}
"""Bytes that were saved, on the average, where a pass was left out of a function that it had changed."""
