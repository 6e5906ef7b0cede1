"""The options of a command as its source declares them, for help, typos and settings.

The source is read, not imported: a configuration's module imports all that runs the command, which takes about a
second, and a help text or a typo is to be answered at once. ``tests/commands/test_declared_options.py`` holds what is
read here against what tyro makes of the same classes.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlgokit.basic import Basic

_PACKAGE = Path(__file__).parents[1]
_VALUES = {"Path": "PATH", "str": "STR", "int": "INT", "float": "FLOAT"}
_UNKNOWN = "NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a command.

    Attributes:
        names: as they are typed, such as ``--output`` and ``-o``; of a positional argument its name alone.
        value: what stands for the value, such as ``PATH`` or ``{image,text}``; empty for a flag.
        default: as it is typed; empty if there is none that says something.
        help: the text below the field.
        group: the title below which the short help has it; empty for an option that only the whole help has.
        section: names of the nested fields that it belongs to, outermost first, with dots.
        is_positional: whether it is an argument without a name.
        is_required: whether it has to be given.
        is_repeatable: whether it may be given several times.
        takes_many: whether all words up to the next option are its values.
    """

    names: tuple[str, ...]
    value: str = ""
    default: str = ""
    help: str = ""
    group: str = ""
    section: str = ""
    is_positional: bool = False
    is_required: bool = False
    is_repeatable: bool = False
    takes_many: bool = False


@functools.cache
def declared_options(place: str, name: str) -> tuple[Option, ...]:
    """The options of the configuration ``name`` in a module, such as ``mlgokit.commands.tune`` and ``Tune``."""
    scope, found = _find(_open_scope(place), name)
    return tuple(_options(scope, _class(found), section="", prefix="", inherited=()))


def docstring_of(place: str, name: str) -> str:
    """What a configuration says of itself, in one line."""
    found = _class(_find(_open_scope(place), name)[1])
    return " ".join((ast.get_docstring(found) or "").split())


# --- Names of a module ------------------------------------------------------------------------------------------------


_Scope = dict[str, "ast.expr | ast.ClassDef | tuple[str, str]"]
"""The names that a module of the package defines or imports from the package."""


@functools.cache
def _open_scope(place: str) -> _Scope:
    names: _Scope = {}
    path = _PACKAGE.joinpath(*place.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef):
            names[statement.name] = statement
        elif isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("mlgokit."):
            for alias in statement.names:
                names[alias.asname or alias.name] = (statement.module or "", alias.name)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                names |= _pairs(target, statement.value)
    return names


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, part)


def _find(scope: _Scope, name: str) -> tuple[_Scope, ast.expr | ast.ClassDef | None]:
    """What a name stands for, and where that is defined; ``None`` if another package defines it."""
    found = scope.get(name)
    return _find(_open_scope(found[0]), found[1]) if isinstance(found, tuple) else (scope, found)


# --- Fields become options --------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Kind:
    """What an annotation says.

    Attributes:
        scope: where ``structure`` or ``value`` is defined.
        value: what stands for the value.
        structure: the class whose fields are options.
        markers: of tyro, by name.
        names: the name that tyro is told, and further ones.
        group: the title in the short help.
        is_tuple: whether the value is several.
    """

    scope: _Scope
    value: str = _UNKNOWN
    structure: ast.ClassDef | None = None
    markers: tuple[str, ...] = ()
    name: str = ""
    aliases: tuple[str, ...] = ()
    group: str = ""
    is_tuple: bool = False


def _options(
    scope: _Scope, found: ast.ClassDef, *, section: str, prefix: str, inherited: tuple[str, ...]
) -> Iterator[Option]:
    for field, text in _fields(found):
        kind = _read(scope, field.annotation)
        markers = (*inherited, *kind.markers)
        word = kind.name or ast.unparse(field.target).replace("_", "-")
        if kind.structure is not None:
            inner = "" if "OmitArgPrefixes" in kind.markers else f"{prefix}{word}."
            place = f"{section}.{word}".lstrip(".")
            # OmitArgPrefixes holds for all that is below the field.
            yield from _options(kind.scope, kind.structure, section=place, prefix=inner, inherited=markers)
            continue
        default = _default(scope, field.value)
        if is_flag := kind.value == "bool":
            word, default = ("no-" * (default == "True") + prefix + word, "")
        else:
            word = prefix + word
        is_repeatable = kind.is_tuple and "UseAppendAction" in markers
        is_positional = "Positional" in markers
        yield Option(
            names=(word,) if is_positional else (*kind.aliases, f"--{word}"),
            value="" if is_flag else kind.value,
            default=default,
            help=text,
            group=kind.group,
            section=section,
            is_positional=is_positional,
            is_required=field.value is None,
            is_repeatable=is_repeatable,
            takes_many=kind.is_tuple and not is_repeatable,
        )


def _class(found: ast.expr | ast.ClassDef | None) -> ast.ClassDef:
    if not isinstance(found, ast.ClassDef):
        raise TypeError(f"expected the source of a class, found {found}")
    return found


def _fields(definition: ast.ClassDef) -> Iterator[tuple[ast.AnnAssign, str]]:
    """The fields of a dataclass, each with the text below it."""
    for statement, below in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement, " ".join(text.split())
                case _:
                    yield statement, ""


def _read(scope: _Scope, node: ast.expr) -> _Kind:
    if isinstance(node, ast.BinOp):  # A type or None.
        return _read(scope, node.left)
    if isinstance(node, ast.Subscript):
        return _read_generic(scope, node)
    name = ast.unparse(node)
    if name in _VALUES or name == "bool":
        return _Kind(scope=scope, value=_VALUES.get(name, "bool"))
    there, found = _find(scope, name)
    if isinstance(found, ast.ClassDef):
        return _read_class(there, found)
    return _Kind(scope=scope) if found is None else _read(there, found)


def _read_generic(scope: _Scope, node: ast.Subscript) -> _Kind:
    inside = node.slice
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    name = ast.unparse(node.value)
    if name == "Annotated":
        return _read_annotated(scope, parts)
    if name == "Literal":
        return _Kind(scope=scope, value=f"{{{','.join(_choices(scope, node))}}}")
    kind = _read(scope, parts[0])
    kind.is_tuple = name == "tuple"
    return kind


def _choices(scope: _Scope, node: ast.expr) -> Iterator[str]:
    """The words of a ``Literal``, which may name others."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.Name):
        there, found = _find(scope, node.id)
        if isinstance(found, ast.expr):
            yield from _choices(there, found)
    elif isinstance(node, ast.Subscript):
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            yield from _choices(scope, part)


def _read_class(scope: _Scope, found: ast.ClassDef) -> _Kind:
    if any(ast.unparse(base).endswith("Enum") for base in found.bases):
        members = [one.targets[0] for one in found.body if isinstance(one, ast.Assign)]
        return _Kind(scope=scope, value=f"{{{','.join(ast.unparse(member) for member in members)}}}")
    return _Kind(scope=scope, structure=found)


def _read_annotated(scope: _Scope, parts: list[ast.expr]) -> _Kind:
    kind = _read(scope, parts[0])
    for part in parts[1:]:
        text = ast.unparse(part)
        if text.startswith("tyro.conf.arg(") and isinstance(part, ast.Call):
            given = {word.arg: ast.literal_eval(word.value) for word in part.keywords}
            kind.name, kind.aliases = given.get("name", kind.name), tuple(given.get("aliases", kind.aliases))
        elif text.startswith("tyro.conf."):
            kind.markers = (*kind.markers, text.removeprefix("tyro.conf."))
        elif text.startswith("Basic."):
            kind.group = Basic[text.removeprefix("Basic.")].value
    return kind


def _default(scope: _Scope, node: ast.expr | None) -> str:
    """A default as it is typed; empty for none, and for what is computed."""
    match node:
        case ast.Constant(value=value):
            return "" if value is None else str(value)
        case ast.Name(id=name):
            there, found = _find(scope, name)
            return _default(there, found) if isinstance(found, ast.expr) else ""
        case ast.Attribute(value=ast.Name(id=name), attr=member):
            # A member of an enumeration, whose name is typed.
            return member if isinstance(_find(scope, name)[1], ast.ClassDef) else ""
        case ast.Tuple(elts=parts):
            return " ".join(_default(scope, part) for part in parts)
        case ast.Call(func=ast.Name(id="Path"), args=words):
            return _default(scope, words[0]) if words else "."
        case _:
            return ""
