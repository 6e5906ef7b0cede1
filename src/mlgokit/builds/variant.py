"""The two ways of building that are compared: plain, under policies, with a plugin, with other options."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mlgokit.compiler.regalloc_cost import link_option
from mlgokit.compiler.request import PluginUse
from mlgokit.compiler.rust.compile import plugin_words
from mlgokit.compiler.wrapper_folder import plugin_settings
from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.corpus.options.edits import CommandLineEdits, command_line_edits, edit_command_line
from mlgokit.errors import InputError, PolicyError, UsageError
from mlgokit.files import digest_file
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.pretrained import BUILTIN, policy_files
from mlgokit.policy.store import load_policy, read_policy_bytes
from mlgokit.policy.targets import describe_other_targets
from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.tables.file import list_tables, read_plugin_data

PluginPlace = Literal["compile", "link", "both"]
"""Where a build loads the plugin; only a link-time optimization has something to decide in the link."""
BuildPlace = Literal[PluginPlace, "rustc", "all"]
"""Steps of a build that load a plugin."""
COMPILE_PLACES, LINK_PLACES, RUSTC_PLACES = ("compile", "both", "all"), ("link", "both", "all"), ("rustc", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRecord:
    """The record of a variant in ``evaluation.json``, see ``docs/formats.md``; what was not given is empty."""

    label: str = "plain"
    policies: dict[str, str] = field(default_factory=dict[str, str])
    plugin: str = ""
    options: tuple[str, ...] = ()
    link_options: tuple[str, ...] = ()
    plugin_in: str = ""
    digests: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of the two ways of building that are compared.

    Attributes:
        use: what the plugin shall do; ``None`` to build without it.
        record: the record of the variant for ``evaluation.json``.
    """

    use: PluginUse | None = None
    record: VariantRecord = field(default_factory=VariantRecord)

    @property
    def compiles_with_plugin(self) -> bool:
        """Whether compilers load the plugin."""
        return self.use is not None and self.record.plugin_in != "link"

    @property
    def links_with_plugin(self) -> bool:
        """Whether linkers load the plugin."""
        return self.use is not None and self.record.plugin_in in {"link", "both"}

    @property
    def allocates_only(self) -> bool:
        """Whether the variant changes register allocation alone, as far as its policies and options tell."""
        problems = [PROBLEMS[problem] for problem in self.record.policies]
        return bool(problems) and not self.record.options and all(problem.by_regalloc_cost for problem in problems)


PLAIN_VARIANT = Variant()


def changes_allocation(side: Variant) -> bool:
    """Whether a variant changes register allocation, by a policy or by a table in its plugin.

    Raises:
        InputError: the plugin cannot be read.
    """
    tables = list_tables(Path(side.record.plugin)) if side.record.plugin else ()
    return "allocations" in tables or any(PROBLEMS[problem].by_regalloc_cost for problem in side.record.policies)


def describe_inactive_policies(side: Variant, architectures: Mapping[str, int], *, has_links: bool) -> tuple[str, ...]:
    """Describe the policies of a variant, or in its plugin, that do not act: they are for another processor, or links.

    Args:
        side: the variant.
        architectures: number of modules by architecture.
        has_links: whether a link compiles some of them, with -flto.

    Raises:
        InputError: the plugin cannot be read.
        PolicyError: a file is no usable policy.
    """
    chosen = side.record.policies
    found: dict[str, Policy] = {}
    for path in (Path(policy) for policy in chosen.values() if not policy.startswith(":")):
        found[str(path) if path.name in found else path.name] = load_policy(path)
    if side.record.plugin:
        data = Path(side.record.plugin).read_bytes()
        for problem in PROBLEMS if data.startswith(b"\x7fELF") else ():
            name = f"{Path(side.record.plugin).name}, {problem}"
            if inside := read_plugin_data(data, problem.replace("-", "_")):
                found[name] = read_policy_bytes(inside, name)
    return describe_other_targets(found, architectures, has_links=has_links)


def policies_by_problem(texts: Sequence[str]) -> dict[str, str]:
    """Assign policy files and rules to the problems that they decide; a rule without a problem is for inlining.

    A name may stand for several policies, see :func:`~mlgokit.policy.pretrained.policy_files`.

    Raises:
        PolicyError: a file is no usable policy.
        UsageError: a rule or problem does not exist, or two are for the same problem.

    Example:
        >>> policies_by_problem([":never", "regalloc-eviction=:first"])
        {'inline-size': ':never', 'regalloc-eviction': ':first'}
    """
    found: dict[str, str] = {}
    for text in _expand_builtin(texts):
        named, is_named, rest = text.partition("=:")
        problem, policy = (named, f":{rest}") if is_named else (INLINE_SIZE.name, text)
        if problem not in PROBLEMS:
            raise UsageError(
                f"policy {text}: expected a problem among {', '.join(PROBLEMS)}, found {problem!r}; name one of these"
            )
        if not policy.startswith(":"):
            policy = str(Path(policy))
            problem = load_policy(Path(policy)).problem
            if problem not in PROBLEMS:
                raise PolicyError(
                    f"policy {text}: expected a policy for {', '.join(PROBLEMS)}, found one for {problem!r}; "
                    "name another"
                )
        elif policy not in (rules := PROBLEMS[problem].rules):
            others = "; for register allocation write PROBLEM=RULE" if not is_named else ""
            raise UsageError(f"policy {text}: expected a file or {', '.join(rules)}; correct the name{others}")
        if problem in found:
            raise UsageError(
                f"policies: expected at most one for each problem, found {found[problem]} and {policy} for {problem}; "
                "leave one out"
            )
        found[problem] = policy
    return found


def _expand_builtin(texts: Sequence[str]) -> Iterator[str]:
    """Replace the names of policies that come with the package by their files; other texts are passed on."""
    for text in texts:
        yield from map(str, policy_files([text])) if text.startswith(BUILTIN) else [text]


def make_variant(
    policies: Sequence[str] = (),
    *,
    plugin: Path | None = None,
    options: Sequence[str] = (),
    link_options: Sequence[str] = (),
    plugin_in: PluginPlace = "compile",
) -> Variant:
    """Make a variant, checked before anything is compiled; it has either policies or a plugin.

    ``policies`` are files and rules, as for :func:`policies_by_problem`; the options are added to each compilation or
    link, and ``plugin_in`` has the steps that load the plugin.

    Raises:
        InputError: the plugin cannot be read.
        PolicyError: a file is no usable policy.
        UsageError: policies and a plugin were given, or the policies contradict each other.
    """
    if plugin is not None and policies:
        raise UsageError(
            "evaluate: expected either policies or a plugin for the candidate, and likewise for the baseline, "
            f"found {', '.join(policies)} and {plugin} for one of them; put policies into one plugin with `mlgokit "
            "export plugin`"
        )
    if plugin is not None and not plugin.is_file():
        raise InputError(f"{plugin}: expected a plugin, found no such file; correct the path")
    chosen = policies_by_problem(policies)
    files = [Path(policy) for policy in chosen.values() if not policy.startswith(":")]
    files += [] if plugin is None else [plugin]
    # Absolute, as a build runs in another folder.
    found = {
        problem: policy if policy.startswith(":") else str(Path(policy).absolute())
        for problem, policy in chosen.items()
    }
    use = None
    if chosen or plugin is not None:
        use = PluginUse(plugin=plugin, policies=found, any_level=INLINE_SIZE.name in found)
    record = VariantRecord(
        label=_label(chosen, plugin, (*options, *link_options)),
        policies=chosen,
        plugin="" if plugin is None else str(plugin),
        options=tuple(options),
        link_options=tuple(link_options),
        plugin_in="" if use is None else plugin_in,
        digests={str(path): digest_file(path) for path in files},
    )
    return Variant(use=use, record=record)


def plugin_link_option(plugin: Path, *, linker: str = "clang") -> str:
    """Make the option with which a link loads a plugin.

    Example:
        >>> plugin_link_option(Path("/p.so")), plugin_link_option(Path("/p.so"), linker="/usr/bin/ld.lld-22")
        ('-Wl,--load-pass-plugin=/p.so', '--load-pass-plugin=/p.so')
    """
    return link_option(f"--load-pass-plugin={plugin.absolute()}", linker)


def plugin_options(plugin: Path, place: BuildPlace) -> AddedOptions:
    """Make the options with which compilers and linkers of a build load a plugin, in the given steps."""
    return AddedOptions(
        compile=(f"-fpass-plugin={plugin.absolute()}",) if place in COMPILE_PLACES else (),
        lto_link=(plugin_link_option(plugin),) if place in LINK_PLACES else (),
        rustc=tuple(plugin_words(plugin)) if place in RUSTC_PLACES else (),
        cache=cache_key(plugin, plugin_settings()) if place in LINK_PLACES else "",
    )


def with_options(added: AddedOptions, first: AddedOptions) -> AddedOptions:
    """Options for a build that is compiled with ``first`` as well."""
    return dataclasses.replace(added, compile=(*first.compile, *added.compile), link=(*first.link, *added.link))


def cache_key(plugin: Path, settings: Mapping[str, str] | None = None) -> str:
    """Make the suffix of the ThinLTO cache of links with a plugin and its environment variables ``settings``."""
    return digest_value([digest_file(plugin), dict(settings or {})])[:12]


def modules_of_variant(modules: Sequence[Module], side: Variant) -> list[Module]:
    """Add a variant's options to the command lines of modules, at the end.

    Raises:
        UsageError: a word among the options is no option.
    """
    if not side.record.options:
        return list(modules)
    edits: CommandLineEdits = command_line_edits(add=[" ".join(side.record.options)])
    return [
        dataclasses.replace(
            module,
            command_line=("-cc1", *edit_command_line(module.command_line[1:], edits, where=module.name)),
            allowed_options=(*module.allowed_options, *edits.allowed),
        )
        for module in modules
    ]


def _label(policies: dict[str, str], plugin: Path | None, options: Sequence[str]) -> str:
    parts = [policy if problem == INLINE_SIZE.name else f"{problem} {policy}" for problem, policy in policies.items()]
    parts += [] if plugin is None else [str(plugin)]
    parts += [" ".join(options)] if options else []
    return ", ".join(parts) or "plain"
