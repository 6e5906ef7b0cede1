"""Which options the short help of a command shows, and below which title."""

import enum


class Basic(enum.Enum):
    """Marks a field of a configuration, as in ``budget: Annotated[str, Basic.WORK]``, as one that most users need.

    ``mlgokit COMMAND --help`` shows the marked options below these titles; ``--help-all`` shows all options.
    """

    INPUT = "input"
    WORK = "work"
    LIMITS = "limits"
    RESULT = "result"
    MACHINE = "compiler and machine"
