"""Stored keys and values against attention written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mileage.quant.attention_error import WindowAttention
from mileage.quant.capture import LayerCapture
from mileage.quant.formats import Values, format_named
from mileage.quant.quantised import quantised

SCALE = 32**-0.5
TOKENS, HEADS, KV_HEADS, WIDTH = 50, 4, 2, 32


def _seen(seed: int = 1) -> LayerCapture:
    generator = np.random.default_rng(seed)

    def values(heads: int) -> Values:
        return generator.standard_normal((TOKENS, heads, WIDTH)).astype(np.float32)

    return LayerCapture(q=values(HEADS), k=values(KV_HEADS), v=values(KV_HEADS))


def _weights(seen: LayerCapture, stored: Values, group: int | None) -> np.ndarray:
    """(heads, queries, keys) in float64, one row after the other."""
    found = np.zeros((HEADS, TOKENS, TOKENS))
    for head in range(HEADS):
        for i in range(TOKENS):
            own = 0 if group is None else i // group * group
            keys = seen.k[: i + 1, head // 2].astype(np.float64)
            past = stored[: i + 1, head // 2].astype(np.float64)
            if group is not None:
                past[own:] = keys[own:]
            scores = SCALE * past @ seen.q[i, head]
            weights = np.exp(scores - scores.max())
            found[head, i, : i + 1] = weights / weights.sum()
    return found


@pytest.mark.parametrize(
    "name", ["int4-token-g32", "q8_0", "int2-channel-g32", "int3-channel-g16", "e5m2"]
)
def test_keys_change_the_weights_as_by_hand(name: str) -> None:
    seen, kv_format = _seen(), format_named(name)
    stored = quantised(seen.k, kv_format)
    before = _weights(seen, seen.k, None)
    after = _weights(seen, stored, kv_format.open_group)
    some = before > 0.0
    terms = np.zeros_like(before)
    terms[some] = before[some] * np.log(before[some] / after[some])

    found = WindowAttention(seen, scale=SCALE).keys(stored, kv_format.open_group)

    assert found.kl == pytest.approx(terms.sum(axis=2).mean(), rel=1e-3)
    assert found.kl_proxy == pytest.approx(found.kl, rel=0.1)


@pytest.mark.parametrize("name", ["int4-token-g32", "int2-channel-g32", "e5m2"])
def test_values_change_the_output_as_by_hand(name: str) -> None:
    seen, kv_format = _seen(), format_named(name)
    stored, group = quantised(seen.v, kv_format), kv_format.open_group
    weights = _weights(seen, seen.k, None)
    wrong = np.zeros((HEADS, TOKENS, WIDTH))
    right = np.zeros((HEADS, TOKENS, WIDTH))
    for head in range(HEADS):
        for i in range(TOKENS):
            error = (stored - seen.v)[: i + 1, head // 2].astype(np.float64)
            if group is not None:
                error[i // group * group :] = 0.0
            wrong[head, i] = weights[head, i, : i + 1] @ error
            right[head, i] = weights[head, i, : i + 1] @ seen.v[: i + 1, head // 2]

    found = WindowAttention(seen, scale=SCALE).values(stored, group)

    expected = np.square(wrong).mean() / np.square(right).mean()
    assert found.output_error == pytest.approx(expected, rel=1e-3)


def test_what_all_keys_share_is_no_error_of_the_weights() -> None:
    """The same number more in every key changes all scores of a query alike."""
    seen = _seen()

    found = WindowAttention(seen, scale=SCALE).keys(seen.k + np.float32(0.25))

    assert found.score_error > 0.1
    assert found.kl == pytest.approx(0.0, abs=1e-6)
    assert found.kl_proxy == pytest.approx(0.0, abs=1e-6)


def test_what_is_stored_as_it_is_has_no_effect() -> None:
    seen = _seen()
    attention = WindowAttention(seen, scale=SCALE)

    keys, values = attention.keys(seen.k), attention.values(seen.v)

    assert (keys.relative_error, keys.score_error, keys.kl, keys.kl_proxy) == (0.0, 0.0, 0.0, 0.0)
    assert (values.relative_error, values.output_error) == (0.0, 0.0)


def test_values_of_zero_have_no_error_to_speak_of() -> None:
    seen = _seen()
    nothing = LayerCapture(q=seen.q, k=seen.k, v=np.zeros_like(seen.v))

    found = WindowAttention(nothing, scale=SCALE).values(nothing.v)

    assert (found.relative_error, found.output_error) == (0.0, 0.0)
