"""What stored keys and values do to one layer's attention: its weights and its outputs."""

from __future__ import annotations

import msgspec
import numpy as np

from mileage.quant.capture import LayerCapture
from mileage.quant.formats import Values

__all__ = ["KeyEffect", "ValueEffect", "WindowAttention"]


class KeyEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Of stored keys on attention's weights: means over queries and heads."""

    relative_error: float
    """Norm of the keys' error over the norm of the keys."""

    score_error: float
    """Root mean square of the error of scores that the mask lets through."""

    kl: float
    """KL of the weights from those without storage, nats."""

    kl_proxy: float
    """Half the variance of the score error under the weights: the KL's second-order term."""


class ValueEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Of stored values on attention's output, before its projection."""

    relative_error: float
    output_error: float
    """Mean square of the output's error over the mean square of the output."""


class WindowAttention:
    """Causal attention of one layer over one window, against which stored ones are held."""

    def __init__(self, seen: LayerCapture, *, scale: float) -> None:
        self._seen, self._scale = seen, scale
        self._shared = seen.q.shape[1] // seen.k.shape[1]
        self._q = seen.q.transpose(1, 0, 2)
        tokens = len(seen.q)
        self._visible = np.tril(np.ones((tokens, tokens), dtype=bool))
        scores = self._scores(seen.k)
        scores[:, ~self._visible] = -np.inf
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        self._weights = scores / scores.sum(axis=2, keepdims=True)
        self._power = float(np.square(self._output(seen.v)).mean())

    def keys(self, stored: Values, open_group: int | None = None) -> KeyEffect:
        """The effect of keys (tokens, kv_heads, head_dim) as read back.

        `open_group`: tokens of a query's own group are not stored yet (`KvFormat.open_group`).
        """
        error = stored - self._seen.k
        change = self._scores(error)
        if open_group is not None:
            change[:, self._own_group(open_group)] = 0.0
        p = self._weights
        mean = np.einsum("hqk,hqk->hq", p, change)[:, :, None]
        visible = change[:, self._visible]
        change -= mean
        # Those that the mask hides weigh nothing, but must not overflow.
        change[:, ~self._visible] = 0.0
        variance = np.einsum("hqk,hqk,hqk->hq", p, change, change, optimize=True)
        kl = np.log1p(np.einsum("hqk,hqk->hq", p, np.expm1(change)).astype(np.float64))
        return KeyEffect(
            relative_error=_relative(error, self._seen.k),
            score_error=float(np.sqrt(np.square(visible).mean())),
            kl=float(np.maximum(kl, 0.0).mean()),
            kl_proxy=0.5 * float(variance.mean()),
        )

    def values(self, stored: Values, open_group: int | None = None) -> ValueEffect:
        """The effect of values (tokens, kv_heads, head_dim) as read back."""
        error = stored - self._seen.v
        wrong = self._output(error, open_group)
        power = float(np.square(wrong).mean())
        return ValueEffect(
            relative_error=_relative(error, self._seen.v),
            output_error=power / self._power if self._power else 0.0,
        )

    def _scores(self, keys: Values) -> Values:
        """(heads, queries, keys), after the softmax scale."""
        own = np.repeat(keys.transpose(1, 2, 0), self._shared, axis=0)
        found: Values = (self._q @ own) * np.float32(self._scale)
        return found

    def _output(self, values: Values, open_group: int | None = None) -> Values:
        """(heads, queries, head_dim)."""
        weights = self._weights
        if open_group is not None:
            weights = np.where(self._own_group(open_group), np.float32(0.0), weights)
        found: Values = weights @ np.repeat(values.transpose(1, 0, 2), self._shared, axis=0)
        return found

    def _own_group(self, group: int) -> np.ndarray:
        of = np.arange(len(self._seen.q)) // group
        return np.equal.outer(of, of)


def _relative(error: Values, whole: Values) -> float:
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(error)) / size if size else 0.0
