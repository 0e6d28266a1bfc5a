"""`kubectl get` as a child process: its answer, its refusals, none at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.doctor_k8s import kubectl_get


def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A kubectl of our own as the only program on the PATH."""
    path = tmp_path / "kubectl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_its_words_are_a_list_and_its_answer_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, 'printf \'{"words": "%s"}\' "$*"')
    answer = kubectl_get(("pods", "-n", "prod"))
    assert answer["words"].startswith("get pods -n prod -o json ")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("echo 'Error: Forbidden' >&2; exit 1", "Forbidden", id="it says why not"),
        pytest.param("exit 3", "exit code 3", id="it says nothing"),
        pytest.param("echo no json", "no JSON", id="it prints something else"),
    ],
)
def test_what_goes_wrong_is_said(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, monkeypatch, script)
    with pytest.raises(EngineError, match=said):
        kubectl_get(("pods",))


def test_without_kubectl_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="no kubectl"):
        kubectl_get(("pods",))
