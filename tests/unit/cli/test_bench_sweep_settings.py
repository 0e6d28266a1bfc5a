"""Keys of a gateway that a sweep sets: how they are spelled, and which documents they become."""

from __future__ import annotations

import pytest

from mileage.cli.bench_sweep_settings import settings_of
from mileage.core.errors import ConfigError


def test_without_texts_nothing_is_set() -> None:
    assert settings_of([]) == {}


def test_a_key_becomes_a_document_for_each_value() -> None:
    assert settings_of(["governor.policy=static,model"]) == {
        "governor.policy=static": {"governor": {"policy": "static"}},
        "governor.policy=model": {"governor": {"policy": "model"}},
    }


def test_values_are_json_where_they_are() -> None:
    found = settings_of(["slo.ttft_s=0.5,2", "merging.enabled=true"])
    assert found["slo.ttft_s=0.5, merging.enabled=true"] == {
        "slo": {"ttft_s": 0.5},
        "merging": {"enabled": True},
    }
    assert len(found) == 2


def test_keys_of_one_table_share_it() -> None:
    (found,) = settings_of(["slo.ttft_s=1", "slo.itl_s=2"]).values()
    assert found == {"slo": {"ttft_s": 1, "itl_s": 2}}


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["governor.policy"], id="no values"),
        pytest.param(["=1,2"], id="no key"),
        pytest.param(["a.=1"], id="half a key"),
        pytest.param(["a=1,,2"], id="a value that is missing"),
        pytest.param(["a=1", "a=2"], id="a key twice"),
        pytest.param(["a=1", "a.b=2"], id="a key within a value"),
    ],
)
def test_what_cannot_be_set_is_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError) as told:
        settings_of(texts)
    assert told.value.key == "--set"
