"""Compiling the fast path: what is said of it, and which stored versions count."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mileage.cli import simulate_fast

ARM = SimpleNamespace(fleet=SimpleNamespace(specs=[]))
WORK: Any = SimpleNamespace(held=[])


def dispatcher(stored: list[str], place: str | None = "/there") -> Any:
    """As numba's, of code with the hash `now`, of which those versions are stored."""
    store = SimpleNamespace(
        cache_path=place,
        _index_key=lambda signature, codegen: (signature, "cpu", ("code", "now")),
        _cache_file=SimpleNamespace(
            _load_index=lambda: {("types", "cpu", ("code", each)): "file" for each in stored}
        ),
    )
    context = SimpleNamespace(codegen=lambda: None)
    return SimpleNamespace(signatures=[], _cache=store, targetctx=context)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What `prepare` says with such a dispatcher, and such a first run."""

    def prepare(found: Any, run: Callable[..., None] = lambda *arguments: None) -> str:
        monkeypatch.setattr(simulate_fast, "entry", lambda: found)
        monkeypatch.setattr(simulate_fast, "_run_shortest", run)
        out = io.StringIO()
        simulate_fast.prepare(ARM, WORK, Console(file=out, width=200))  # type: ignore[arg-type]
        return out.getvalue()

    return prepare


def test_what_was_compiled_before_is_loaded_without_a_word(said: Callable[..., str]) -> None:
    assert said(dispatcher(["before", "now"])) == ""


@pytest.mark.parametrize("stored", [[], ["before"]])
def test_compiling_is_announced_with_its_place(said: Callable[..., str], stored: list[str]) -> None:
    text = said(dispatcher(stored))
    assert "compiling the fast path: once, about a minute (kept in /there)" in text


def test_where_nothing_can_be_written_it_is_not_kept(said: Callable[..., str]) -> None:
    assert "not kept: set NUMBA_CACHE_DIR" in said(dispatcher([], place=None))
    plain = SimpleNamespace(signatures=[])  # without a store at all
    assert "not kept: set NUMBA_CACHE_DIR" in said(plain)


def test_a_full_disk_does_not_end_the_simulation(said: Callable[..., str]) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    assert "the compiled code is not kept: No space left on device" in said(dispatcher([]), fails)


def test_the_store_of_the_installed_compiler_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numba = pytest.importorskip("numba")
    source = tmp_path / "stored_function.py"
    source.write_text("def double(x):\n    return 2 * x\n")
    scope: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), scope)
    found = numba.njit(cache=True)(scope["double"])
    monkeypatch.setattr(simulate_fast, "entry", lambda: found)
    assert not simulate_fast._is_compiled()
    assert simulate_fast._place() == str(tmp_path / "__pycache__")
    found(1)
    found = numba.njit(cache=True)(scope["double"])
    assert not found.signatures
    assert simulate_fast._is_compiled(), "by another process, for all it knows"
