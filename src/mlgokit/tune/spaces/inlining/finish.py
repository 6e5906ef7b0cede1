"""The end of a search over inlining decisions: the plugin verified, and what that says."""

from mlgokit.tables.decisions import renew_summary
from mlgokit.tune.result import Tuned, TunedModule
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.spaces.inlining.state import ModuleState
from mlgokit.tune.verify import Verifier, verify


def finish_inlining(verifier: Verifier, search: InliningSearch) -> Tuned:
    """Make the plugin and compile everything with it and without; :func:`~mlgokit.tune.publish.publish` writes it.

    A module that is no smaller than the plain one is put back to plain. If an object is smaller, but not as the search
    found it, what counts is the object. If the whole is not smaller, everything is. Under a judge, what it accepted is
    smaller, and it says of the whole.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or nothing compiles with it.
    """
    space = search.space
    table = search.folder / space.table
    done = verify(verifier, space, table)
    whole, sizes = done.after.total_bytes(space.config.objective), done.after.sizes
    if renew_summary(done.table, whole):
        verifier.link_again()

    def row(name: str, one: ModuleState) -> TunedModule:
        plain = name not in done.kept
        return TunedModule(
            name=name,
            plain_bytes=space.account.module_bytes(name, one.plain),
            tuned_bytes=space.account.module_bytes(name, sizes.get(name, one.plain)),
            plain=plain,
            decisions=0 if plain else len(one.build.decisions),
            note=done.notes.get(name, "") or (done.objection if name in done.put_back else ""),
        )

    return Tuned(
        plugin=str(verifier.output),
        table=str(table),
        plain_bytes=space.plain_bytes,
        tuned_bytes=whole,
        plain_link=done.before.link,
        tuned_link=done.after.link,
        judged=done.after.judged,
        taken_back=0 if verifier.judge is None else verifier.judge.taken_back,
        ended=search.ended,
        modules=tuple(row(name, one) for name, one in space.modules.items()),
        failures=dict(space.failures),
        curve=tuple(search.curve),
        user_seconds=search.user_seconds,
        compilations=search.compilations,
    )
