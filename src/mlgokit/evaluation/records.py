"""The results of an evaluation, as values, from which reports are made; ``evaluation.json`` in ``docs/formats.md``.

``before`` is the baseline, plain unless another is asked for; ``after`` is the candidate. Sizes are bytes, times are
seconds.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mlgokit.builds.images import BuiltImage, FunctionBytes
from mlgokit.builds.variant import VariantRecord
from mlgokit.decode import check_format, decode, read_json
from mlgokit.manifest import finite_json, plain_json

FORMAT = "mlgokit evaluation"
FORMAT_VERSION = 1
MEASURES = ("objects", "link_aware", "text", "image")
"""The sizes by which projects are compared; fields of :class:`Sizes`."""
COST = "cost"
"""The measure by the cost of register allocation, which is recorded if it was asked for."""
TITLES = {
    "objects": "Objects",
    "link_aware": "Objects, link-aware",
    "text": "Linked .text",
    "image": "Linked image",
    COST: "Cost of register allocation",
}
LANGUAGES = {"c++": "C++", "c": "C"}
OK, BITCODE = "ok", "bitcode"
"""Statuses of successful compilations; the object of a link-time optimization is bitcode, which has no sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of one build of one project: what llvm-size calls text of all objects, and their link-aware score.

    ``text``, ``rodata``, ``eh_frame``, and their sum ``image``, are of the linked, garbage-collected images.
    """

    objects: int
    link_aware: float
    text: int
    rodata: int
    eh_frame: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFailure:
    """A module that one of the two builds could not compile, and why; it is left out of the sums of both."""

    module: str
    build: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionComparison:
    """A function whose bytes or cost differ; ``before`` or ``after`` is ``None`` if that build has no such function."""

    function: str
    before: FunctionBytes | None
    after: FunctionBytes | None
    comdat: bool = False

    @property
    def growth(self) -> int:
        """Bytes gained."""
        before, after = (0 if one is None else one.total for one in (self.before, self.after))
        return after - before


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """A module as one of the two builds compiled it; bytes as those of :class:`Sizes`, but of its object.

    Attributes:
        status: ``ok``, ``bitcode``, ``absent`` (this build made no such object), or how the compiler failed.
        reason: the compiler's first error.
        plugin: whether the compiler loaded the plugin.
        data: writable bytes.
        link_aware: link-aware score, by the baseline's weights of COMDAT signatures.
        user_seconds: processor time of the compiler.
    """

    status: str
    reason: str = ""
    plugin: bool = False
    objects: int = 0
    text: int = 0
    rodata: int = 0
    eh_frame: int = 0
    data: int = 0
    link_aware: float = 0.0
    user_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleComparison:
    """A module, by its name in the corpus or the path of its object in the build, and its functions that differ.

    ``functions`` is the number of different function names in both objects together.
    """

    module: str
    before: BuiltModule
    after: BuiltModule
    functions: int = 0
    differing: tuple[FunctionComparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageComparison:
    """A linked image, by its path in the build or the name of its project, and its functions that differ.

    ``functions`` is the number of different function names in both images together, 0 without symbol tables.
    """

    image: str
    before: BuiltImage
    after: BuiltImage
    functions: int = 0
    differing: tuple[FunctionComparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostComparison:
    """The costs of register allocation of a project's functions, compared function by function.

    Attributes:
        change: geometric mean of the functions' cost ratios, minus 1.
        counts_before: number of instructions in the baseline's code, by kind; see
            :data:`mlgokit.compiler.regalloc_cost.COUNTS`.
        unread: why the costs of some or all functions are missing; empty if none is.
    """

    functions: int
    change: float
    cheaper: int
    dearer: int
    counts_before: dict[str, int]
    counts_after: dict[str, int]
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectComparison:
    """One project, compared between the two builds.

    Attributes:
        language: ``c``, ``c++`` or ``unknown``.
        modules: number of modules that compiled in both builds.
        larger_modules: number of modules whose object is larger in the candidate.
        link_failure: why the images could not be linked, and then their sizes are 0; empty if they were.
        failures: modules that one of the builds could not compile.
        module_rows: every module, also those that failed.
        costs: costs of register allocation; ``None`` if they were not asked for.
    """

    project: str
    language: str
    modules: int
    before: Sizes
    after: Sizes
    larger_modules: int
    user_seconds_before: float
    user_seconds_after: float
    link_failure: str = ""
    failures: tuple[ModuleFailure, ...] = ()
    module_rows: tuple[ModuleComparison, ...] = ()
    images: tuple[ImageComparison, ...] = ()
    costs: CostComparison | None = None

    @property
    def is_linked(self) -> bool:
        """Whether the project counts in the summary: it has modules or images, and all images were linked."""
        return (self.modules > 0 or bool(self.images)) and not self.link_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureWeight:
    """The effect of one feature on one decision: the preference minus the one with the typical value instead.

    A positive ``change`` speaks for inlining; see :func:`~mlgokit.policy.normaliser.typical_values`.
    """

    feature: str
    value: int
    typical: float
    change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSite:
    """A call site about which the inliner was asked in one of the two builds, or in both.

    Attributes:
        site: key of the call site in hexadecimal.
        plain: whether LLVM inlined the call in the plain build; ``None`` if LLVM did not ask about it there.
        heuristic: whether LLVM would have inlined it in the candidate's build; ``None`` if LLVM did not ask there.
        decided: whether it was inlined in the candidate's build; ``None`` if LLVM did not ask about it there.
        by_table: whether the decision table of a tuned plugin decided.
        component: number of the component, if the decisions differ; else ``None``.
        preference: the policy's preference after its gate, positive for inlining; ``None`` if no policy file decided.
        members: number of networks of the policy; 0 if no policy file decided.
        agree: number of these networks that decide so alone, before gate and doubt.
        features: features that speak for the decision, the strongest first, if the decisions differ.
    """

    site: str
    caller: str
    callee: str
    plain: bool | None
    heuristic: bool | None
    decided: bool | None
    by_table: bool = False
    component: int | None = None
    preference: float | None = None
    members: int = 0
    agree: int = 0
    features: tuple[FeatureWeight, ...] = ()

    @property
    def llvm(self) -> bool | None:
        """LLVM's decision: in the plain build, or if it was not asked there, what it would do in the candidate's."""
        return self.heuristic if self.plain is None else self.plain

    @property
    def differs(self) -> bool:
        """Whether the candidate decided otherwise than LLVM."""
        return self.decided is not None and self.llvm is not None and self.decided != self.llvm


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedComponent:
    """A component: differing decisions whose effects in bytes cannot be separated.

    Call sites and functions refer to it by its ``number``, from 0. ``change`` is what its functions gained together,
    ``differences`` the number of call sites that are decided differently, ``functions`` that of functions that changed.
    """

    number: int
    change: int
    differences: int
    functions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFunction:
    """A function whose bytes (code, jump tables, exception table, unwind information) differ between the two objects.

    ``before`` and ``after`` are ``None`` if the object has no such function, ``component`` if no component can explain
    the change.
    """

    function: str
    before: int | None
    after: int | None
    component: int | None

    @property
    def change(self) -> int:
        """Bytes gained."""
        return (self.after or 0) - (self.before or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """One call in a call tree of a function.

    Attributes:
        depth: number of calls above this one in the tree.
        site: the call site.
        where: ``below``: in the function or in what is inlined there; ``above``: a call of the function; ``elsewhere``:
            in another function of its component, as when a function survives because its callers do.
    """

    depth: int
    site: ExplainedSite
    where: Literal["below", "above", "elsewhere"] = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTree:
    """The call tree of a function that grew or shrank much, as a report shows it.

    Attributes:
        module: module that was compiled again for the tree; other modules may have copies of the function.
        growth: bytes gained in the evaluation; negative for a function that shrank.
        failure: why there is no explanation, and then the fields below are empty; empty if there is one.
        before: bytes in the plain object; ``None`` if it has no such function, as ``after`` of the candidate's.
        component: component whose differences can explain the change; ``None`` if there is none.
        lines: the first lines of the call tree.
        more: number of lines that were left out.
    """

    function: str
    module: str
    project: str
    growth: int
    failure: str = ""
    before: int | None = None
    after: int | None = None
    component: ExplainedComponent | None = None
    lines: tuple[TreeLine, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The mean change over projects: geometric mean of ratios minus 1 (negative is smaller), with its interval."""

    mean: float
    low: float
    high: float
    projects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict whether to ship the candidate, by which measure, in a sentence with the figures that it rests on.

    ``reasons`` not to ship are one sentence each, and empty for ``ship``.
    """

    ship: bool
    measure: str
    sentence: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The comparison of all projects, and their mean changes.

    Attributes:
        policy: label of the candidate.
        summary: mean change by language, then by measure (``objects``, ``link_aware``, ``text``, ``image``, ``cost``).
        compilations: number of compilations.
        overall: mean change by measure, over the projects of all languages.
        baseline: compiler, version and optimization levels that both builds have in common.
        level: confidence level of the intervals, which resample projects with ``seed``.
        left_alone: a sentence for each policy that leaves modules to LLVM because of their architecture.
        verdict: verdict whether to ship; ``None`` if it was not asked for.
        trees: call trees of the functions that changed most, those that grew first.
        no_trees: why there are no call trees, if they were asked for.
        source: path of the corpus or the build.
        command: command line of the evaluation.
        toolchain: version of each tool.
    """

    policy: str
    projects: tuple[ProjectComparison, ...]
    summary: dict[str, dict[str, Change]]
    compilations: int
    overall: dict[str, Change] = field(default_factory=dict[str, Change])
    before: VariantRecord = field(default_factory=VariantRecord)
    after: VariantRecord = field(default_factory=VariantRecord)
    baseline: str = ""
    level: float = 0.95
    seed: int = 1
    left_alone: tuple[str, ...] = ()
    verdict: Verdict | None = None
    trees: tuple[FunctionTree, ...] = ()
    no_trees: str = ""
    source: str = ""
    command: str = ""
    mlgokit_version: str = ""
    toolchain: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """Convert the evaluation to the JSON values of ``evaluation.json``; a number that is not finite is ``None``."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **finite_json(plain_json(self))}

    @classmethod
    def from_json(cls, value: object) -> "Evaluation":
        """Decode what :meth:`to_json` encoded; unknown keys are ignored.

        Raises:
            InputError: the value has another format or version, lacks a key, or has a value of another type.
        """
        given = check_format(
            value, FORMAT, FORMAT_VERSION, where="evaluation", remedy="evaluate again with this version"
        )
        return decode(cls, given, "evaluation")


def read_evaluation(path: Path) -> Evaluation:
    """Read what ``mlgokit evaluate --output`` wrote.

    Raises:
        InputError: the file cannot be read, or is no evaluation.
    """
    return Evaluation.from_json(read_json(path, expected="an evaluation", remedy="evaluate again"))


def drop_rows(evaluation: Evaluation) -> Evaluation:
    """Drop modules, images and functions from an evaluation, which a summary does not need."""
    projects = tuple(dataclasses.replace(one, module_rows=(), images=()) for one in evaluation.projects)
    return dataclasses.replace(evaluation, projects=projects, trees=())
