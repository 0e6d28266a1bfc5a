"""Models of the Hugging Face hub: ids, parts, the cache first, and errors that say what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from mileage.core.errors import ConfigError, EngineError, ModelFileError
from mileage.engines.embedded.hub_model import HubFile, fetch_hub_model, parse_hub_id

RESPONSE = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co/x"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param("hf:a/b/c.gguf", HubFile("a/b", None, "c.gguf"), id="plain"),
        pytest.param(
            "hf:a/b@v1.0/sub/dir/c-Q4_0.gguf",
            HubFile("a/b", "v1.0", "sub/dir/c-Q4_0.gguf"),
            id="revision and folders",
        ),
    ],
)
def test_hub_ids(model: str, expected: HubFile) -> None:
    assert parse_hub_id(model) == expected


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("hf:", id="nothing"),
        pytest.param("hf:a/b", id="no file"),
        pytest.param("hf:a/b/c.bin", id="no GGUF"),
        pytest.param("hf:a/b/../c.gguf", id="up the tree"),
        pytest.param("hf:a/b/c.gguf\n", id="a line break"),
        pytest.param("hf:a b/c/d.gguf", id="a space"),
    ],
)
def test_bad_hub_ids_are_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="hf:OWNER/REPO/FILE") as caught:
        parse_hub_id(model)
    assert caught.value.key == "embedded.model"


class Hub:
    """Stands in for the hub library: `cached` files are there, others are fetched or fail."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cached: dict[str, str], error: Exception | None
    ) -> None:
        self.cached, self.error = cached, error
        self.fetched: list[tuple[str, str, str | None]] = []
        monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", self._cached)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", self._download)

    def _cached(self, repo: str, file: str, revision: str | None = None) -> str | None:
        return self.cached.get(file)

    def _download(self, repo: str, file: str, *, revision: str | None, tqdm_class: type) -> str:
        if self.error is not None:
            raise self.error
        self.fetched.append((repo, file, revision))
        bar = tqdm_class(total=100, initial=10, unit="B", unit_scale=True, desc=file)
        bar.update(40)
        bar.close()
        return f"/hub/{file}"


def test_a_file_is_fetched_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, {}, None)
    shown: list[tuple[str, int, int | None]] = []
    path = fetch_hub_model("hf:a/b@rev/c.gguf", progress=lambda *step: shown.append(step))
    assert path == Path("/hub/c.gguf")
    assert hub.fetched == [("a/b", "c.gguf", "rev")]
    assert shown == [("fetching c.gguf", 0, None), ("fetching c.gguf", 50, 100)]


def test_a_cached_file_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, {"c.gguf": "/cache/c.gguf"}, OSError("no network"))
    assert fetch_hub_model("hf:a/b/c.gguf", progress=lambda *_: None) == Path("/cache/c.gguf")
    assert hub.fetched == []


def test_all_parts_of_a_split_model_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, {}, None)
    path = fetch_hub_model("hf:a/b/sub/m-00001-of-00003.gguf", progress=lambda *_: None)
    assert path == Path("/hub/sub/m-00001-of-00003.gguf")
    assert [f for _, f, _ in hub.fetched] == [f"sub/m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            errors.LocalEntryNotFoundError("offline"), "hub cannot be reached", id="no network"
        ),
        pytest.param(errors.GatedRepoError("x", response=RESPONSE), "HF_TOKEN", id="gated"),
        pytest.param(
            errors.RepositoryNotFoundError("x", response=RESPONSE), "does not exist", id="no repo"
        ),
        pytest.param(
            errors.RevisionNotFoundError("x", response=RESPONSE), "no such revision", id="no rev"
        ),
        pytest.param(errors.EntryNotFoundError("x"), r"has no file c\.gguf", id="no file"),
        pytest.param(
            OSError(errno.ENOSPC, "No space left", "/hub/blob"),
            "/hub/blob: cannot be written: no space left",
            id="full disk",
        ),
        pytest.param(ValueError("strange\ndetails"), "cannot be fetched: strange$", id="other"),
    ],
)
def test_errors_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    Hub(monkeypatch, {}, error)
    with pytest.raises(ModelFileError, match=message) as caught:
        fetch_hub_model("hf:a/b/c.gguf", progress=lambda *_: None)
    assert isinstance(caught.value, EngineError)
