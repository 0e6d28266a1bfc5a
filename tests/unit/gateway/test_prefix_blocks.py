"""Prefix blocks: prompts that begin alike share their first ids, and others share none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.request import Endpoint
from mileage.gateway.bodies import Body, parse_body
from mileage.gateway.prefix_blocks import PrefixBlocks

BLOCKS = PrefixBlocks(64, b"key")
SYSTEM = {"role": "system", "content": "You are a helper. " * 20}
FIRST = {"role": "user", "content": "Tell me of routers. " * 10}
ANSWER = {"role": "assistant", "content": "They choose a way. " * 10}


def body(endpoint: Endpoint = "chat", **fields: Any) -> Body:
    return parse_body(endpoint, msgspec.json.encode({"model": "m", **fields}))


def ids(found: Body, *, model: str = "m", tenant: str | None = None) -> tuple[int, ...]:
    return BLOCKS.of(found, model, tenant)


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def test_the_next_turn_begins_with_the_blocks_of_the_one_before() -> None:
    first = ids(body(messages=[SYSTEM, FIRST]))
    second = ids(body(messages=[SYSTEM, FIRST, ANSWER, FIRST]))
    assert len(first) > 5
    assert shared(first, second) >= len(first) - 1
    assert len(second) > len(first)


def test_another_beginning_shares_nothing_although_the_rest_is_the_same() -> None:
    one = ids(body(messages=[SYSTEM, FIRST]))
    other = ids(body(messages=[{"role": "system", "content": "X"}, SYSTEM, FIRST]))
    assert not set(one) & set(other)


@pytest.mark.parametrize(
    ("endpoint", "fields", "before"),
    [
        pytest.param("chat", {"messages": [FIRST]}, {"tools": [{"type": "function"}]}, id="tools"),
        pytest.param("messages", {"messages": [FIRST]}, {"system": "Be short."}, id="system"),
        pytest.param("responses", {"input": "x" * 200}, {"instructions": "Be short."}, id="told"),
    ],
)
def test_what_comes_before_the_prompt_counts(
    endpoint: Endpoint, fields: dict[str, Any], before: dict[str, Any]
) -> None:
    plain, told = ids(body(endpoint, **fields)), ids(body(endpoint, **fields, **before))
    assert plain
    assert not set(plain) & set(told)


def test_models_and_tenants_with_a_salt_share_nothing() -> None:
    prompt = body("completions", prompt="x" * 300)
    assert not set(ids(prompt)) & set(ids(prompt, model="other"))
    assert not set(ids(prompt, tenant="a")) & set(ids(prompt, tenant="b"))
    assert ids(prompt, tenant="a") == ids(prompt, tenant="a")


def test_ids_are_secret_bounded_and_for_whole_blocks_only() -> None:
    short, long = body("completions", prompt="x"), body("completions", prompt="x" * 100_000)
    assert ids(short) == ()
    assert len(ids(long)) == 256
    assert all(0 <= each < 2**63 for each in ids(long))
    assert PrefixBlocks(64).of(long, "m", None) != PrefixBlocks(64).of(long, "m", None)


def test_a_body_that_is_released_has_no_prompt() -> None:
    prompt = body("completions", prompt="x" * 300)
    prompt.release()
    assert ids(prompt) == ()
