"""Files of adapters for the engine of our own: where they are, and which are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import mileage.cli.adapters as module
from mileage.cli.adapters import Adapters
from mileage.cli.replicas import EMBEDDED
from mileage.policy.residency.adapters import AdapterConfig
from tests.support.gguf_builder import gguf

OF_THE_HUB = "hf:acme/support/lora.gguf"


class Replicas:
    desk: Any = None

    def tell_again(self, name: str) -> None: ...

    def look_again(self, name: str) -> None: ...


async def heard(timeout_s: float) -> bool:
    return True


def made(model_path: Path | None) -> Adapters:
    return Adapters(
        cast("Any", Replicas()),
        model_path,
        deliver=lambda event: None,
        heard=heard,
        retarget=lambda: None,
    )


def adapter(path: str, name: str = "a") -> AdapterConfig:
    return AdapterConfig(name=name, path=path, base="m")


def test_those_whose_files_are_not_there_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(gguf({"general.architecture": "llama"}))
    bad.write_bytes(b"hello")
    module._warn_of_absent(
        [
            adapter(str(good), "good"),
            adapter(str(bad), "bad"),
            adapter(str(tmp_path / "absent.gguf"), "absent"),
            adapter("~nobody-of-this-name/x.gguf", "homeless"),
            adapter(OF_THE_HUB, "fetched"),
        ]
    )
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [
        "bad",
        "absent",
        "homeless",
    ]


def test_a_file_of_the_hub_is_fetched_before_it_is_located(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lora.gguf"
    file.touch()
    monkeypatch.setattr(module, "fetch_hub_model", lambda path, progress: file)
    it, wanted = made(tmp_path / "m.gguf"), adapter(OF_THE_HUB)
    assert it._locate(EMBEDDED, wanted) is None
    it._fetch(wanted)
    assert it._locate(EMBEDDED, wanted) == str(file)
    file.unlink()  # the cache was emptied
    assert it._locate(EMBEDDED, wanted) is None
    assert it._locate(EMBEDDED, adapter("/x/y.gguf")) == "/x/y.gguf"


def test_an_engine_elsewhere_fetches_for_itself() -> None:
    assert made(None)._locate("vllm", adapter("hf:acme/support")) == "acme/support"
