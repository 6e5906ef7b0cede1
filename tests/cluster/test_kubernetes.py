"""The manifest for Kubernetes, as far as it goes without: its fields, its commands, and who may reach whom."""

import re
from pathlib import Path
from typing import Any

import pytest
import tyro

from mlgokit.commands.worker import Worker, cluster_of

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs/how-to/cluster.md").read_text()
GIVEN = {"DASK_SCHEDULER_ADDRESS": "tcp://mlgokit-scheduler.space.svc.cluster.local:8786", "DASK_WORKER_NAME": "w-1"}
"""What Dask's operator sets in the containers of workers."""


@pytest.fixture(scope="module")
def documents() -> list[Any]:
    return list(yaml.safe_load_all((ROOT / "examples/kubernetes_cluster.yaml").read_text()))


def container(documents: list[Any], part: str) -> Any:
    (found,) = documents[0]["spec"][part]["spec"]["containers"]
    assert found["name"] == part
    return found


def gibibytes(text: str) -> float:
    assert re.fullmatch(r"\d+Gi", text)
    return float(text.removesuffix("Gi"))


def test_it_is_a_cluster_of_the_operator_and_a_policy_of_the_network(documents: list[Any]):
    kinds = [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in documents]
    assert kinds == [
        ("kubernetes.dask.org/v1", "DaskCluster", "mlgokit"),
        ("networking.k8s.io/v1", "NetworkPolicy", "mlgokit"),
    ]
    spec = documents[0]["spec"]
    assert spec.keys() == {"worker", "scheduler"}
    assert spec["worker"].keys() == {"replicas", "spec"}
    assert spec["worker"]["replicas"] >= 1
    assert spec["scheduler"].keys() == {"spec", "service"}
    assert container(documents, "worker")["image"] == container(documents, "scheduler")["image"]


def test_workers_are_started_by_words_that_mlgokit_takes(documents: list[Any]):
    worker = container(documents, "worker")
    assert worker["command"] == ["mlgokit", "worker"]
    variables = {name for word in worker["args"] for name in re.findall(r"\$\((\w+)\)", word)}
    assert variables == GIVEN.keys()
    words = [re.sub(r"\$\((\w+)\)", lambda found: GIVEN[found[1]], word) for word in worker["args"]]
    config = tyro.cli(Worker, args=words, config=(tyro.conf.OmitArgPrefixes,))
    cluster_of(config).check()
    assert (config.name, config.insecure) == ("w-1", True)
    wanted = worker["resources"]["requests"]
    assert config.threads == int(wanted["cpu"])
    assert config.memory_limit_gib is not None
    assert config.memory_limit_gib < gibibytes(wanted["memory"])
    assert worker["resources"]["limits"]["memory"] == wanted["memory"]


def test_what_workers_mount_is_there(documents: list[Any]):
    names = {one["name"] for one in documents[0]["spec"]["worker"]["spec"]["volumes"]}
    assert {one["name"] for one in container(documents, "worker")["volumeMounts"]} == names


def test_the_scheduler_is_started_by_words_that_dask_takes_and_found_by_its_service(documents: list[Any]):
    module = pytest.importorskip("distributed.cli.dask_scheduler")
    scheduler = container(documents, "scheduler")
    assert scheduler["command"] == ["dask", "scheduler"]
    given = module.main.make_context("dask scheduler", list(scheduler["args"])).params
    ports = {one["name"]: one["containerPort"] for one in scheduler["ports"]}
    assert ports == {
        "tcp-comm": int(given["port"]),
        "http-dashboard": int(given["dashboard_address"].rpartition(":")[2]),
    }
    assert scheduler["readinessProbe"]["tcpSocket"]["port"] in ports
    service = documents[0]["spec"]["scheduler"]["service"]
    assert {one["targetPort"]: one["port"] for one in service["ports"]} == ports
    assert all(one["name"] == one["targetPort"] for one in service["ports"])
    assert service["selector"] == {"dask.org/cluster-name": "mlgokit", "dask.org/component": "scheduler"}


def test_nobody_else_reaches_the_pods(documents: list[Any]):
    policy = documents[1]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["podSelector"] == {"matchLabels": {"dask.org/cluster-name": "mlgokit"}}
    (rule,) = policy["ingress"]
    labels = [next(iter(one.values()))["matchLabels"] for one in rule["from"]]
    assert labels == [
        {"dask.org/cluster-name": "mlgokit"},
        {"mlgokit-client": "yes"},
        {"kubernetes.io/metadata.name": "dask-operator"},
    ]
    assert "-n dask-operator" in HOW_TO


def test_the_how_to_names_the_address_that_the_manifest_gives(documents: list[Any]):
    (scheduler,) = set(re.findall(r"tcp://(\S+)-scheduler:8786 --insecure", HOW_TO))
    assert scheduler == documents[0]["metadata"]["name"]
    assert "kubectl apply -f examples/kubernetes_cluster.yaml" in HOW_TO
    assert "mlgokit-client" in HOW_TO
