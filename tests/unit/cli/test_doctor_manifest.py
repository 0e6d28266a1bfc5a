"""`mileage doctor --manifest` and `--k8s`: what they find, and what they say of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError, EngineError
from mileage.scrape.doctor_k8s import look_at_cluster
from mileage.scrape.doctor_manifest import read_manifest

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.9.2
        args: [--model, org/model]
        env: [{name: HF_TOKEN, value: hf_abcdefghijklmnop}]
        resources: {limits: {nvidia.com/gpu: 1}}
"""
SCALED = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat}
spec:
  scaleTargetRef: {name: chat}
  minReplicaCount: 3
  idleReplicaCount: 1
  triggers:
  - {type: prometheus, metadata: {query: 'sum(vllm:num_requests_waiting)', threshold: "5"}}
"""


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["doctor", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_an_idle_count_between_zero_and_the_minimum_is_found_first(tmp_path: Path) -> None:
    one, two = tmp_path / "chat.yaml", tmp_path / "scaling.yaml"
    one.write_text(DEPLOYMENT)
    two.write_text(SCALED)
    code, out, _ = run("--manifest", str(one), "--manifest", str(two), "--json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (1, "finding")
    assert document["findings"][0]["cause"] == "keda_idle_vs_min_flapping"


def test_the_same_with_an_idle_count_of_zero_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(
        DEPLOYMENT + "---" + SCALED.replace("idleReplicaCount: 1", "idleReplicaCount: 0")
    )
    _, out, _ = run("--manifest", str(path), "--json")
    causes = [found["cause"] for found in json.loads(out)["findings"]]
    assert "keda_idle_vs_min_flapping" not in causes


def test_what_is_stated_stands_over_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "scaling.yaml"
    path.write_text(SCALED)
    _, out, _ = run("--manifest", str(path), "--fact", "keda.idle_replicas=0", "--json")
    assert json.loads(out)["facts"]["settings"]["keda.idle_replicas"] == 0


def test_a_record_of_manifests_needs_no_engine_and_keeps_no_secret(tmp_path: Path) -> None:
    path, to = tmp_path / "chat.yaml", tmp_path / "dump"
    path.write_text(DEPLOYMENT + "---" + SCALED)
    code, _, _ = run("record", "--to", str(to), "--manifest", str(path))
    assert code == 0
    kept = (to / "facts.json").read_text()
    assert "hf_abc" not in kept
    assert json.loads(kept)["settings"]["keda.min_replicas"] == 3
    _, out, _ = run("--dump", str(to), "--json")
    assert json.loads(out)["findings"][0]["cause"] == "keda_idle_vs_min_flapping"


def test_a_broken_document_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(DEPLOYMENT + "---\na: [\n")
    with pytest.raises(ConfigError) as caught:
        run("--manifest", str(path))
    assert caught.value.place == f"{path}, document 2"
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        run("--manifest", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("text", ["", "just a text", "- 1\n- 2\n", "---\n---\n"])
def test_a_file_without_objects_is_no_manifest(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"notes\.txt.*objects of Kubernetes"):
        read_manifest(path)


def test_bytes_that_are_no_text_are_named_by_their_document(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_bytes(b"a: 1\n---\nb: \xff\n")
    with pytest.raises(ConfigError, match="document 2"):
        read_manifest(path)


def test_a_cluster_is_asked_to_get_and_for_nothing_else() -> None:
    asked: list[tuple[str, ...]] = []

    def get(words: tuple[str, ...]) -> object:
        asked.append(tuple(words))
        if words[0] == "nodes":
            raise EngineError("kubectl get nodes", "Forbidden: cannot list nodes")
        if words[0].startswith("scaledobjects"):
            raise EngineError("kubectl", "the server doesn't have a resource type")
        return {"kind": "List", "items": []}

    cluster = look_at_cluster("prod/chat", get=get)  # type: ignore[arg-type]
    assert (cluster.namespace, cluster.name) == ("prod", "chat")
    assert cluster.notes == {"kubectl get nodes": "Forbidden: cannot list nodes"}
    assert all("secrets" not in word for words in asked for word in words)
    assert {words[words.index("-n") + 1] for words in asked if "-n" in words} == {
        "prod",
        "knative-serving",
    }


@pytest.mark.parametrize("option", ["", "-n", "a b", "prod/", "prod/--all", "A", "a/b/c", "x;y"])
def test_what_is_no_name_is_not_passed_on(option: str) -> None:
    def get(_: object) -> object:
        raise AssertionError

    with pytest.raises(ConfigError, match="NAMESPACE"):
        look_at_cluster(option, get=get)


def test_a_namespace_that_cannot_be_read_is_an_error_of_the_option() -> None:
    def get(_: object) -> object:
        raise EngineError("kubectl get pods", "no kubectl on the PATH")

    with pytest.raises(ConfigError, match="no kubectl on the PATH"):
        look_at_cluster("prod", get=get)
