"""The programs of a build: the links that can be repeated, and why others cannot."""

from pathlib import Path

from mlgokit.builds.programs import LinkedPrograms
from mlgokit.corpus.importers.recorded import RecordedLink
from mlgokit.testing import FAKE_TOOLCHAIN


def test_a_link_whose_response_file_ninja_has_deleted_is_no_link_of_other_objects(tmp_path: Path):
    outputs = {"p/main.o": tmp_path / "main.o"}
    outputs["p/main.o"].touch()
    commands = {"app": "clang @app.rsp -o app", "other": "clang foreign.o -o other"}
    linked = LinkedPrograms(
        links={
            name: RecordedLink(command=command, folder=tmp_path, output=tmp_path / name)
            for name, command in commands.items()
        },
        images={name: tmp_path / name for name in commands},
        outputs=outputs,
    )
    plans, failures = linked.plans(["p/main.o"], FAKE_TOOLCHAIN)
    assert not plans
    assert failures == {
        "app": "its response file app.rsp is gone, as Ninja deletes these; link it again by `ninja -d keeprsp`"
    }
    # What is in a link is not known then, so that no source is left out for it.
    assert linked.built(FAKE_TOOLCHAIN, only_linked=True) == {tmp_path / "main.o"}
    (tmp_path / "app.rsp").write_text("main.o")
    plans, failures = linked.plans(["p/main.o"], FAKE_TOOLCHAIN)
    assert (list(plans), failures) == (["app"], {})
