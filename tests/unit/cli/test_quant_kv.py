"""`mileage quant kv` on a model that is a table: its document, its exit code, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mileage.cli.commands import command_line
from mileage.core.errors import ConfigError
from mileage.quant.capture import Capture, CaptureFacts, LayerCapture
from mileage.quant.formats import Slot, Values
from mileage.quant.measured import Measurement, Mix, Window
from mileage.quant.quantised import quantised
from mileage.quant.ranges import ranges_of

LAYERS = 2
WEIGHTS = {Slot(0, "k"): 1.0, Slot(0, "v"): 0.3, Slot(1, "k"): 0.05, Slot(1, "v"): 0.5}


class _Model:
    """A word is a token; a slot's KL is the square of its relative error times its weight."""

    layers, head_dim, kv_heads = LAYERS, 64, 1
    times = 1.0
    """Of held-out text's KL; its windows have odd numbers."""

    def __init__(self, path: Path, *, threads: int) -> None:
        if not path.is_dir():
            raise ConfigError("PATH", str(path), "a model")
        generator = np.random.default_rng(5)

        def values(heads: int) -> Values:
            return generator.standard_normal((128, heads, 64)).astype(np.float32)

        self._layers = tuple(LayerCapture(q=values(2), k=values(1), v=values(1)) for _ in (0, 1))
        self._ranges = {
            Slot(i, side): ranges_of([getattr(layer, side)])
            for i, layer in enumerate(self._layers)
            for side in ("k", "v")
        }

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        words = text.split()
        if len(words) < tokens:
            raise ConfigError("--text", f"{len(words)} tokens", f"at least one window of {tokens}")
        return tuple((i,) for i in range(len(words) // tokens))

    def calibrate(self, windows: Sequence[Window]) -> None:
        assert all(i % 2 == 0 for (i,) in windows)

    def capture(self, windows: Sequence[Window]) -> Capture:
        facts = CaptureFacts(
            model="toy",
            model_sha256="a" * 64,
            text_sha256=repr(windows),
            layers=LAYERS,
            heads=2,
            kv_heads=1,
            head_dim=64,
            scale=0.125,
            window_tokens=(128,),
        )
        return Capture(facts=facts, layers=self._layers)

    def measure(self, window: Window, mix: Mix) -> Measurement:
        total = 0.0
        for slot, form in mix.items():
            values = getattr(self._layers[slot.layer], slot.side)
            error = quantised(values, form, self._ranges[slot]) - values
            total += WEIGHTS[slot] * float(np.square(error).mean())
        kl = total * (self.times if window[0] % 2 else 1.0)
        return Measurement(kl=np.array([kl]), loss=np.array([1.0]))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type[_Model]:
    class Own(_Model):
        pass

    monkeypatch.setattr("mileage.cli.quant_kv.ReferenceModel", Own)
    few = ("f16", "int3-channel-g64", "int4-channel-g64", "int4-token-g64+rot", "int6-channel-g64")
    monkeypatch.setattr("mileage.cli.quant_kv.IDEAL", few)
    return Own


def _run(directory: Path, *arguments: str) -> tuple[int, str, BaseException | None]:
    command = ["quant", "kv", str(directory), "--window", "128", *arguments]
    found = CliRunner().invoke(command_line(("quant",)), command)
    return found.exit_code, found.stdout, found.exception


def _document(directory: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = _run(directory, "--json", *arguments)
    return code, json.loads(out)


def test_a_budget_is_met_with_few_bits_on_text_that_is_held_out(
    tmp_path: Path, model: type[_Model]
) -> None:
    code, found = _document(tmp_path, "--budget-kl", "0.001")

    assert code == 0
    assert found["budget_met"] is True
    assert found["kl_heldout"]["mean"] <= 0.001
    low, high = found["kl_heldout"]["ci95"]
    assert low <= found["kl_heldout"]["mean"] <= high
    assert 3.0 < found["bits_per_value"] < 9.0
    assert len(found["layers"]) == LAYERS
    assert {"k", "v", "kl"} <= set(found["layers"][0])
    assert found["sum_of_single_kl"] == pytest.approx(sum(x["kl"] for x in found["layers"]))
    assert found["sum_of_single_kl"] == pytest.approx(found["kl_of_the_same_text"])
    assert set(found["flags"]) == {"llama.cpp", "vllm", "tensorrt-llm", "lmdeploy"}
    assert "--cache-type-k" in found["flags"]["llama.cpp"]["flags"]
    assert found["flags"]["llama.cpp"]["kl_heldout"] <= 0.002


def test_more_bits_are_asked_for_than_are_taken(tmp_path: Path, model: type[_Model]) -> None:
    code, found = _document(tmp_path, "--bits", "4.75")

    assert code == 0
    assert found["bits_per_value"] <= 4.75
    assert found["budget_met"] is None


def test_a_budget_missed_on_held_out_text_is_told(tmp_path: Path, model: type[_Model]) -> None:
    model.times = 5.0

    code, found = _document(tmp_path, "--budget-kl", "0.001")

    assert code == 1
    assert found["budget_met"] is False
    code, text, _ = _run(tmp_path, "--budget-kl", "0.001")
    assert code == 1
    assert "is NOT met on held-out text" in text


def test_tables_name_layers_and_engines(tmp_path: Path, model: type[_Model]) -> None:
    code, text, _ = _run(tmp_path, "--budget-kl", "0.001")

    assert code == 0
    assert "What engines can be told" in text
    assert "--cache-type-k" in text


def test_what_was_measured_is_read_again_and_only_for_the_same_text(
    tmp_path: Path, model: type[_Model]
) -> None:
    kept = tmp_path / "measured"
    _, first = _document(tmp_path, "--bits", "5", "--measured", str(kept))

    _, again = _document(tmp_path, "--bits", "5", "--measured", str(kept))

    assert again == first
    _, _, error = _run(tmp_path, "--bits", "5", "--measured", str(kept), "--windows", "3")
    assert "measured of this model and text" in str(error)
    kept.write_bytes(b"something else")
    _, _, error = _run(tmp_path, "--bits", "5", "--measured", str(kept))
    assert "a file of mileage quant kv" in str(error)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "--budget-kl: got None, expected it or --bits", id="neither"),
        pytest.param(("--budget-kl", "1", "--bits", "4"), "and not both", id="both"),
        pytest.param(("--budget-kl", "0"), "expected a number above 0", id="no budget"),
        pytest.param(("--bits", "nan"), "expected a number above 0", id="bits that are none"),
        pytest.param(("--bits", "2"), "at least 3.50 bits, the fewest", id="too few bits"),
        pytest.param(("--budget-kl", "1e-12"), "nats, the least that the formats", id="too little"),
        pytest.param(("--bits", "4", "--text", "no-such-file"), "can be read", id="no text"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, model: type[_Model], arguments: tuple[str, ...], said: str
) -> None:
    _, _, error = _run(tmp_path, *arguments)

    assert isinstance(error, ConfigError)
    assert said in str(error)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(127, "127 tokens", id="less than a window"),
        pytest.param(255, "two windows of 128 tokens, or --held-out", id="nothing to hold out"),
    ],
)
def test_text_that_is_too_short_is_refused(
    tmp_path: Path, model: type[_Model], words: int, said: str
) -> None:
    text = tmp_path / "text"
    text.write_text("word " * words)

    _, _, error = _run(tmp_path, "--bits", "4", "--text", str(text))

    assert said in str(error)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, model: type[_Model]) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\xff\xfe\x00")

    _, _, error = _run(tmp_path, "--bits", "4", "--text", str(text))

    assert "a file of UTF-8 text" in str(error)
