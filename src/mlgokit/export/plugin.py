"""Export policies as one shared library that an unmodified clang loads with ``-fpass-plugin``."""

import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.plugin_name import publish_plugin
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import PolicyError, ToolError, UsageError
from mlgokit.policy.network import OutputKind, Policy
from mlgokit.policy.store import join_parts, load_policy, save_policy
from mlgokit.policy.targets import assign_targets, check_targets
from mlgokit.problems import INLINE_SIZE, PROBLEMS

# It has calls to inline and functions to compile, so that every policy in the plugin is asked.
_CHECK_SOURCE = "static int twice(int x) { return 2 * x; }\nint four(int x) { return twice(x) + twice(x + 1); }\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlugin:
    """An exported plugin.

    Attributes:
        plugin: path of the shared library, as requested; a symbolic link to ``versioned``.
        versioned: path of the file itself, whose name contains its digest; builds load this file.
        size_bytes: size of the shared library.
        flag: clang option that loads the plugin.
        targets: for each problem, the architectures that its policy decides for; LLVM decides for all others.
    """

    plugin: str
    versioned: str
    size_bytes: int
    flag: str
    targets: dict[str, tuple[str, ...]]


def export_plugin(
    toolchain: Toolchain,
    policies: Sequence[Path],
    output: Path,
    *,
    doubt: float | None = None,
    targets: Sequence[str] = (),
) -> ExportedPlugin:
    """Link ``policies`` into a plugin for ``toolchain`` at ``output``, and compile a small file with it as a check.

    Args:
        toolchain: toolchain whose clang is to load the plugin.
        policies: policy files, at most one for each problem and architecture.
        output: path of the plugin.
        doubt: doubt of policies that predict effects in bytes, in place of their own; see
            :class:`~mlgokit.policy.network.Policy`.
        targets: architectures that all policies decide for, in place of their own.

    Raises:
        PolicyError: a policy file is not usable.
        UsageError: there is no policy, or two for one problem decide for one architecture; ``doubt`` is negative, not
            finite, or given without a policy that predicts effects; or a target is not an architecture.
        ToolError: the plugin cannot be built, or clang cannot compile with it.
    """
    if targets:
        check_targets(targets)
    by_problem = join_by_problem(policies)
    if not by_problem:
        raise UsageError("policies: expected at least one policy file, found none; see `mlgokit export plugin --help`")
    if doubt is not None:
        check_doubt(doubt, by_problem.values())
    edited = {problem: _edit(policy, doubt, targets) for problem, policy in by_problem.items()}
    with tempfile.TemporaryDirectory(prefix="mlgokit-export-") as scratch:
        files = {problem: Path(scratch) / f"{problem}.policy" for problem in edited}
        for problem, policy in edited.items():
            save_policy(policy, files[problem])
        source, plugin = Path(scratch) / "check.c", Path(scratch) / "plugin.so"
        link_policies(toolchain, files, plugin)
        source.write_text(_CHECK_SOURCE)
        done = process.run(
            [toolchain.clang, "-Oz", f"-fpass-plugin={plugin}", "-c", source, "-o", f"{source}.o"],
            timeout_seconds=60,
        )
        if done.returncode != 0:
            raise ToolError(
                f"{output}: expected {toolchain.clang} to compile with the plugin, found: {first_error(done.stderr)}; "
                "train a policy for this compiler, or export for the compiler that it was trained with"
            )
        versioned = publish_plugin(plugin, output)
    return ExportedPlugin(
        plugin=str(output),
        size_bytes=output.stat().st_size,
        versioned=str(versioned),
        flag=f"-fpass-plugin={versioned}",
        targets={problem: policy.all_targets for problem, policy in edited.items()},
    )


def join_by_problem(files: Sequence[Path], *, in_links: Sequence[Path] = ()) -> dict[str, Policy]:
    """Load policies, and join those for one problem and different architectures or stages into one.

    Args:
        files: policy files.
        in_links: inlining policies that shall decide in links with link-time optimization, and nowhere else.

    Raises:
        PolicyError: a file is not usable.
        UsageError: two policies for one problem decide for one architecture, or one of ``in_links`` is not for
            inlining.
    """
    found: dict[str, list[tuple[Path, Policy]]] = {}
    for path, is_in_links in (*((path, False) for path in files), *((path, True) for path in in_links)):
        policy = load_policy(path)
        if is_in_links:
            policy = _decide_in_links(policy, path)
        if policy.problem not in PROBLEMS:
            raise PolicyError(
                f"policy {path}: expected a policy for {', '.join(PROBLEMS)}, found one for {policy.problem!r}; "
                "name a policy for one of them"
            )
        found.setdefault(policy.problem, []).append((path, policy))
    return {problem: _join(problem, pairs) for problem, pairs in found.items()}


def _decide_in_links(policy: Policy, path: Path) -> Policy:
    """Make all parts of an inlining policy decide in links."""
    if policy.problem != INLINE_SIZE.name:
        raise UsageError(
            f"--link: expected policies for {INLINE_SIZE.name}, found {path} for {policy.problem}, which decides in "
            "links as elsewhere; give it without --link"
        )
    return join_parts([replace(part, stage="link") for part in policy.parts])


def _join(problem: str, pairs: Sequence[tuple[Path, Policy]]) -> Policy:
    """Join the policies for one problem."""
    try:
        return join_parts([policy for _, policy in pairs])
    except ValueError as error:
        names = " and ".join(str(path) for path, _ in pairs)
        raise UsageError(
            f"policies: expected at most one for each problem and architecture, found {names} for {problem} ({error}); "
            "leave one out"
        ) from error


def _edit(policy: Policy, doubt: float | None, targets: Sequence[str]) -> Policy:
    """Put ``doubt`` and ``targets``, as far as they are given, in place of the policy's own."""
    edited = assign_targets(policy, targets) if targets else policy
    if doubt is None:
        return edited
    parts = edited.parts
    return join_parts(
        [replace(part, doubt=doubt) if part.output is OutputKind.EFFECT_BYTES else part for part in parts]
    )


def check_doubt(doubt: float, policies: Iterable[Policy]) -> None:
    """Check that ``doubt`` is valid and that at least one of ``policies`` predicts effects in bytes.

    Raises:
        UsageError: the number is negative or not finite, or no policy predicts effects.
    """
    if not (math.isfinite(doubt) and doubt >= 0):
        raise UsageError(
            f"doubt: expected a number of standard deviations, at least 0, found {doubt:g}; give 0 to decide by "
            "the mean prediction alone"
        )
    if all(policy.output is not OutputKind.EFFECT_BYTES for policy in policies):
        raise UsageError(
            "doubt: expected an inlining policy that predicts effects in bytes (output "
            f"{OutputKind.EFFECT_BYTES.value}), found none; leave --doubt out"
        )
