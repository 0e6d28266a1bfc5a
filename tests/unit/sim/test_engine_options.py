"""Keys of an engine out of files and options."""

from __future__ import annotations

import tomllib

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.eviction.choose import EvictionConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import AdaptersConfig, KvTierConfig, SpeculationConfig
from mileage.sim.engine_options import with_options, with_section

_BASE = EngineConfig(kv_blocks=100, running_max=16, step_tokens_max=256)


def test_a_section_reaches_every_feature() -> None:
    section = tomllib.loads(
        """
        watermark_ratio = 0.01
        eviction.policy = "lru_k_heat"
        adapters = { slots = 2, load_s = 0.5 }
        [[kv_tiers]]
        blocks = 500
        block_load_s = 0.001
        """
    )
    assert with_section(_BASE, section) == EngineConfig(
        kv_blocks=100,
        running_max=16,
        step_tokens_max=256,
        watermark_ratio=0.01,
        eviction=EvictionConfig(policy="lru_k_heat"),
        adapters=AdaptersConfig(slots=2, load_s=0.5),
        kv_tiers=(KvTierConfig(blocks=500, block_load_s=0.001),),
    )


def test_options_set_keys_of_parts_one_by_one() -> None:
    config = with_options(
        _BASE,
        [
            "speculation.draft_tokens=3",
            "speculation.acceptance=expected",
            "speculation.draft_tokens = 2",
            'kv_tiers=[{"blocks": 7, "block_load_s": 0.5}]',
        ],
    )
    assert config.speculation == SpeculationConfig(draft_tokens=2, acceptance="expected")
    assert config.kv_tiers[0].blocks == 7
    assert with_options(config, ["speculation.draft_tokens=5"]).speculation == SpeculationConfig(
        draft_tokens=5, acceptance="expected"
    )
    assert with_options(config, ["speculation=null"]).speculation is None


def test_a_single_tier_needs_no_list() -> None:
    config = with_options(_BASE, ["kv_tiers.blocks=7", "kv_tiers.block_load_s=0.5"])
    assert config.kv_tiers == (KvTierConfig(blocks=7, block_load_s=0.5),)


def test_nothing_changes_nothing() -> None:
    assert with_options(_BASE, []) == _BASE


@pytest.mark.parametrize(
    ("option", "says"),
    [
        pytest.param("adaptors.slots=2", r"engine\.adaptors.*adapters", id="unknown, and near"),
        pytest.param("adapters.slot=2", r"engine\.adapters\.slot:.*slots", id="unknown within"),
        pytest.param("kv_tiers.blocks=5", r"engine\.kv_tiers.*\.block_load_s", id="missing"),
        pytest.param("eviction.policy=mru", r"engine\.eviction\.policy.*lru", id="of a policy"),
        pytest.param(
            "adapters.slots=two", r"engine\.adapters\.slots.*two.*whole number", id="no number"
        ),
        pytest.param("kv_tiers=3", r"engine\.kv_tiers: got 3, expected a list", id="no list"),
        pytest.param(
            "prefill.slo.ttft_s=-1", r"engine\.prefill\.slo\.ttft_s: got -1", id="within a policy"
        ),
        pytest.param("adapters.slots=0", r"engine\.adapters\.slots.*at least 1", id="too small"),
        pytest.param("dp_ranks=99", r"engine\.running_max.*99 dp_ranks", id="cannot be"),
        pytest.param("dp_ranks", "KEY=VALUE", id="no value"),
        pytest.param(
            "kv_layout=x", r"engine\.kv_layout.*one of contiguous, paged", id="not one of them"
        ),
        pytest.param(
            "prefill.ordering=x", r"ordering: got 'x', expected one of .*deadline", id="nor within"
        ),
        pytest.param(
            'kv_tiers=[{"blocks":5,"block_load_s":1,"store":"x"}]',
            r"store.*one of computed, evicted",
            id="nor in a list",
        ),
    ],
)
def test_a_key_that_cannot_be_is_named(option: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_options(_BASE, [option])
