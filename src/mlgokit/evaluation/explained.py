"""What is known of a function whose bytes changed: call sites, what each side decided there, and with which reasons."""

from dataclasses import dataclass
from typing import Literal


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
