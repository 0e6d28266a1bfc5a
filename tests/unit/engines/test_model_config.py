"""`[[models]]`: several embedded models, and what does not fit beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.cli.config import Config, load_config
from mileage.cli.hot_keys import plan
from mileage.core.errors import ConfigError
from mileage.engines.model_config import ModelConfig

TWO = '[[models]]\nserved_name = "one"\n[[models]]\nmodel = "/m/two.gguf"\nslots = 3\n'


def config(directory: Path, text: str) -> Config:
    file = directory / "mileage.toml"
    file.write_text(text)
    return load_config(file, {}, {})


def test_each_is_a_replica_with_limits_of_its_own(tmp_path: Path) -> None:
    found = config(tmp_path, TWO)
    assert [model.replica for model in found.models] == ["one", "two"]
    assert found.control().replica_running_max == {"one": 8, "two": 3}
    assert {model.load for model in found.models} == {"demand"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param(TWO + "[embedded]\nslots = 2\n", "embedded", id="both sections"),
        pytest.param(TWO * 2, "models.served_name", id="two of a name"),
        pytest.param(
            '[[engines]]\nkind = "vllm"\nurl = "http://h:1"\nname = "one"\n' + TWO,
            "models.served_name",
            id="an engine of the same name",
        ),
        pytest.param(TWO + '[idle]\ntime_zone = "Mars"\n', "idle.time_zone", id="no zone"),
        pytest.param(
            TWO + '[idle.models.one]\ntenants = ["nobody"]\n',
            "idle.models.one.tenants",
            id="no such tenant",
        ),
        pytest.param(TWO + "slots = 0\n", None, id="a key twice"),
        pytest.param("[[models]]\nslots = 0\n", "models.slots", id="no slots"),
        pytest.param('[[models]]\nserved_name = "a b"\n', "models.served_name", id="no name"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, key: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text)
    assert key in (None, caught.value.key)


def test_a_reload_changes_when_they_sleep_and_not_which_there_are(tmp_path: Path) -> None:
    running = config(tmp_path, TWO)
    written = config(tmp_path, '[[models]]\nserved_name = "one"\n[idle]\npolicy = "never"\n')
    found = plan(running, written)
    assert (found.config.models, found.config.idle.policy) == (running.models, "never")
    assert found.restart_needed == ["models"]


def test_defaults_are_those_of_the_embedded_engine() -> None:
    assert (ModelConfig().replica, ModelConfig().slots) == ("smollm2", 8)
