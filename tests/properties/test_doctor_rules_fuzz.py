"""Any facts at all: no rule fails, and none says more than it may."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.doctor.evidence import Evidence
from mileage.doctor.fact_kind import Kind
from mileage.doctor.facts import decode_facts
from mileage.doctor.rules.all_rules import RULES
from mileage.doctor.run import diagnose
from mileage.doctor.vocabulary import SECTIONS

NUMBERS = st.sampled_from((0, 1, 2, 0.02, 0.5, 0.95, 8, 100, 8000, 1e9, 1e-9, -1, 1e299))
WORDS = st.sampled_from(
    ("", "vllm", "sglang", "llama.cpp", "triton", "h100", "a100", "t4", "none", "cpu", "fp8", "0.9")
)
TAGS = st.lists(st.sampled_from(("dense", "moe", "mla", "vlm", "embedding", "litellm")), max_size=3)
LOGS = st.lists(
    st.sampled_from(
        (
            "INFO detected platform cpu",
            "WARNING Using a slow tokenizer",
            "Memory cgroup out of memory: Killed process 7",
            "Decode batch. #running-req: 3, cuda graph: False",
            "Maximum concurrency for 29000 tokens per request: 0.82x",
        )
    ),
    max_size=2,
)


@st.composite
def bounds(draw: st.DrawFn) -> Any:
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    return draw(st.sampled_from(({"min": low}, {"max": high}, {"min": low, "max": high})))


ONE = NUMBERS | bounds()


def fact(section: str, kind: Kind) -> st.SearchStrategy[Any]:
    """Any value that a fact of that kind may have."""
    series = st.lists(st.fixed_dictionaries({"value": ONE}), min_size=2, max_size=5)
    values: dict[str, st.SearchStrategy[Any]] = {
        "number": ONE,
        "numbers": st.lists(ONE, min_size=1, max_size=3),
        "flag": st.booleans(),
        "text": WORDS,
        "texts": TAGS,
        "choice": st.sampled_from(sorted(kind.choices) or [""]),
        "signal": ONE | st.lists(ONE, min_size=2, max_size=4) | series.map(lambda s: {"series": s}),
    }
    value = values[kind.form]
    return st.none() | value if section == "settings" else value


NAMES = [(section, name) for section, kinds in SECTIONS.items() for name in kinds]


def is_possible(document: dict[str, Any]) -> bool:
    """Shares above the whole and lengths below 0 are refused before any rule sees them."""
    try:
        decode_facts(document)
    except ConfigError:
        return False
    return True


@st.composite
def sections(draw: st.DrawFn, most: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for section, name in draw(st.lists(st.sampled_from(NAMES), max_size=most, unique=True)):
        value = draw(fact(section, SECTIONS[section][name]))
        if is_possible({section: {name: value}}):
            document.setdefault(section, {})[name] = value
    return document


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    document = draw(sections(30))
    document["logs"] = draw(LOGS)
    arms = st.lists(sections(4), min_size=2, max_size=3)
    document["comparisons"] = [
        {"arms": [{"arm": str(n), "current": n == 1} | arm for n, arm in enumerate(each)]}
        for each in draw(st.lists(arms, max_size=2))
    ]
    return document


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_no_facts_make_a_rule_fail(document: dict[str, Any]) -> None:
    evidence = Evidence(decode_facts(document))
    for rule in RULES:
        opinion = rule.check(evidence)
        assert isfinite(opinion.log_odds), rule.id
        waste = opinion.waste_ratio
        assert waste is None or waste.low <= waste.high, rule.id


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_a_diagnosis_of_any_facts_can_be_written_down(document: dict[str, Any]) -> None:
    diagnosis = diagnose(decode_facts(document))
    assert msgspec.json.decode(msgspec.json.encode(diagnosis))
    assert len({each.cause for each in diagnosis.findings}) == len(diagnosis.findings)
    for each in diagnosis.findings:
        assert 0.5 <= each.confidence < 1.0, each.rule
