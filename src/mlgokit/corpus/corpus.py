"""A corpus on disk: LLVM's layout, and a sidecar with further facts about the modules.

``corpus_description.json``  ``{"has_thinlto": false, "modules": ["leveldb/db/db_impl.cc.o", ...]}``; may have
                             ``global_command_override``, a command line that serves every module
``<name>.bc``                the module's bitcode, before any optimization
``<name>.cmd``               its command line for ``clang -cc1``, each option ended by a NUL byte; no input or output
``<name>.thinlto.bc``        if ``has_thinlto``: what ThinLTO knows of the other modules; empty for a module alone
``corpus_modules.json``      ours, optional: see :func:`write_sidecar`

Made by others (``extract_ir`` and its siblings in ``llvm/utils/mlgo-utils``), a corpus loads as well.
"""

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from mlgokit.compiler.options.safety import LONGEST_COMMAND_LINE, check_file
from mlgokit.corpus.files import open_untrusted, read_bytes
from mlgokit.corpus.layout import (
    DESCRIPTION_NAME,
    SIDECAR_NAME,
    SIDECAR_VERSION,
    UNSPECIFIED,
    bitcode_path,
    check_name,
    decode_command_line,
    default_project,
    language_of,
    thinlto_index_path,
)
from mlgokit.corpus.options.edits import NO_EDITS, CommandLineEdits, command_line_to_compile
from mlgokit.corpus.options.override import parse_override
from mlgokit.decode import decode
from mlgokit.errors import CorpusError, InputError
from mlgokit.files import atomic_write
from mlgokit.module import Module

MOST_MODULES = 1_000_000
MOST_BITCODE_BYTES = 1 << 30
MOST_JSON_BYTES = 1 << 27
"""Limits on what is read from a corpus, which may come from elsewhere."""

_OPTIONAL = frozenset({"split", "profile_mismatched", "profile_missing"})
"""Optional fields of the sidecar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """A module's entry of the sidecar: fields of a :class:`Module` that LLVM's layout lacks; any may be missing."""

    project: str = ""
    language: str = ""
    held_out: bool = False
    source: str | None = None
    front_end_seconds: float | None = None
    bitcode_bytes: int = 0
    bitcode_sha256: str | None = None
    text_bytes: int | None = None
    split: str | None = None
    profile_mismatched: int | None = None
    profile_missing: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFailure:
    """A module that could not be extracted or loaded, and why."""

    name: str
    project: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The modules of a folder.

    Attributes:
        modules: the modules that can be compiled, in the order of the description.
        failures: sources that gave no module when the corpus was extracted.
        missing: modules that the description names, but that are missing or incomplete, or whose options are refused.
        has_thinlto: whether each module has a ``<name>.thinlto.bc``.
        override: the options in the description's ``global_command_override``, unchanged; ``None`` without.
    """

    folder: Path
    modules: tuple[Module, ...]
    failures: tuple[ModuleFailure, ...] = ()
    missing: tuple[ModuleFailure, ...] = ()
    has_thinlto: bool = False
    override: tuple[str, ...] | None = None


def load_corpus(folder: Path, edits: CommandLineEdits = NO_EDITS) -> Corpus:
    """Read a corpus; of bitcode, only the presence and the size are checked.

    A duplicate name gives one module. Command lines are those that are compiled: with the user's ``edits``, without
    options of the front end, and checked (:mod:`mlgokit.compiler.options.safety`). A module whose command line is
    refused counts as missing.

    Raises:
        CorpusError: the folder is no corpus, is empty, or none of its modules can be used.
        UsageError: an option that is to be replaced is not in a module's command line.
    """
    description, names = read_description(folder)
    # No compiler takes an absolute path for an option, and a sandbox hides the folder that `..` begins in.
    root = folder.resolve()
    if not names:
        raise CorpusError(
            f"{folder}: expected at least one module in {DESCRIPTION_NAME}, found none; extract the corpus again"
        )
    if len(names) > MOST_MODULES:
        raise CorpusError(
            f"{folder / DESCRIPTION_NAME}: expected at most {MOST_MODULES} modules, found {len(names)}; "
            "make several corpora of it"
        )
    has_thinlto = description.get("has_thinlto", False)
    if not isinstance(has_thinlto, bool):
        raise CorpusError(
            f"{folder / DESCRIPTION_NAME}: has_thinlto: expected true or false, found {has_thinlto!r}; correct it there"
        )
    override = _override(description, folder)
    where = f"{folder / DESCRIPTION_NAME}: global_command_override"
    shared = None if override is None else parse_override(override, where=where)
    facts, failures = read_sidecar(folder)
    project_of = _make_project_of(folder, facts)
    modules: list[Module] = []
    missing: list[ModuleFailure] = []
    for name in dict.fromkeys(names):
        check_name(name, folder)
        fact = {"project": project_of(name), **facts.get(name, {})}
        named = name if shared is None else where
        module = _load_module(root, name, edits, facts=fact, override=shared, where=named, has_thinlto=has_thinlto)
        if isinstance(module, Module):
            modules.append(module)
        else:
            missing.append(module)
    if not modules:
        first = missing[0]
        raise CorpusError(
            f"{folder}: expected the modules that {DESCRIPTION_NAME} names, found none of {len(missing)} usable "
            f"({first.name}: {first.reason}); extract the corpus again"
        )
    return Corpus(
        folder=folder,
        modules=tuple(modules),
        failures=failures,
        missing=tuple(missing),
        has_thinlto=has_thinlto,
        override=override,
    )


def read_description(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Read a corpus's description: its fields without ``modules``, and the names of the modules.

    Raises:
        CorpusError: the description is missing or malformed.
    """
    description = read_object(folder / DESCRIPTION_NAME, "extract a corpus there or give another folder")
    names = _texts(description.pop("modules", None), folder / DESCRIPTION_NAME, "modules")
    return description, names


def module_facts(module: Module) -> dict[str, Any]:
    """Make a module's entry of the sidecar."""
    facts = {one.name: getattr(module, one.name) for one in fields(ModuleFacts)}
    return {key: value for key, value in facts.items() if value is not None or key not in _OPTIONAL}


def write_sidecar(folder: Path, facts: Mapping[str, Mapping[str, Any]], failures: Iterable[ModuleFailure]) -> None:
    """Write ``{"format_version": 1, "modules": {name: facts}, "failures": [{"name", "project", "reason"}]}``."""
    failed = [asdict(failure) for failure in failures]
    sidecar = {"format_version": SIDECAR_VERSION, "modules": facts, "failures": failed}
    atomic_write(folder / SIDECAR_NAME, json.dumps(sidecar, indent=1) + "\n", durable=True)


def read_sidecar(
    folder: Path, remedy: str = f"delete {SIDECAR_NAME} to load the corpus without it"
) -> tuple[dict[str, dict[str, Any]], tuple[ModuleFailure, ...]]:
    """Read the sidecar: facts by module name, and failures; both empty without one.

    Raises:
        CorpusError: the sidecar is malformed or of another version.
    """
    path = folder / SIDECAR_NAME
    if not path.exists():
        return {}, ()
    sidecar = read_object(path, remedy)
    if sidecar.get("format_version") != SIDECAR_VERSION:
        version = sidecar.get("format_version")
        raise CorpusError(f"{path}: format_version: expected {SIDECAR_VERSION}, found {version!r}; {remedy}")
    modules, failures = sidecar.get("modules"), sidecar.get("failures", [])
    if not isinstance(modules, dict) or not isinstance(failures, list):
        raise CorpusError(
            f"{path}: expected an object 'modules' and a list 'failures', found only one of them, or neither; {remedy}"
        )
    facts = cast("dict[str, dict[str, Any]]", modules)
    try:
        for name, value in facts.items():
            decode(ModuleFacts, value, f"{path}: module {name!r}")
        return facts, decode(tuple[ModuleFailure, ...], failures, f"{path}: failures")
    except InputError as error:
        raise CorpusError(f"{error}; {remedy}") from error


def _make_project_of(folder: Path, facts: Mapping[str, Mapping[str, Any]]) -> Callable[[str], str]:
    """Make a function that names the project of a module without an entry in the sidecar.

    The modules of one build are one project, with the name that the sidecar gives other modules, or else that of the
    corpus's folder. A corpus joined from others has one project for each, named by the first folder of module names.
    """
    known = {str(fact["project"]) for fact in facts.values() if "project" in fact}
    build = next(iter(known)) if len(known) == 1 else default_project(folder)

    @functools.cache
    def name_project(first: str) -> str:
        """Name the project of modules by the first folder of their names: that folder if it was a corpus or project."""
        # Path.is_file raises an error about a name that is too long.
        is_corpus = os.path.isfile(folder / first / DESCRIPTION_NAME)  # noqa: PTH113
        return first if first in known or is_corpus else build

    return lambda name: name_project(name.split("/", maxsplit=1)[0])


def _load_module(
    folder: Path,
    name: str,
    edits: CommandLineEdits,
    *,
    facts: Mapping[str, Any],
    override: tuple[str, ...] | None,
    where: str,
    has_thinlto: bool,
) -> Module | ModuleFailure:
    """Load a module; ``where`` names its command line in messages."""
    bitcode, index = bitcode_path(folder, name), thinlto_index_path(folder, name)
    command_file = folder / f"{name}.cmd"
    size, given, words = 0, override or (), ()
    try:
        os.fsencode(name)
        reason = check_file(bitcode, "bitcode", folder=folder, most_bytes=MOST_BITCODE_BYTES)
        if reason is None and override is None:
            reason = check_file(command_file, "a command line", folder=folder, most_bytes=LONGEST_COMMAND_LINE)
        if reason is None and has_thinlto:
            reason = check_file(index, "the module's ThinLTO index", folder=folder, most_bytes=MOST_BITCODE_BYTES)
        if reason is None:
            size = bitcode.stat().st_size
            given = override or decode_command_line(command_file.read_bytes())
            reason = None if size else f"expected bitcode in {bitcode.name}, found an empty file"
    except UnicodeError:
        reason = f"expected a name that a file can have, found {name!r}"
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    if reason is None:
        words, reason = command_line_to_compile(given, edits, folder=folder, where=where, has_thinlto=has_thinlto)
    if reason is not None:
        return ModuleFailure(name=name, project=facts["project"], reason=reason)
    return Module(
        name=name,
        project=facts["project"],
        language=facts.get("language", language_of(name, given)),
        held_out=facts.get("held_out", False),
        split=facts.get("split"),
        bitcode=bitcode,
        command_line=words,
        allowed_options=edits.allowed,
        source=facts.get("source"),
        bitcode_bytes=size,
        bitcode_sha256=facts.get("bitcode_sha256"),
        front_end_seconds=facts.get("front_end_seconds"),
        text_bytes=facts.get("text_bytes"),
        profile_mismatched=facts.get("profile_mismatched"),
        profile_missing=facts.get("profile_missing"),
        thinlto_index=index if has_thinlto else None,
    )


def _override(description: Mapping[str, Any], folder: Path) -> tuple[str, ...] | None:
    if "global_command_override" not in description:
        return None
    where = folder / DESCRIPTION_NAME
    options = _texts(description["global_command_override"], where, "global_command_override")
    if not options or options == [UNSPECIFIED]:
        raise CorpusError(
            f"{where}: global_command_override: expected the options for clang -cc1, found {options}; fill them in"
        )
    return tuple(options)


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object from a regular file of a corpus of at most :data:`MOST_JSON_BYTES`.

    Raises:
        CorpusError: the file is missing or too large, is a link out of the corpus, or has no JSON object in it.
    """
    try:
        # Path.resolve fails where a link leads to itself.
        real = Path(os.path.realpath(path))
        if path.is_symlink() and not real.is_relative_to(path.parent.resolve()):
            raise CorpusError(
                f"{path}: expected a file inside the corpus, found a link to {real}; replace the link by a copy"
            )
        with open_untrusted(path, "No such file or directory") as descriptor:
            size = os.fstat(descriptor).st_size
            if size > MOST_JSON_BYTES:
                raise CorpusError(
                    f"{path}: expected a regular file of at most {MOST_JSON_BYTES} bytes, found one of {size}; {remedy}"
                )
            value: object = json.loads(read_bytes(descriptor, 0, size))
    except InputError as error:
        raise CorpusError(f"{path}: expected a file, found: {error}; {remedy}") from error
    except OSError as error:
        raise CorpusError(f"{path}: expected a file, found: {error.strerror or error}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path}: expected JSON, found: {error}; {remedy}") from error
    if not isinstance(value, dict):
        raise CorpusError(f"{path}: expected a JSON object, found {type(value).__name__}; {remedy}")
    return cast("dict[str, Any]", value)


def _texts(value: object, path: Path, key: str) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in items):
        raise CorpusError(f"{path}: {key}: expected a list of strings, found {value!r:.200}; extract the corpus again")
    return cast("list[str]", items)
