"""The user's own link, with tuned objects in the places of the build's.

The command is the build's, as Ninja, Make or CMake print it. Words that name objects of the build, and libraries that
hold such objects, are replaced by copies in a scratch folder; every other word stays. Nothing goes through a shell, and
the build's folder is not written to.
"""

import itertools
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlgokit.builds.images import LinkBuild, LinkTask, WeighedImage, no_image, weigh_image
from mlgokit.builds.variant import Variant, plugin_link_option
from mlgokit.compiler import process
from mlgokit.compiler.driver_call import separate_cache
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.lto import count_words_beside
from mlgokit.compiler.objects.archive import Member, find_ar, is_archive, read_members, write_archive
from mlgokit.compiler.outcome import check_room, first_error
from mlgokit.compiler.regalloc_cost import link_option, link_record_options
from mlgokit.compiler.request import Lto
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.build_compiler import compiler_name
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.corpus.response_files import LINK_BYTES, expand_response_files
from mlgokit.errors import UsageError

OBJECTS, OUTPUT = "{objects}", "{output}"
_PLACEHOLDER = re.compile(r"(?<!\$)\{[a-z_+]+\}")
_LINKED_FILES = frozenset({".a", ".o", ".obj", ".so"})
_JOINED_OUTPUT = re.compile(r"-o(?!bj|format|magic).+", re.DOTALL)
_STATIC, _SHARED = ".a", ".so"
_MOST_BYTES, _POINTER_BYTES = os.sysconf("SC_ARG_MAX") // 2, 8
"""What a command line takes, with as much left for the environment, and the bytes of each word beside its own."""
_OPERATORS = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "<"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """A link command, and which of its words are replaced.

    Attributes:
        words: words of the command; its output is ``{output}``, and ``{objects}`` may stand for all modules.
        folder: working directory of the command.
        modules: the modules that it links, in link order.
        objects: module by position in ``words``, where the word is a module's object.
        libraries: objects with their modules, or ``None``, by position in ``words``, where the word is a static library
            that has an object of a module.
        ar: program that makes static libraries; ``None`` if there are none to make.
        shared: name of another link of this build by position in ``words``, where the word is the shared library that
            this link makes.
    """

    words: tuple[str, ...]
    folder: Path
    modules: tuple[str, ...]
    objects: Mapping[int, str] = field(default_factory=dict[int, str])
    libraries: Mapping[int, tuple[tuple[Member, str | None], ...]] = field(
        default_factory=dict[int, tuple[tuple[Member, str | None], ...]]
    )
    ar: Path | None = None
    shared: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObjects:
    """The objects of a build by which its modules are found in links; the same ones serve all links of the build.

    Attributes:
        modules: names of all modules that are tuned.
        by_path: the module of an object, by its path and by what that resolves to.
        by_name: modules and paths of objects, by the file's name.
    """

    modules: tuple[str, ...]
    by_path: Mapping[str, str]
    by_name: Mapping[str, Sequence[tuple[str, Path]]]


def known_objects(outputs: Mapping[str, Path], modules: Sequence[str]) -> KnownObjects:
    """List the objects of the tuned modules; ``outputs`` is empty if the paths of the build are not known."""
    by_path: dict[str, str] = {}
    by_name: dict[str, list[tuple[str, Path]]] = {}
    for module in modules:
        if module in outputs:
            by_path.setdefault(str(outputs[module]), module)
            by_path.setdefault(str(outputs[module].resolve()), module)
    for text, module in by_path.items():
        path = Path(text)
        by_name.setdefault(path.name, []).append((module, path))
    return KnownObjects(modules=tuple(modules), by_path=by_path, by_name=by_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The result of a link: the image's path, the reason if there is no image, and what the linker printed if not."""

    image: Path
    reason: str = ""
    said: str = ""


def command_words(text: str, *, option: str, known: Collection[str]) -> list[str]:
    r"""Split a user's command into words, and check them.

    Raises:
        UsageError: the command is empty, has an open quotation, needs a shell, or has an unknown placeholder.

    Example:
        >>> command_words(": && c++ -o 'a b' {objects} && :", option="--link-command", known={"{objects}"})
        ['c++', '-o', 'a b', '{objects}']
    """
    try:
        words = split_command(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}; close the quotation") from error
    # Ninja puts CMake's commands between two that do nothing.
    if words[:2] == [":", "&&"]:
        words = words[2:]
    if words[-2:] == ["&&", ":"]:
        words = words[:-2]
    if not words:
        raise UsageError(f"{option}: expected a command, found an empty one; give one")
    if shell := [word for word in words if word in _OPERATORS]:
        raise UsageError(
            f"{option}: expected one command without a shell's operators, found {shell[0]!r}; "
            "put several commands into a script and name that"
        )
    for word in words:
        for found in _PLACEHOLDER.findall(word):
            if found not in known:
                raise UsageError(
                    f"{option}: expected no placeholder but {' and '.join(sorted(known))}, found {found}; correct it"
                )
        if OBJECTS in word and word != OBJECTS:
            raise UsageError(f"{option}: expected {OBJECTS} as a word of its own, found {word!r}; put spaces around it")
    return words


def link_words(text: str) -> tuple[str, ...]:
    """Split a link command into words, with ``{output}`` for the file that it writes.

    Raises:
        UsageError: the text is not a single command with one output.

    Example:
        >>> link_words("c++ -o tool main.o libtool.a -Wl,-Map=tool.map,--gc-sections")
        ('c++', '-o', '{output}', 'main.o', 'libtool.a', '-Wl,--gc-sections')
    """
    words = _drop_side_files(_link_words(text))
    outputs = [index + 1 for index, word in enumerate(words) if word == "-o"]
    if len(outputs) > 1:
        raise UsageError(
            f"--link-command: expected one command with one -o, found {len(outputs)} of them; give the link alone, "
            "such as the last line of `ninja -t commands PROGRAM`"
        )
    if outputs and outputs[0] < len(words):
        words[outputs[0]] = OUTPUT
    elif not any(OUTPUT in word for word in words):
        raise UsageError(
            f"--link-command: expected -o with the file that it writes, or {OUTPUT}, found neither; add it"
        )
    return tuple(words)


def _link_words(text: str) -> list[str]:
    """Split a link command into words, with its output as a word of its own (``-oNAME`` is two)."""
    words = command_words(text, option="--link-command", known={OBJECTS, OUTPUT})
    pairs = (("-o", word[2:]) if _JOINED_OUTPUT.fullmatch(word) else (word,) for word in words)
    return [word for pair in pairs for word in pair]


def _drop_side_files(words: Sequence[str]) -> list[str]:
    """Drop the linker's options that write further files, by themselves or through a driver, and no others.

    These files would lie in the build's folder: a dependency file would tell the build of paths in the scratch folder,
    and the import library of a DLL of the scratch image.
    """
    has_driver = compiler_name(words[0]) is not None
    kept, dropped = list(words[:1]), 0
    for before, word in itertools.pairwise(words):
        parts = [] if has_driver and before != "-Xlinker" else [word]
        parts = word.split(",")[1:] if word.startswith("-Wl,") else parts
        left: list[str] = []
        for part in parts:
            dropped = dropped or count_words_beside(part)
            left += [] if dropped else [part]
            dropped = max(0, dropped - 1)
        if left == parts:
            kept.append(word)
        elif left:
            kept.append(",".join(["-Wl", *left]))
        elif before == "-Xlinker":
            kept.pop()
    return kept


def image_names(texts: Sequence[str]) -> list[str]:
    """Name the images of several link commands, in their order.

    A name is the last part of the output's path, with a number where that is unknown or taken.

    Example:
        >>> image_names(["c++ a.o -o bin/a", "c++ b.o -o b", "c++ {objects} -o {output}", "c++ c.o -o sub/b"])
        ['a', 'b', 'image 3', 'b 4']
    """
    found: list[str] = []
    for number, text in enumerate(texts, 1):
        name = output_name(text)
        found.append(name if name and name not in found else f"{name or 'image'} {number}")
    return found


def output_name(text: str) -> str:
    """Name the file that a link command writes; empty if ``{output}`` stands for it."""
    words = _link_words(text)
    outputs = [after for word, after in itertools.pairwise(words) if word == "-o" and OUTPUT not in after]
    return Path(outputs[0]).name if outputs else ""


def plan_link(
    words: Sequence[str], *, folder: Path, outputs: Mapping[str, Path], modules: Sequence[str], toolchain: Toolchain
) -> LinkPlan:
    """Find the modules' objects in a link command that has some; see :func:`read_link`.

    Raises:
        InputError: a library is damaged.
        ToolError: a library must be made, and there is no program for it.
        UsageError: the command has no object of a module, or names a library that is not there.
    """
    plan = read_link(words, folder=folder, known=known_objects(outputs, modules), toolchain=toolchain)
    if not plan.modules:
        example = next(iter(outputs.values()), None)
        hint = f"the build's paths such as {example}, or {OBJECTS}" if example else OBJECTS
        raise UsageError(
            f"--link-command: none of the tuned modules' objects is in the command (run in {folder}; expected "
            f"{hint}); give the link command of this build, and its folder with --link-folder"
        )
    return plan


def read_link(words: Sequence[str], *, folder: Path, known: KnownObjects, toolchain: Toolchain) -> LinkPlan:
    """Find the modules' objects in a link command, as :func:`link_words` split it; it may have none.

    Raises:
        InputError: a library is damaged.
        ToolError: a library must be made, and there is no program for it.
        UsageError: the command names a library that is not there.
    """
    try:
        expanded = [words[0], *expand_response_files(words[1:], folder, most_bytes=LINK_BYTES, missing="keep")]
    except ValueError as error:
        raise UsageError(f"--link-command: {error}; link without response files") from error
    expanded = [part for word in expanded for part in _split_passed_files(word, folder)]
    if "/" in expanded[0]:
        expanded[0] = os.path.normpath(folder / expanded[0])
    searched = {index: path for index, path in _searched_libraries(expanded, folder).items() if path.suffix == _STATIC}
    objects: dict[int, str] = {}
    libraries: dict[int, tuple[tuple[Member, str | None], ...]] = {}
    found: list[str] = []
    for index, word in enumerate(expanded[1:], 1):
        if word == OBJECTS:
            found += known.modules
            continue
        path = searched.get(index) or Path(os.path.normpath(folder / word))
        name = known.by_path.get(str(path)) or known.by_path.get(str(path.resolve()))
        if name is not None:
            objects[index] = name
            found.append(name)
        elif (
            known.by_path
            and (index in searched or _may_be_input(expanded, index, path))
            and (members := _library_members(path, known))
        ):
            libraries[index] = members
            found += [module for _, module in members if module is not None]
    return LinkPlan(
        words=tuple(expanded),
        folder=folder,
        modules=tuple(dict.fromkeys(found)),
        objects=objects,
        libraries=libraries,
        ar=find_ar(toolchain) if libraries else None,
    )


def note_shared_libraries(plans: Mapping[str, LinkPlan], made: Mapping[str, Path]) -> dict[str, LinkPlan]:
    """Note in each link of a build, by program, the shared libraries that other links of this build have ``made``.

    A library without a soname is left as the build has it, since the linker would write its path into the image.
    """
    named = [name for name, plan in plans.items() if any("soname" in word for word in plan.words)]
    outputs = {made[name].resolve(): name for name in named}
    found: dict[str, LinkPlan] = {}
    for name, plan in plans.items():
        places = _searched_libraries(plan.words, plan.folder)
        paths = {index: places.get(index) or plan.folder / word for index, word in enumerate(plan.words)}
        others = {index: outputs.get(path.resolve(), name) for index, path in paths.items()}
        found[name] = replace(plan, shared={index: other for index, other in others.items() if other != name})
    return found


def place_objects(
    plan: LinkPlan,
    objects: Mapping[str, Path],
    scratch: Path,
    *,
    shared: Mapping[str, Path] | None = None,
    timeout_seconds: float,
) -> list[str] | str:
    """Put objects and libraries into the words of a link, which keep ``{output}``; or return why a library is missing.

    The arguments are those of :func:`link`; ``scratch`` is for libraries with other members.

    Raises:
        ToolError: a program cannot be started.
    """
    words: list[str] = []
    for index, word in enumerate(plan.words):
        if word == OBJECTS:
            words += [str(objects[name]) for name in plan.modules if name in objects]
        elif plan.objects.get(index) in objects:
            words.append(str(objects[plan.objects[index]]))
        elif index in plan.libraries and plan.ar is not None:
            # Under its own name, which --exclude-libs may use.
            library = scratch / f"{index}.library" / Path(_library_name(word, _STATIC)).name
            library.parent.mkdir(parents=True, exist_ok=True)
            members = _put_members(plan.libraries[index], objects, scratch / f"{index}")
            if reason := write_archive(plan.ar, library, members, timeout_seconds=timeout_seconds):
                return reason
            words.append(str(library))
        elif shared is not None and plan.shared.get(index) in shared:
            library = scratch / f"{index}.library" / Path(_library_name(word, _SHARED)).name
            library.parent.mkdir(parents=True, exist_ok=True)
            library.unlink(missing_ok=True)
            library.symlink_to(shared[plan.shared[index]])
            words.append(str(library))
        else:
            words.append(word)
    return words


def link(
    plan: LinkPlan,
    objects: Mapping[str, Path],
    scratch: Path,
    *,
    timeout_seconds: float,
    added: Sequence[str] = (),
    shared: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
    said_bytes: int = process.TAIL_BYTES,
) -> Linked:
    """Run the link with these objects; a failure is a result.

    Args:
        plan: the link command.
        objects: paths of objects by module; a module without one keeps the build's own object, or is left out of
            ``{objects}``.
        scratch: an empty folder for the image and the libraries that it is made of.
        timeout_seconds: deadline of the command.
        added: words to append to the command.
        shared: paths of shared libraries in place of the build's, by program.
        environment: environment variables beside those of this process.
        said_bytes: how much of what the linker prints on standard error is kept, from its end.

    Raises:
        StorageError: the linker found the disk full.
        ToolError: the command cannot be started.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    image = scratch / "image"
    image.unlink(missing_ok=True)
    placed = place_objects(plan, objects, scratch, shared=shared, timeout_seconds=timeout_seconds)
    if isinstance(placed, str):
        return Linked(image=image, reason=placed)
    words = _shorten([*(word.replace(OUTPUT, str(image)) for word in placed), *added], plan, scratch)
    variables = None if environment is None else {**os.environ, **environment}
    done = process.run(
        words,
        timeout_seconds=timeout_seconds,
        cwd=plan.folder,
        env=variables,
        limits=USERS_LIMITS,
        stderr_bytes=said_bytes,
    )
    if done.timed_out:
        return Linked(image=image, reason=f"the link did not end within {timeout_seconds:.0f} s")
    if done.returncode != 0:
        check_room(scratch, done.stderr)
        return Linked(image=image, reason=f"the link ended with {done.returncode}: {first_error(done.stderr)}")
    if not image.is_file() and (named := image.with_suffix(".exe")).is_file():
        # A driver for Windows adds it to a name without a suffix.
        named.replace(image)
    if not image.is_file():
        return Linked(image=image, reason=f"the link wrote no file where {OUTPUT} or -o is")
    return Linked(image=image, said=f"{done.stdout.decode('utf-8', 'replace')}{done.stderr}")


def _shorten(words: list[str], plan: LinkPlan, scratch: Path) -> list[str]:
    """Put a link's words, from its first object on, into a response file if they are too many for a command line."""
    if sum(len(word) + _POINTER_BYTES for word in words) < _MOST_BYTES:
        return words
    places = (index for index, word in enumerate(plan.words) if word == OBJECTS)
    begin = min((*places, *plan.objects, *plan.libraries), default=1)
    response = scratch / "words"
    response.write_bytes("\n".join(map(shlex.quote, words[begin:])).encode("utf-8", "surrogateescape"))
    return [*words[:begin], f"@{response}"]


def loading_options(words: Sequence[str], plugin: Path, *, cache: Path | str) -> list[str]:
    """Make the options to append to a link so that it loads a plugin, and reuses no cached object made without it.

    Args:
        words: words of the link.
        plugin: the plugin to load.
        cache: folder of the ThinLTO cache to use instead, or a suffix for the folder that the link names; without
            effect if the link names no cache.

    Example:
        >>> loading_options(["clang", "-Wl,-O2,--thinlto-cache-dir=cache"], Path("/p.so"), cache="1a")
        ['-Wl,--load-pass-plugin=/p.so', '-Wl,--thinlto-cache-dir=cache-1a']
    """
    found = [plugin_link_option(plugin, linker=words[0])]
    if named := separate_cache(list(words), str(cache)):
        found.append(link_option(named if isinstance(cache, str) else f"--thinlto-cache-dir={cache}", words[0]))
    return found


def user_link(
    plan: LinkPlan,
    sides: Mapping[str, Variant],
    plugin: Path | None,
    *,
    lto: Mapping[str, Lto],
    costs: bool = False,
    timeout_seconds: float,
) -> LinkBuild:
    """Return a function that links an image by a build's own command; for :mod:`mlgokit.builds.compiled`.

    ``sides`` are the variants by build, ``before`` and ``after``; ``plugin`` is for one that names none. ``lto`` is the
    kind of link-time optimization that the object of a module is for, by module; with ``costs`` its costs are read.
    """

    def link_task(task: LinkTask) -> WeighedImage:
        side, scratch = sides[task.build], task.output.with_suffix(".link")
        scratch.mkdir(parents=True, exist_ok=True)
        added, environment = list(side.record.link_options), dict[str, str]()
        if side.use is not None and side.links_with_plugin:
            loaded = side.use.plugin or plugin
            environment = side.use.environment(scratch)
            if loaded is not None:
                added += loading_options(plan.words, loaded, cache=scratch / "cache")
        kind = lto_of(plan.words) or next((kind for name in plan.modules if (kind := lto.get(name, ""))), "")
        record = scratch / "record.yaml" if costs and kind else None
        if record is not None:
            added += link_record_options(record, linker=plan.words[0])
        found = link(plan, task.objects, scratch, timeout_seconds=timeout_seconds, added=added, environment=environment)
        if found.reason:
            return no_image(status="failed", reason=found.reason, plugin=side.links_with_plugin, lto=kind)
        return weigh_image(found.image, plugin=side.links_with_plugin, lto=kind, record=record)

    return link_task


def _library_name(word: str, suffix: str) -> str:
    """Name the library that a word of a link stands for: a path, or a file name to look for with ``-l``."""
    if not word.startswith("-l"):
        return word
    return word[3:] if word.startswith("-l:") else f"lib{word[2:]}{suffix}"


def _searched_libraries(words: Sequence[str], folder: Path) -> dict[int, Path]:
    """Find the libraries that are named by ``-l``, by position of the word; only folders of ``-L`` are searched.

    In each folder a shared library comes before a static one, unless libraries are to be static.
    """
    folders = [
        Path(os.path.normpath(folder / (word[2:] or after)))
        for word, after in itertools.pairwise([*words, ""])
        if word.startswith("-L")
    ]
    found: dict[int, Path] = {}
    is_static = "-static" in words
    for index, word in enumerate(words):
        flags = word.split(",")[1:] if word.startswith("-Wl,") else [word]
        is_static = (is_static or "-Bstatic" in flags) and "-Bdynamic" not in flags
        if not word.startswith("-l") or len(word) == 2:
            continue
        names = [_library_name(word, suffix) for suffix in (_SHARED, _STATIC)][is_static:]
        path = next((place / name for place in folders for name in names if (place / name).is_file()), None)
        if path is not None:
            found[index] = path
    return found


def _split_passed_files(word: str, folder: Path) -> list[str]:
    """Make words of their own of files that a driver passes on among options: ``-Wl,--whole-archive,liba.a``."""
    if not word.startswith("-Wl,"):
        return [word]
    found = [""]
    for part in word.split(",")[1:]:
        if Path(part).suffix in _LINKED_FILES and (folder / part).is_file():
            found += [part, ""]
        else:
            found[-1] += f",{part}"
    return [f"-Wl{part}" if part.startswith(",") else part for part in found if part]


def _may_be_input(words: Sequence[str], index: int, path: Path) -> bool:
    """Whether a word of a link may be a file that is linked, and is no value of an option."""
    is_passed = words[index - 1] == "-Xlinker"
    is_named = words[index - 1 - is_passed].endswith("--exclude-libs")
    return not words[index].startswith("-") and not is_named and (not is_passed or path.is_file())


def _library_members(path: Path, known: KnownObjects) -> tuple[tuple[Member, str | None], ...]:
    """List the objects in a static library with their modules; empty if it is another file or has none of modules."""
    if path.suffix == _STATIC and not path.is_file():
        raise UsageError(
            f"--link-command: expected the library {path}, found no such file; build the project first, "
            "and name the command's folder with --link-folder"
        )
    members = _match_members(read_members(path), known) if is_archive(path) else ()
    return members if any(module for _, module in members) else ()


def _match_members(members: Sequence[Member], known: KnownObjects) -> tuple[tuple[Member, str | None], ...]:
    """Find the module of each object in a library: the one whose object in the build has the same name and bytes.

    A system's library may have an object of the same name.
    """
    matched: list[tuple[Member, str | None]] = []
    taken: set[str] = set()
    for member in members:
        choices = [pair for pair in known.by_name.get(Path(member.name).name, ()) if pair[0] not in taken]
        data = member.data() if choices else b""
        module = next((name for name, path in choices if path.is_file() and path.read_bytes() == data), None)
        if module is not None:
            taken.add(module)
        matched.append((member, module))
    return tuple(matched)


def _put_members(members: Sequence[tuple[Member, str | None]], objects: Mapping[str, Path], folder: Path) -> list[Path]:
    """Write each member to a file of its name, or link it to a module's new object; in folders, since names repeat."""
    paths: list[Path] = []
    for index, (member, module) in enumerate(members):
        path = folder / str(index) / Path(member.name).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if module is None or module not in objects:
            path.write_bytes(member.data())
        else:
            path.symlink_to(objects[module])
        paths.append(path)
    return paths
