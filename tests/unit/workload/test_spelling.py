"""The one-line spelling of a synthetic workload: what each key means, and what is refused."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.workload.synthetic.arrivals import DiurnalArrivals, GammaArrivals, OnOffArrivals
from mileage.workload.synthetic.config import (
    ContentsConfig,
    ConversationsConfig,
    MediaConfig,
    NamesConfig,
    PrefixesConfig,
    SyntheticConfig,
)
from mileage.workload.synthetic.lengths import (
    FixedLength,
    LognormalLength,
    UniformLength,
    ZipfLength,
)
from mileage.workload.synthetic.spelling import parse_synthetic, seconds_of, synthetic_config


def test_all_keys_together() -> None:
    made = parse_synthetic(
        "rate=5, duration=10m, requests=100, seed=3, arrivals=gamma, cv=3,"
        "prompt=lognormal:600:1.2:10:9000, output=zipf:1.1:5:500, max-tokens=900, stream=0.5,"
        "block-tokens=32, tenants=10:1.1, models=2, adapters=4:0.5, contents=1000:1:0.2,"
        "prefixes=20:512:1:0.8, turns=4:30s:0.5, images=0.2:uniform:400:4000, audio=0.1"
    )
    assert made == SyntheticConfig(
        rate_rps=5.0,
        duration_s=600.0,
        requests=100,
        seed=3,
        arrivals=GammaArrivals(cv=3.0),
        prompt=LognormalLength(median=600.0, sigma=1.2, low=10, high=9000),
        output=ZipfLength(alpha=1.1, low=5, high=500),
        output_tokens_max=900,
        stream_ratio=0.5,
        block_tokens=32,
        tenants=NamesConfig(count=10, alpha=1.1),
        models=NamesConfig(count=2),
        adapters=NamesConfig(count=4, alpha=0.5),
        contents=ContentsConfig(count=1000, alpha=1.0, ratio=0.2),
        prefixes=PrefixesConfig(count=20, tokens=FixedLength(tokens=512), alpha=1.0, ratio=0.8),
        conversations=ConversationsConfig(turns=4.0, think_s=30.0, ratio=0.5),
        media=MediaConfig(
            image_ratio=0.2, image_patches=UniformLength(low=400, high=4000), audio_ratio=0.1
        ),
    )


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        (
            "arrivals=onoff,on=10,off=1m,off-ratio=0.1",
            OnOffArrivals(on_s=10, off_s=60, off_ratio=0.1),
        ),
        ("arrivals=diurnal,period=1d,peak_ratio=4", DiurnalArrivals(period_s=86_400, peak_ratio=4)),
    ],
)
def test_arrivals_with_keys_of_their_own(text: str, arrivals: object) -> None:
    assert parse_synthetic(f"rate=1,duration=1h,{text}").arrivals == arrivals


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("", "rate", id="nothing"),
        pytest.param("rate=5", "duration", id="no end"),
        pytest.param("rats=5", "rats", id="unknown key"),
        pytest.param("rate", "rate", id="no value"),
        pytest.param("rate=", "rate", id="an empty value"),
        pytest.param("rate=5,rate=6,duration=1", "rate", id="twice"),
        pytest.param("rate=nan,duration=1m", "rate", id="nan"),
        pytest.param("rate=-5,duration=1m", "rate", id="negative"),
        pytest.param("rate=5,duration=1w", "duration", id="unknown unit"),
        pytest.param("rate=5,duration=1m,cv=3", "cv", id="a key of other arrivals"),
        pytest.param("rate=5,duration=1m,arrivals=gama,cv=3", "arrivals", id="unknown arrivals"),
        pytest.param("rate=5,duration=1m,arrivals=gamma", "cv", id="gamma without cv"),
        pytest.param("rate=5,duration=1m,prompt=normal:3:4", "prompt", id="unknown length"),
        pytest.param("rate=5,duration=1m,prompt=uniform:9:3", "prompt.high", id="ends swapped"),
        pytest.param("rate=5,duration=1m,prompt=fixed:1.5", "prompt", id="half a token"),
        pytest.param("rate=5,duration=1m,tenants=0", "tenants.count", id="no tenant"),
        pytest.param("rate=5,duration=1m,images=2", "images", id="too many images"),
        pytest.param("rate=5,duration=1m,prefixes=3", "prefixes", id="no length"),
        pytest.param("rate=5,duration=1m,turns=3:soon", "turns", id="no time"),
    ],
)
def test_a_fault_is_told_by_its_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_synthetic(text)
    assert caught.value.key == key


def test_a_seed_from_outside_holds_where_the_text_has_none() -> None:
    assert parse_synthetic("rate=5,duration=1m", seed=7).seed == 7
    assert parse_synthetic("rate=5,duration=1m,seed=3", seed=7).seed == 3


def test_the_nearest_key_is_named() -> None:
    with pytest.raises(ConfigError, match="near: duration"):
        parse_synthetic("rate=5,durration=1m")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("250ms", 0.25), ("1.5m", 90), ("2h", 7200), ("1d", 86_400)]
)
def test_times(text: str, seconds: float) -> None:
    assert seconds_of("x", text) == seconds


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        pytest.param({"rate_rps": "fast", "duration_s": 1.0}, "rate_rps", id="another type"),
        pytest.param({"rate_rps": 1.0, "duration_s": 1.0, "rate": 2}, "rate", id="unknown key"),
        pytest.param(
            {"rate_rps": 1.0, "duration_s": 1.0, "prompt": {"kind": "fixed", "token": 1}},
            "prompt.token",
            id="unknown key inside",
        ),
        pytest.param(
            {"rate_rps": 1.0, "duration_s": 1.0, "arrivals": {"kind": "burst"}},
            "arrivals.kind",
            id="unknown kind",
        ),
        pytest.param([1], "synthetic", id="no table"),
    ],
)
def test_a_fault_in_a_tree_is_told_by_its_key(tree: object, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        synthetic_config(tree)
    assert caught.value.key == key
