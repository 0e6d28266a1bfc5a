"""Fetches a GGUF file from the Hugging Face hub, with the hub library's own cache and resume."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import msgspec

from mileage.core.errors import ConfigError, EngineError, ModelFileError
from mileage.engines.embedded.model_cache import Progress, write_failure
from mileage.engines.embedded.model_files import split_parts

__all__ = ["HubFile", "fetch_hub_model", "parse_hub_id"]

EXPECTED = "hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO@REVISION/FILE.gguf"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB_ID = re.compile(
    rf"hf:(?P<repo>{_PART}/{_PART})(?:@(?P<revision>{_PART}))?/(?P<file>(?:{_PART}/)*{_PART}\.gguf)"
)


class HubFile(msgspec.Struct, frozen=True):
    """One file of a hub repository; `revision` None is the main branch."""

    repo: str
    revision: str | None
    file: str


def parse_hub_id(model: str) -> HubFile:
    """Split `hf:OWNER/REPO[@REVISION]/FILE.gguf`. Raises ConfigError."""
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise ConfigError("embedded.model", model, EXPECTED)
    return HubFile(match["repo"], match["revision"], match["file"])


def fetch_hub_model(model: str, *, progress: Progress) -> Path:
    """The (first) file of the model in the hub's cache, fetched where it is not yet.

    What is in the cache is used without asking the hub, so a start needs no network; name a
    revision to move on. Raises ConfigError, EngineError, ModelFileError.
    """
    wanted = parse_hub_id(model)
    folder, _, name = wanted.file.rpartition("/")
    paths = []
    for part in split_parts(name):
        file = f"{folder}/{part}" if folder else part
        paths.append(_fetch(wanted.repo, wanted.revision, file, progress))
    return paths[0]


def _fetch(repo: str, revision: str | None, file: str, progress: Progress) -> Path:
    import huggingface_hub as hub

    cached = hub.try_to_load_from_cache(repo, file, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    options: dict[str, Any] = {}
    if "tqdm_class" in inspect.signature(hub.hf_hub_download).parameters:
        options["tqdm_class"] = _progress_bar(f"fetching {file}", progress)
    progress(f"fetching {file}", 0, None)
    try:
        return Path(hub.hf_hub_download(repo, file, revision=revision, **options))
    except Exception as error:
        raise _explained(error, repo, revision, file) from error


def _explained(error: Exception, repo: str, revision: str | None, file: str) -> EngineError:
    """Our error for the hub library's, or for what its HTTP client let through."""
    from huggingface_hub import errors

    place = f"hf:{repo}{'@' + revision if revision else ''}"
    if isinstance(error, errors.GatedRepoError):
        message = "is gated: accept its terms on huggingface.co and set HF_TOKEN"
    elif isinstance(error, errors.RepositoryNotFoundError):
        message = "does not exist, or is private: then set HF_TOKEN"
    elif isinstance(error, errors.RevisionNotFoundError):
        message = "has no such revision"
    elif isinstance(error, errors.LocalEntryNotFoundError):
        message = (
            f"{file} is not in the local cache and the hub cannot be reached"
            f" ({_root(error)}); fetch the file where there is a network and give its path"
        )
    elif isinstance(error, errors.EntryNotFoundError):
        message = f"has no file {file}"
    elif isinstance(error, OSError) and error.errno is not None and error.filename:
        return write_failure(Path(str(error.filename)), error)
    elif isinstance(error, OSError) and error.errno is not None:
        return write_failure(Path(place) / file, error)
    else:
        message = f"{file} cannot be fetched: {_root(error)}"
    return ModelFileError(place, message)


def _root(error: BaseException) -> str:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _progress_bar(label: str, progress: Progress) -> type:
    """A progress bar class for the hub library that draws nothing and tells `progress`."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    class Bar(tqdm):  # type: ignore[type-arg, misc, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # the hub library's own, not tqdm's
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total")
            self._done = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self._done += int(n or 0)
            progress(label, self._done, int(self.total) if self.total else None)
            return None

    return Bar
