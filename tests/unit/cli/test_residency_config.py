"""What cannot be of `[[adapters]]`, `[lora]`, `[[models]]` and `[idle]` is refused, by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.cli.config import Config, load_config
from mileage.core.errors import ConfigError

VLLM = '[[engines]]\nkind = "vllm"\nurl = "http://e:8000"\n'
LOADER = f'{VLLM}lora_slots = 2\nmodels = ["llama"]\n'
MODEL = '[[models]]\nserved_name = "chat"\n'


def adapter(fields: str = "", *, name: str = "a", path: str = "/a", base: str = "smollm2") -> str:
    return f'[[adapters]]\nname = "{name}"\npath = "{path}"\nbase = "{base}"\n{fields}\n'


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "mileage.toml"
    path.write_text(text)
    return load_config(path, {}, {})


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        pytest.param(adapter("pinned = 1"), "adapters", "true or false", id="a wrong type"),
        pytest.param(adapter("pined = true"), "adapters", "pined", id="an unknown key"),
        pytest.param(adapter() + adapter(path="/b"), "adapters[1].name", "a", id="one name, twice"),
        pytest.param(
            adapter(name="smollm2", base="m"), "adapters[0].name", "model", id="a model's"
        ),
        pytest.param(adapter(base="nobody"), "adapters[0].base", "smollm2", id="an unknown base"),
        pytest.param(adapter(path="hf:../x"), "adapters.path", "OWNER", id="up the hub's tree"),
        pytest.param(adapter(path="hf:o/r"), "adapters[0].path", "gguf", id="no file of the hub's"),
        pytest.param(adapter(path="\\u0000"), "adapters.path", "a path", id="no path at all"),
        pytest.param(adapter('tenant = "t"'), "adapters[0].tenant", "tenant", id="unknown tenant"),
        pytest.param(
            "[embedded]\nlora_slots = 0\n" + adapter(), "embedded.lora_slots", "1", id="no slot"
        ),
        pytest.param(VLLM + adapter(base="x"), "engines.lora_slots", "1", id="nobody loads it"),
        pytest.param(MODEL + adapter(base="chat"), "engines.lora_slots", "1", id="of a sleeper"),
        pytest.param(
            LOADER + MODEL + adapter(base="chat"),
            "adapters[0].base",
            "those of [[models]] load no adapters",
            id="of a sleeper beside an engine that loads",
        ),
        pytest.param(
            LOADER + adapter(base="qwen"),
            "adapters[0].base",
            "a model of an engine",
            id="not listed",
        ),
        pytest.param(
            LOADER + adapter(base="llama", path="hf:o/r@main"),
            "adapters.path",
            "they take no @REVISION",
            id="a revision for an engine that fetches",
        ),
        pytest.param(
            LOADER
            + "".join(
                adapter("pinned = true", name=name, base="llama") for name in ("a", "b", "c")
            ),
            "engines.lora_slots",
            "at least 3",
            id="more pinned than slots",
        ),
        pytest.param(
            f"{VLLM}lora_slots = 2\nsleep_level = 1\n",
            "engines.sleep_level",
            "none beside lora_slots",
            id="adapters of an engine that sleeps",
        ),
        pytest.param("[lora]\nretry_s = -1\n", "lora.retry_s", "positive", id="a negative time"),
        pytest.param("[lora]\nhalf_life_s = nan\n", "lora.half_life_s", "positive", id="no number"),
        pytest.param('[lora]\nprefetch = "no"\n', "lora.prefetch", "true or", id="no switch"),
        pytest.param("[idle]\nfixed_s = -1\n", "idle.fixed_s", "0.0", id="idle for less than none"),
        pytest.param('[idle]\npolicy = "x"\n', "idle.policy", "never", id="no such policy"),
        pytest.param('[idle]\nkeep_warm = ["8-9"]\n', "idle.keep_warm", "hours", id="no hours"),
        pytest.param(
            "[idle]\nretry_s = 400\n", "idle.retry_s", "300", id="retried later than ever"
        ),
        pytest.param(
            MODEL + "[idle.models.caht]\nfixed_s = 1\n", "idle.models", "chat", id="a slip"
        ),
        pytest.param(MODEL + MODEL, "models.served_name", "no other", id="two models of one name"),
        pytest.param(f"{MODEL}slots = 0\n", "models.slots", "1..256", id="a model without slots"),
        pytest.param(f'{MODEL}load = "later"\n', "models", "start", id="loaded some time"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert raised.value.key.startswith(key)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(adapter() + adapter(name="b", path="../b.gguf"), id="of our own engine"),
        pytest.param(adapter(path="hf:o/r@v1/lora/f.gguf"), id="pinned to a revision of the hub"),
        pytest.param(f"{VLLM}lora_slots = 1\n" + adapter(base="any"), id="it may have the base"),
        pytest.param(LOADER + adapter(base="llama", path="hf:o/r"), id="the engine fetches it"),
        pytest.param(
            LOADER + MODEL + adapter(base="llama"), id="beside a model of ours that sleeps"
        ),
    ],
)
def test_what_can_be_is_taken(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).adapters
