"""The command that fetches projects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.corpus.sources.projects import choose_projects
from mlgokit.locks import locked
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Fetch the archives of open-source projects, verify and unpack them."""

    projects: tuple[str, ...] = ()
    """Names of the projects to fetch, among those that --manifest lists; all if none is given."""
    manifest: Path | None = None
    """TOML file that lists the projects; the list that comes with mlgokit if not given."""
    folder: Path = Path("quickstart/sources")
    """Folder for the sources."""
    cache: Path | None = None
    """Folder where downloaded source archives are kept; the user's cache folder if not given."""


def run(config: Fetch, *, report: Report = say_nothing) -> dict[str, Any]:
    """Fetch and unpack; returns the folder of each project.

    Raises:
        BusyError: another process unpacks into the folder.
    """
    with locked(config.folder):
        projects = choose_projects(config.manifest, config.projects)
        cache = config.cache or default_cache_folder()
        roots: dict[str, Any] = {}
        for index, project in enumerate(projects):
            report(index, len(projects), "fetch")
            archive = fetch_archive(project.archive, cache_folder=cache)
            roots[project.name] = str(prepare_sources(project, archive_path=archive, sources_folder=config.folder))
        report(len(projects), len(projects), "fetch")
        return {"projects": roots}
