"""What processor and system a command is for, as far as code for two of them cannot be linked into one program."""

import re

from mlgokit.compiler.options.parse import parse_options
from mlgokit.corpus.options.dry_run import DryRun

_M_PROFILE = re.compile(r"v\d[\d.]*e?m")
_ARM = re.compile(r"(arm|thumb)(eb)?(?P<version>v.*)?")


def target_of(dry: DryRun) -> str:
    """The triple that the driver gave the front end, empty if it gave none."""
    values = [option.values[0] for option in parse_options(dry.front_end) if option.name == "-triple" and option.values]
    return values[-1] if values else ""


def target_family(triple: str) -> str:
    """A triple, or an architecture, without what may differ in one program: ``-march``, Thumb, a system's version.

    Example:
        >>> target_family("i686-pc-linux-gnu"), target_family("thumbv7-linux-gnueabihf"), target_family("thumbv7em")
        ('i386-pc-linux-gnu', 'arm-linux-gnueabihf', 'armm')
        >>> target_family("arm64-apple-macosx14.0.0")
        'aarch64-apple-macosx'
    """
    architecture, dash, rest = triple.partition("-")
    if architecture.startswith("arm64"):
        architecture = "aarch64"
    elif re.fullmatch(r"i[3-9]86|x86", architecture):
        architecture = "i386"
    elif architecture == "amd64":
        architecture = "x86_64"
    elif (found := _ARM.fullmatch(architecture)) is not None:
        profile = "m" if _M_PROFILE.fullmatch(found["version"] or "") else ""
        architecture = f"arm{found[2] or ''}{profile}"
    return architecture + dash + re.sub(r"(?<=[a-z])[\d.]+(?=-|$)", "", rest)
