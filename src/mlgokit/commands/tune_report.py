"""A tuning is published with what made it, and with its report."""

import dataclasses
import shlex
import sys

from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.manifest import package_version
from mlgokit.pages.html import write_page
from mlgokit.tune.page import tuned_page
from mlgokit.tune.publish import RESULT_NAME, publish
from mlgokit.tune.result import Tuned
from mlgokit.tune.verify import Verifier


def publish_with_report(verifier: Verifier, tuned: Tuned, config: Tune, toolchain: Toolchain) -> Tuned:
    """Put what was verified where the user wants it, with ``tuned.json``, and the report beside that.

    Raises:
        StorageError: the disk is full or not writable.
    """
    result = config.folder / RESULT_NAME
    tuned = dataclasses.replace(
        tuned,
        objective=config.objective,
        seed=config.search.seed,
        command=shlex.join(["mlgokit", *sys.argv[1:]]),
        mlgokit_version=package_version(),
        toolchain=toolchain.describe(),
        report=str(result.with_suffix(".html")),
    )
    tuned = publish(verifier, tuned, config.folder)
    # Made of what is published, so a kill before it loses nothing: mlgokit report makes it again.
    write_page(tuned_page(tuned), result)
    return tuned
