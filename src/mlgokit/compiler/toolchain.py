"""Which compilers this machine has: found by folder, identified by what they print, never by their name."""

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import LIBSTDCXX, cxx_library_of
from mlgokit.compiler.majors import ADVISED_MAJOR, SUPPORTED_MAJORS
from mlgokit.compiler.plugin_loading import replay_sentence, why_no_plugin_loads
from mlgokit.compiler.prebuilt import find_prebuilt
from mlgokit.compiler.program_version import VERSION_SECONDS, program_version
from mlgokit.errors import ToolError

LOCATION_VARIABLE = "MLGOKIT_LLVM"
"""The one environment variable: the folder of an LLVM installation, or its ``bin``.

If it is set, only its compilers are taken, unless another major is asked for.
"""

_SYSTEM_FOLDERS = "/usr/lib"
_HEADER_MAJOR = re.compile(r"^#define LLVM_VERSION_MAJOR (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """One installed clang, and the tools of the same LLVM major that were found with it.

    Attributes:
        major: LLVM's major version (Apple's own numbering for Apple's clang).
        version: for example ``19.1.7``.
        clang: the C compiler.
        clangxx: the C++ compiler.
        opt: the IR optimizer.
        llc: the code generator.
        lld: the linker, by its ELF name ``ld.lld``.
        llvm_config: the program that knows the installation's folders.
        include_dir: the folder with ``llvm/Config/llvm-config.h`` of this major, if headers are installed.
        library_dir: the folder with the LLVM libraries.
        vendor: who built it (``Debian``, ``Apple``), empty for LLVM's own builds.
        version_text: the line that clang prints.
        target: the default target triple.
        cxx_library: what it was built with, and so has to be any plugin: ``libstdc++`` or ``libc++``.
    """

    major: int
    version: str
    clang: Path
    clangxx: Path
    opt: Path | None = None
    llc: Path | None = None
    lld: Path | None = None
    llvm_config: Path | None = None
    include_dir: Path | None = None
    library_dir: Path | None = None
    vendor: str = ""
    version_text: str = ""
    target: str = ""
    cxx_library: str = LIBSTDCXX

    def find_tool(self, name: str) -> Path | None:
        """Find a program of LLVM, such as ``llvm-ar``: beside clang, else in ``PATH``."""
        for candidate in (str(self.clang.resolve().with_name(name)), f"{name}-{self.major}", name):
            if path := shutil.which(candidate):
                return Path(path)
        return None

    @property
    def supported(self) -> bool:
        """Whether the plugin is made for this compiler; Apple's majors are not LLVM's."""
        return self.major in SUPPORTED_MAJORS and self.vendor != "Apple"

    @property
    def wants_profile_kinds(self) -> bool:
        """Whether ``clang -cc1`` has to be told of which kind a profile is, by ``-fprofile-instrument-use=``.

        Clang 22 and newer ones have to, and older ones do not know the option.
        """
        return self.major >= 22

    def describe(self) -> dict[str, str]:
        """Collect the facts that decide the compiler's output, for a manifest: versions and target, without paths."""
        return {
            "clang": self.version_text or self.version,
            "target": self.target,
            "lld": "" if self.lld is None else program_version(self.lld).version,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableProgram:
    """A program that is named like a compiler, but is not one or does not work.

    Attributes:
        path: path of the program.
        reason: what it is, or what it printed, in place of a clang.
    """

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All compilers of a machine.

    Attributes:
        toolchains: usable compilers, the best first: that which MLGOKIT_LLVM names, then supported majors for which the
            plugin can be had, then the newest.
        unusable: programs named like clang that are not one, or do not work.
    """

    toolchains: tuple[Toolchain, ...]
    unusable: tuple[UnusableProgram, ...]


def apt_command(*packages: str) -> str:
    """Make the command that installs system packages.

    Example:
        >>> apt_command("lld-19")
        'sudo apt-get install -y --no-install-recommends lld-19'
    """
    return " ".join(("sudo apt-get install -y --no-install-recommends", *packages))


def apt_packages(major: int) -> tuple[str, ...]:
    """Name the system packages that make one LLVM major complete.

    Example:
        >>> apt_packages(19)
        ('clang-19', 'llvm-19-dev', 'lld-19')
    """
    return (f"clang-{major}", f"llvm-{major}-dev", f"lld-{major}")


def find_toolchains(search: Sequence[Path] | None = None, *, major: int | None = None) -> tuple[Toolchain, ...]:
    """List all usable compilers, the best first; see :func:`survey` for the arguments."""
    return survey(search, major=major).toolchains


def survey(search: Sequence[Path] | None = None, *, major: int | None = None) -> Survey:
    """Look for compilers where users have them, or only in the folders of ``search``.

    With ``major``, those of another LLVM major are left out, and asked for nothing but their version.
    Users have them in MLGOKIT_LLVM, PATH, ``/usr/lib/llvm-*/bin`` and the cache folder that ``make test`` fills.
    """
    folders = tuple(_add_bin_folders(search if search is not None else _default_folders()))
    usable: list[Toolchain] = []
    unusable: list[UnusableProgram] = []
    programs: dict[Path, Path] = {}
    for folder in folders:
        for program in _find_clangs(folder):
            programs.setdefault(program.resolve(), program)
    for program in programs.values():
        if major not in {None, program_version(program).major}:
            continue
        answer = _inspect_folder(program, folders)
        if isinstance(answer, Toolchain):
            usable.append(answer)
        else:
            unusable.append(answer)
    wanted = _wanted_folder() if search is None else None
    fetched = _fetched_folders()
    ranked = sorted(usable, key=lambda toolchain: _rank(toolchain, wanted, fetched))
    return Survey(toolchains=tuple(ranked), unusable=tuple(unusable))


def find_toolchain(major: int | None = None, clang: Path | None = None, *, need_plugin: bool = False) -> Toolchain:
    """Find the best compiler that satisfies the request.

    Args:
        major: consider only this LLVM major.
        clang: consider only this program, whatever MLGOKIT_LLVM says.
        need_plugin: whether the compiler has to load the plugin, so that its major must be supported, and its headers
            installed or a prebuilt plugin in the package.

    Raises:
        ToolError: there is no such compiler; the message has the command that installs one.
    """
    if clang is not None:
        answer = _inspect_folder(
            clang, tuple(_add_bin_folders((clang.parent, clang.resolve().parent, *_default_folders())))
        )
        if isinstance(answer, UnusableProgram):
            raise ToolError(
                f"clang {clang}: expected a clang that prints its version, found {answer.reason}; give another path"
            )
        if major not in {None, answer.major}:
            raise ToolError(
                f"clang {clang}: expected major {major}, found {answer.version}; give another path or another major"
            )
        return _choose_for_plugin((answer,)) if need_plugin else answer
    toolchains = find_toolchains(major=major)
    wanted = _wanted_folder()
    preferred = () if wanted is None else tuple(toolchain for toolchain in toolchains if _is_in(toolchain, wanted))
    if major is None:
        if wanted is not None and not preferred:
            raise ToolError(
                f"{LOCATION_VARIABLE}={wanted}: expected the folder of an LLVM installation with a clang that works, "
                "found none there; correct or unset the variable, `mlgokit doctor` shows what there is"
            )
        toolchains = preferred or toolchains
        if not toolchains:
            raise ToolError(
                f"clang: expected one in PATH, /usr/lib/llvm-*/bin or ${LOCATION_VARIABLE}, found none; "
                f"{_install_remedy()} (majors {known_majors('or')} work)"
            )
        return _choose_for_plugin(toolchains) if need_plugin else toolchains[0]
    if need_plugin and major not in SUPPORTED_MAJORS:
        installed = [toolchain for toolchain in find_toolchains() if toolchain.supported]
        remedy = _install_remedy()
        if installed:
            remedy = f"give --llvm {installed[0].major}, which is installed, or leave it out"
        raise ToolError(f"clang {major}: expected LLVM major {known_majors('or')} for the plugin; {remedy}")
    matching = preferred or toolchains
    if not matching:
        others = ", ".join(toolchain.version for toolchain in find_toolchains()) or "none"
        raise ToolError(
            f"clang {major}: expected an installed clang of that major, found {others}; "
            f"run `{apt_command(*apt_packages(major))}` or ask for another major"
        )
    return _choose_for_plugin(matching) if need_plugin else matching[0]


def _choose_for_plugin(toolchains: Sequence[Toolchain]) -> Toolchain:
    """Choose the first toolchain that loads plugins and for which the plugin can be built or is prebuilt."""
    supported = [toolchain for toolchain in toolchains if toolchain.supported]
    ready = [toolchain for toolchain in supported if _find_missing_part(toolchain) is None]
    for toolchain in ready:
        if not why_no_plugin_loads(toolchain.clang):
            return toolchain
    first = (ready or supported or toolchains)[0]
    if reason := why_no_plugin_loads(first.clang):
        raise ToolError(replay_sentence(first.clang, reason))
    if not supported:
        versions = ", ".join(f"{f'{t.vendor} ' if t.vendor else ''}{t.version}" for t in toolchains)
        raise ToolError(
            f"clang {first.clang}: expected LLVM major {known_majors('or')} for the plugin, found {versions}; "
            f"{_install_remedy()}"
        )
    other = _find_missing_part(first)
    raise ToolError(
        f"LLVM {first.major} headers: expected llvm/Config/llvm-config.h of major {first.major} for {first.clang}, "
        f"found none{other and f', and {other}'}; run `{apt_command(f'llvm-{first.major}-dev')}`"
    )


def _find_missing_part(toolchain: Toolchain) -> str | None:
    """Say why the plugin can neither be built for a toolchain nor is prebuilt; ``None`` if it is available."""
    if toolchain.include_dir is not None:
        return None
    prebuilt = find_prebuilt(toolchain.version, toolchain.target, toolchain.cxx_library)
    return prebuilt if isinstance(prebuilt, str) else None


def _install_remedy() -> str:
    return f"run `{apt_command(*apt_packages(ADVISED_MAJOR))}`"


def known_majors(last: str) -> str:
    """List the supported majors for a sentence.

    Example:
        >>> known_majors("or")
        '19, 21, 22 or 23'
    """
    *others, newest = map(str, SUPPORTED_MAJORS)
    return f"{', '.join(others)} {last} {newest}"


def _wanted_folder() -> Path | None:
    """Return the folder that MLGOKIT_LLVM names, if it is set."""
    value = os.environ.get(LOCATION_VARIABLE)
    return Path(value) if value else None


def _default_folders() -> tuple[Path, ...]:
    """List the folders where compilers are looked for: MLGOKIT_LLVM, PATH, the system's LLVM folders, the cache."""
    wanted = _wanted_folder()
    path = [Path(word) for word in os.environ.get("PATH", os.defpath).split(os.pathsep) if word]
    system = sorted(Path(_SYSTEM_FOLDERS).glob("llvm-*/bin"), reverse=True)
    return (*(() if wanted is None else (wanted,)), *path, *system, *_fetched_folders())


def _fetched_folders() -> tuple[Path, ...]:
    """List the folders of compilers that ``make test`` downloaded, which are ranked last."""
    return tuple(sorted((platformdirs.user_cache_path("mlgokit") / "llvm").glob("*/bin"), reverse=True))


def _add_bin_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield each folder once, and the ``bin`` inside it, so that an installation's root will do."""
    seen: set[Path] = set()
    for folder in folders:
        for candidate in (folder, folder / "bin"):
            # A user's PATH may have folders of root's, of which a Path would say that permission is denied.
            if candidate not in seen and os.path.isdir(candidate):  # noqa: PTH112
                seen.add(candidate)
                yield candidate


def _find_clangs(folder: Path) -> list[Path]:
    """List the programs in a folder that are named ``clang`` or ``clang-<major>``."""
    try:
        programs = sorted(folder.iterdir())
    except OSError:
        return []
    return [program for program in programs if re.fullmatch(r"clang(-\d+)?", program.name)]


def _is_in(toolchain: Toolchain, folder: Path) -> bool:
    """Whether the folder, or its ``bin``, has the compiler or a link to it."""
    programs = (program for bin_folder in _add_bin_folders((folder,)) for program in _find_clangs(bin_folder))
    return toolchain.clang.resolve() in {program.resolve() for program in programs}


def _rank(toolchain: Toolchain, wanted: Path | None, fetched: Collection[Path]) -> tuple[bool, bool, bool, bool, int]:
    """Make the sort key of a toolchain, by which the best is the first."""
    is_wanted = wanted is not None and _is_in(toolchain, wanted)
    is_missing_part = _find_missing_part(toolchain) is not None
    is_fetched = any(_is_in(toolchain, folder) for folder in fetched)
    return (not is_wanted, not toolchain.supported, is_missing_part, is_fetched, -toolchain.major)


def _inspect_folder(program: Path, folders: Sequence[Path]) -> Toolchain | UnusableProgram:
    """Identify one program, and collect the tools of its major, those of the same installation first."""
    printed = program_version(program)
    if printed.reason:
        return UnusableProgram(path=program, reason=printed.reason)
    if not printed.text:
        return UnusableProgram(path=program, reason="the version of another program")
    # A link such as ccache's /usr/lib/ccache/clang means something only by its own name.
    resolved = program.resolve()
    clang = resolved if resolved.name.startswith("clang") else program.absolute()
    nearby = tuple(dict.fromkeys((clang.parent, program.absolute().parent, *folders)))

    def find_program(name: str, places: Sequence[Path] = nearby) -> Path | None:
        """Find a program of the compiler's major in these folders."""
        candidates = (folder / word for folder in places for word in (f"{name}-{printed.major}", name))
        return next(
            (path for path in candidates if path.exists() and program_version(path).major == printed.major), None
        )

    clangxx = find_program("clang++")
    if clangxx is None:
        return UnusableProgram(path=program, reason=f"no clang++ of major {printed.major} with it")
    # Only of this very installation: headers of another build of the same major need not fit the compiler.
    llvm_config = find_program("llvm-config", (clang.parent,))
    include_dir, library_dir = _find_folders(llvm_config, clang.parent.parent, printed.major)
    return Toolchain(
        major=printed.major,
        version=printed.version,
        clang=clang,
        clangxx=clangxx,
        opt=find_program("opt"),
        llc=find_program("llc"),
        lld=find_program("ld.lld"),
        llvm_config=llvm_config,
        include_dir=include_dir,
        library_dir=library_dir,
        vendor=printed.vendor,
        version_text=printed.text,
        target=printed.target,
        cxx_library=cxx_library_of(clang),
    )


def _find_folders(llvm_config: Path | None, root: Path, major: int) -> tuple[Path | None, Path | None]:
    """Find the header and library folders, the headers only if they are of this major."""
    includes, libraries = [root / "include"], [root / "lib"]
    if llvm_config is not None:
        words = process.run([llvm_config, "--includedir", "--libdir"], timeout_seconds=VERSION_SECONDS).stdout.split(
            b"\n"
        )
        if len(words) >= 2:
            includes.insert(0, Path(os.fsdecode(words[0])))
            libraries.insert(0, Path(os.fsdecode(words[1])))
    include_dir = next((folder for folder in includes if _header_major(folder) == major), None)
    return include_dir, next((folder for folder in libraries if folder.is_dir()), None)


def _header_major(folder: Path) -> int:
    """Read the LLVM major of the headers in a folder; 0 without headers."""
    try:
        text = (folder / "llvm" / "Config" / "llvm-config.h").read_text(errors="replace")
    except OSError:
        return 0
    match = _HEADER_MAJOR.search(text)
    return int(match[1]) if match else 0
