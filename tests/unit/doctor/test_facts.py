"""Facts documents: what they may hold, and that all else is refused by its path."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.doctor.facts import Facts, decode_facts
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.quantity import Quantity
from mileage.doctor.vocabulary import KEYS, SECTIONS, key_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=12) | st.sampled_from(("min", "max", "series", "value")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
VALUES = (
    JSON
    | st.fixed_dictionaries({"series": st.lists(st.fixed_dictionaries({"value": JSON}))})
    | st.fixed_dictionaries({}, optional={"min": JSON, "max": JSON})
)
SECTION = st.sampled_from(sorted(SECTIONS)).flatmap(
    lambda section: st.tuples(
        st.just(section),
        st.dictionaries(st.sampled_from(sorted(SECTIONS[section])), VALUES, max_size=4),
    )
)
NAMED = st.lists(SECTION, max_size=4).map(dict)
ARMS = st.lists(NAMED.map(lambda arm: {"arm": "a"} | arm) | JSON, max_size=3)
DOCUMENTS = st.builds(
    lambda named, arms, logs: named | {"comparisons": [{"arms": arms}], "logs": logs},
    NAMED,
    ARMS,
    st.lists(st.text(), max_size=2) | JSON,
)


def refused(document: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        decode_facts(document)
    return caught.value


@given(JSON | NAMED | DOCUMENTS)
def test_any_document_is_read_or_refused(document: Any) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(decode_facts(document), Facts)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        pytest.param([], "facts", id="no object"),
        pytest.param({"signal": {}}, "signal", id="an unknown section"),
        pytest.param({"signals": 3}, "signals", id="a section that is no object"),
        pytest.param({"signals": {"itl": 1}}, "signals.itl", id="an unknown name"),
        pytest.param({"settings": {"gpu": "H100"}}, "settings.gpu", id="a name of elsewhere"),
        pytest.param(
            {"signals": {"itl_p99_s": "fast"}}, "signals.itl_p99_s", id="a word for a number"
        ),
        pytest.param({"signals": {"itl_p99_s": True}}, "signals.itl_p99_s", id="a flag for it"),
        pytest.param({"signals": {"itl_p99_s": None}}, "signals.itl_p99_s", id="null for it"),
        pytest.param(
            {"signals": {"itl_p99_s": float("nan")}}, "signals.itl_p99_s", id="not a number"
        ),
        pytest.param({"signals": {"itl_p99_s": 10**400}}, "signals.itl_p99_s", id="too large"),
        pytest.param(
            {"signals": {"itl_p99_s": 10**5000}}, "signals.itl_p99_s", id="too large to be written"
        ),
        pytest.param({"signals": {"itl_p99_s": [1]}}, "signals.itl_p99_s", id="a list of one"),
        pytest.param({"signals": {"itl_p99_s": {}}}, "signals.itl_p99_s", id="no bound"),
        pytest.param(
            {"signals": {"itl_p99_s": {"min": 2, "max": 1}}}, "signals.itl_p99_s", id="crossed"
        ),
        pytest.param(
            {"signals": {"itl_p99_s": {"min": "1"}}}, "signals.itl_p99_s.min", id="a text bound"
        ),
        pytest.param(
            {"signals": {"itl_p99_s": [1, "x"]}}, "signals.itl_p99_s[1]", id="a unit's word"
        ),
        pytest.param(
            {"signals": {"itl_p99_s": {"series": [{"value": 1}, {}]}}},
            "signals.itl_p99_s.series[1].value",
            id="a time without a value",
        ),
        pytest.param(
            {"signals": {"itl_p99_s": {"series": [{"value": 1}, {"value": 1, "t_s": "x"}]}}},
            "signals.itl_p99_s.series[1].t_s",
            id="a time that is none",
        ),
        pytest.param(
            {"settings": {"max_num_seqs": [1, 2]}}, "settings.max_num_seqs", id="units of a setting"
        ),
        pytest.param({"settings": {"enforce_eager": 1}}, "settings.enforce_eager", id="1 for true"),
        pytest.param(
            {"settings": {"scheduler.policy": "best"}},
            "settings.scheduler.policy",
            id="no such word",
        ),
        pytest.param(
            {"model": {"architecture": ["moe", 3]}}, "model.architecture[1]", id="a number of texts"
        ),
        pytest.param({"workload": {"lora_ranks": 8}}, "workload.lora_ranks", id="no list"),
        pytest.param({"logs": "one line"}, "logs", id="logs that are one text"),
        pytest.param({"logs": ["a", 1]}, "logs[1]", id="a line that is none"),
        pytest.param({"comparisons": {}}, "comparisons", id="comparisons that are no list"),
        pytest.param(
            {"comparisons": [{"arms": [{"arm": "a"}]}]}, "comparisons[0].arms", id="a single arm"
        ),
        pytest.param(
            {"comparisons": [{"arms": [{"arm": "a"}, {}]}]},
            "comparisons[0].arms[1].arm",
            id="an arm without a name",
        ),
        pytest.param(
            {"comparisons": [{"arms": [{"arm": "a", "signals": {"x": 1}}, {"arm": "b"}]}]},
            "comparisons[0].arms[0].signals.x",
            id="an unknown name in an arm",
        ),
        pytest.param(
            {"comparisons": [{"arms": [{"arm": "a", "current": 1}, {"arm": "b"}]}]},
            "comparisons[0].arms[0].current",
            id="an arm that is current as a number",
        ),
        pytest.param(
            {"comparisons": [{"restarted_between_arms": 0, "arms": []}]},
            "comparisons[0].restarted_between_arms",
            id="restarted as a number",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_path(document: Any, path: str) -> None:
    assert refused(document).key == path


@pytest.mark.parametrize(
    ("document", "near"),
    [
        pytest.param({"signals": {"itl_p99": 1}}, "signals.itl_p99_s?", id="a unit is missing"),
        pytest.param({"gpus": 4}, "hardware.count or hardware.gpu?", id="a name for a section"),
        pytest.param({"signal": {}}, "is it signals?", id="a section"),
        pytest.param({"hardware": {"gpus": 4}}, "hardware.count or", id="another word"),
        pytest.param({"signals": {"concurrency": 4}}, "workload.concurrency?", id="elsewhere"),
        pytest.param(
            {"settings": {"max_running_requests": 4}}, "settings.max_num_seqs?", id="of an engine"
        ),
        pytest.param({"comparisons": [{"arm": []}]}, "is it arms?", id="in a comparison"),
        pytest.param({"signals": {"zzz": 1}}, "docs/reference/facts.md", id="like nothing"),
    ],
)
def test_a_near_name_is_told(document: Any, near: str) -> None:
    assert near in str(refused(document))


def test_every_name_has_a_meaning_of_its_own() -> None:
    for names in SECTIONS.values():
        meanings = [kind.meaning for kind in names.values()]
        assert all(meanings)
        assert len(set(meanings)) == len(meanings)


def test_the_place_of_the_document_is_told() -> None:
    with pytest.raises(ConfigError, match=r"facts\.json"):
        decode_facts({"signals": {"x": 1}}, place="facts.json")


@pytest.mark.parametrize(
    ("document", "low", "high"),
    [
        pytest.param({"max": 0.5}, 0.0, 0.5, id="at most: what is measured is not negative"),
        pytest.param({"min": 0.5}, 0.5, float("inf"), id="at least"),
        pytest.param({"max": -1}, -1.0, -1.0, id="at most a negative number"),
    ],
)
def test_bounds(document: Any, low: float, high: float) -> None:
    found = decode_facts({"signals": {"itl_p99_s": document}}).values["itl_p99_s"]
    assert isinstance(found, Quantity)
    assert found.value == Interval(low, high)


def test_a_slope_may_be_negative_below_its_bound() -> None:
    key = "host_rss_growth_gb_per_h"
    found = decode_facts({"signals": {key: {"max": 0.5}}}).values[key]
    assert isinstance(found, Quantity)
    assert found.value == Interval(float("-inf"), 0.5)


def test_null_is_a_setting_that_is_not_set() -> None:
    values = decode_facts({"settings": {"max_loras": None, "quantization": None}}).values
    assert values["quantization"] is None
    assert values["max_loras"] == Quantity("max_loras", "count", unset=True)


def test_arms_keep_their_order_and_what_they_say() -> None:
    facts = decode_facts(
        {
            "comparisons": [
                {
                    "restarted_between_arms": True,
                    "arms": [
                        {"arm": "before", "signals": {"throughput_rel": 1}},
                        {"arm": "after", "settings": {"enforce_eager": True}, "current": True},
                    ],
                }
            ]
        }
    )
    (comparison,) = facts.comparisons
    assert comparison.restarted_between_arms is True
    assert [arm.name for arm in comparison.arms] == ["before", "after"]
    assert comparison.arms[0].values["throughput_rel"] == Quantity(
        "throughput_rel", "ratio", "one", (exactly(1),)
    )
    assert comparison.arms[1].current
    assert comparison.arms[1].values["enforce_eager"] is True


def test_keys_are_names_as_rules_say_them() -> None:
    assert KEYS["hardware.gpu"] == ("hardware", "gpu")
    assert KEYS["max_num_seqs"] == ("settings", "max_num_seqs")
    assert len(KEYS) == sum(map(len, SECTIONS.values())), "two sections share a key"
    assert key_of("model", "dtype") == "model.dtype"
