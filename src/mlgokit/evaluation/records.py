"""What an evaluation found, as values: what ``evaluation.json`` has, and what reports are made of.

``before`` is the side that is compared with, plain unless something else was asked for; ``after`` is the side that is
judged. Sizes are bytes, times are seconds.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mlgokit.builds.images import BuiltImage, FunctionBytes
from mlgokit.builds.variant import VariantRecord
from mlgokit.decode import decode, of_format, read_json
from mlgokit.manifest import finite_json, plain_json

FORMAT = "mlgokit evaluation"
FORMAT_VERSION = 1
MEASURES = ("objects", "link_aware", "text", "image")
"""The sizes that projects are compared by."""
COST = "cost"
"""The measure of register allocation, which is there if it was asked for."""
TITLES = {
    "objects": "Objects",
    "link_aware": "Objects, link-aware",
    "text": "Linked .text",
    "image": "Linked image",
    COST: "Cost of register allocation",
}
LANGUAGES = {"c++": "C++", "c": "C"}
OK, BITCODE = "ok", "bitcode"
"""How a compilation ended well; the object of a link-time optimization is bitcode, which has no sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of one build of one project; ``text``, ``rodata`` and ``eh_frame`` are of the linked image.

    Attributes:
        objects: sum over the objects of what llvm-size calls text.
        link_aware: sum over the objects of the link-aware score.
        text: machine code of the linked, garbage-collected image.
        rodata: its read-only data, exception tables included.
        eh_frame: its unwind tables.
        image: text + rodata + eh_frame.
    """

    objects: int
    link_aware: float
    text: int
    rodata: int
    eh_frame: int
    image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFailure:
    """A module that one of the two builds could not compile, and why; it is left out of both."""

    module: str
    build: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionComparison:
    """A function that is not the same in both builds; ``None`` where a build has none of that name."""

    function: str
    before: FunctionBytes | None
    after: FunctionBytes | None
    comdat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """One side of a module.

    Attributes:
        status: ``ok``, ``bitcode``, ``absent`` (this build made no such object), or how the compiler failed.
        reason: the compiler's first error.
        plugin: whether the compiler had loaded the plugin.
        objects: what llvm-size calls text: ``text`` + ``rodata`` + ``eh_frame``.
        text: executable sections.
        rodata: read-only data, exception tables included.
        eh_frame: unwind tables.
        data: writable bytes.
        link_aware: the link-aware score, by the weights of the build before.
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
    """A module, and those of its functions that differ.

    Attributes:
        module: its name in the corpus, or the path of its object in the build.
        before: one side.
        after: the other.
        functions: how many names of functions the two objects have together.
        differing: those whose bytes or costs are not the same.
    """

    module: str
    before: BuiltModule
    after: BuiltModule
    functions: int = 0
    differing: tuple[FunctionComparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageComparison:
    """A linked image, and those of its functions that differ, if it has a symbol table.

    Attributes:
        image: its path in the build, or the project's name.
        before: one side.
        after: the other.
        functions: how many names of functions the two images have together.
        differing: those whose code is not of the same size.
    """

    image: str
    before: BuiltImage
    after: BuiltImage
    functions: int = 0
    differing: tuple[FunctionComparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostComparison:
    """What register allocation costs a project's functions, each by itself.

    Attributes:
        functions: those with a cost in either build.
        change: geometric mean over them of the ratios of costs, less 1.
        cheaper: functions that cost less after.
        dearer: functions that cost more after.
        counts_before: instructions in the code, by kind; see :data:`mlgokit.compiler.regalloc_cost.COUNTS`.
        counts_after: likewise.
        unread: why the costs of some functions, or of all, are not there; else empty.
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
    """One project, both ways.

    Attributes:
        project: its name.
        language: ``c`` or ``c++``.
        modules: number of modules in both builds.
        before: sizes of the side that is compared with.
        after: sizes of the side that is judged.
        larger_modules: modules whose object grew.
        user_seconds_before: processor time of the compilations of the one.
        user_seconds_after: processor time of the compilations of the other.
        link_failure: why the images could not be linked, else empty; their sizes are 0 then.
        failures: modules left out of the sums.
        module_rows: every module, those that failed as well.
        images: what was linked.
        costs: of register allocation, if that was asked for and there were any.
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
        """Whether the project counts in the summary: something was compiled, and all images were linked."""
        return (self.modules > 0 or bool(self.images)) and not self.link_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureWeight:
    """What one feature does to one decision.

    Attributes:
        feature: its name.
        value: what it is at the call site.
        typical: what :func:`~mlgokit.policy.normaliser.typical_values` says.
        change: the preference, less the one with the typical value in place of this one; positive for inlining.
    """

    feature: str
    value: int
    typical: float
    change: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSite:
    """A call site about which the inliner was asked in one of the two builds, or in both.

    Attributes:
        site: its key in hexadecimal.
        caller: the function with the call.
        callee: the function called.
        plain: whether LLVM inlined it in the plain build; nothing if it was not asked there.
        heuristic: whether LLVM would have inlined it in the judged build; nothing if it was not asked there.
        decided: whether it was inlined in the judged build; nothing likewise.
        by_table: whether the decision table of a tuned plugin decided.
        component: of a difference, the number of its component; else nothing.
        preference: the policy's, positive for inlining, after its gate; nothing where no policy file decided.
        members: networks of the policy; 0 likewise.
        agree: how many of them, asked alone and before gate and doubt, decide so.
        features: of a difference, those that speak for the decision, the loudest first.
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
        """What LLVM did in the plain build, or would have done in the judged one if it was not asked there."""
        return self.heuristic if self.plain is None else self.plain

    @property
    def differs(self) -> bool:
        """Whether the judged build decided otherwise than LLVM."""
        return self.decided is not None and self.llvm is not None and self.decided != self.llvm


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedComponent:
    """Differences whose effects cannot be separated.

    Attributes:
        number: by which call sites and functions name it, from 0.
        change: bytes that its functions gained together.
        differences: call sites.
        functions: whose sizes changed.
    """

    number: int
    change: int
    differences: int
    functions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedFunction:
    """A function whose bytes are not the same in both objects; ``None`` where an object has none of that name.

    Attributes:
        function: its name.
        before: bytes in the plain object: code, jump tables, exception table and unwind information.
        after: bytes in the judged one.
        component: the number of the one whose differences explain the change; nothing if none does.
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
    """One call of a tree.

    Attributes:
        depth: calls above it, from 0.
        site: the call.
        where: in the function or in what is inlined there; a call of the function; or elsewhere in its component, as
            when a function lives on because its callers do.
    """

    depth: int
    site: ExplainedSite
    where: Literal["below", "above", "elsewhere"] = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTree:
    """A function that grew or shrank much, and why, as a report shows it.

    Attributes:
        function: its name.
        module: where it was looked at; other modules may have copies.
        project: whose module that is.
        growth: bytes gained in the evaluation; negative for those that shrank.
        failure: why nothing is known, else empty; then all below is empty.
        before: bytes in the plain object; nothing if it has no such function.
        after: bytes in the judged one, likewise.
        component: of the differences that can explain the change; nothing if none does.
        lines: the call tree, the first ones of it.
        more: how many lines were left out.
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
    """Geometric mean of ratios less 1 (negative is smaller), with its interval over projects."""

    mean: float
    low: float
    high: float
    projects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether to ship the side that is judged.

    Attributes:
        ship: the answer.
        measure: what was judged.
        sentence: the answer and the figures that it rests on.
        reasons: why not, one sentence each; none if it ships.
    """

    ship: bool
    measure: str
    sentence: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All projects, and the summary by language and measure.

    Attributes:
        policy: what was judged, in words.
        projects: one comparison each.
        summary: language -> measure (``objects``, ``link_aware``, ``text``, ``image``, ``cost``) -> change.
        compilations: compilations spent.
        overall: measure -> change, over the projects of all languages.
        before: the side that is compared with.
        after: the side that is judged.
        baseline: compiler, version and levels that both sides have in common.
        level: probability that the intervals are made for.
        seed: of the intervals.
        left_alone: which policies leave code to LLVM because of the processor that it is for, a sentence each.
        verdict: if it was asked for.
        trees: why the functions are larger or smaller that changed most, those that grew first.
        no_trees: why there are none, if they were wanted.
        source: the corpus or the build.
        command: what was typed.
        mlgokit_version: of this package.
        toolchain: tool name -> version.
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
        """The evaluation as plain JSON values, as in ``evaluation.json``; a number that is not finite is ``None``."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **finite_json(plain_json(self))}

    @classmethod
    def from_json(cls, value: object) -> "Evaluation":
        """The evaluation that :meth:`to_json` gave; keys that are not known are ignored.

        Raises:
            InputError: another format or version, a missing key, or a value of another type.
        """
        given = of_format(value, FORMAT, FORMAT_VERSION, where="evaluation", remedy="evaluate again with this version")
        return decode(cls, given, "evaluation")


def read_evaluation(path: Path) -> Evaluation:
    """Read what ``mlgokit evaluate --output`` wrote.

    Raises:
        InputError: the file cannot be read, or is no such file.
    """
    return Evaluation.from_json(read_json(path, expected="an evaluation", remedy="evaluate again"))


def without_rows(evaluation: Evaluation) -> Evaluation:
    """The same without modules, images and functions: what a summary needs."""
    projects = tuple(dataclasses.replace(one, module_rows=(), images=()) for one in evaluation.projects)
    return dataclasses.replace(evaluation, projects=projects, trees=())
