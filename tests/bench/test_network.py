"""The archives that workloads are made of can be had."""

from pathlib import Path

import pytest

from mlgokit.bench.workloads import load_workloads
from mlgokit.corpus.sources.extract import project_sources
from mlgokit.corpus.sources.fetch import fetch_archive, prepare_sources
from mlgokit.corpus.sources.projects import Project

PROJECTS = {project.name: project for workload in load_workloads() for project in workload.projects}


@pytest.mark.network
@pytest.mark.parametrize("project", PROJECTS.values(), ids=list(PROJECTS))
def test_every_project_of_the_workloads_can_be_fetched_and_has_its_sources(project: Project, tmp_path: Path):
    archive = fetch_archive(project.archive, cache_folder=tmp_path / "cache")
    prepare_sources(project, archive_path=archive, sources_folder=tmp_path / "sources")
    assert project_sources(project, sources_folder=tmp_path / "sources")[1]
