"""A bound on what stored keys, and queries, can do to attention scores: a certificate."""

from __future__ import annotations

import msgspec
import numpy as np

from mileage.measure.record_latency import Floats
from mileage.quant.formats import Values

__all__ = ["ScoreBound", "score_bound"]

_ROUNDING = 1e-5
"""Relative: spectral norms are computed in float32."""


class ScoreBound(msgspec.Struct, frozen=True, kw_only=True):
    """Spectral norms of each query head's score error, after the softmax scale."""

    real: Floats
    bound: Floats

    @property
    def violations(self) -> int:
        """Heads whose real error is above the bound; more than rounding explains."""
        return int((self.real > self.bound * (1.0 + _ROUNDING)).sum())

    @property
    def largest_ratio(self) -> float | None:
        """Of a real error to its bound; None where nothing has an error."""
        some = self.bound > 0.0
        return float((self.real[some] / self.bound[some]).max()) if some.any() else None


def score_bound(
    q: Values, k: Values, stored_k: Values, *, scale: float, stored_q: Values | None = None
) -> ScoreBound:
    """The real error of scale * Q K^T and its bound, head by head.

    With eK and eQ what storage adds to keys and queries, the error is Q eK^T + eQ K^T + eQ eK^T,
    so that its spectral norm is at most |Q||eK| + |eQ||K| + |eQ||eK| (norms are submultiplicative),
    times the scale; without `stored_q` queries are as they are and the first term is all. `q`
    (tokens, heads, head_dim), `k` (tokens, kv_heads, head_dim).
    """
    queries, shared = _by_head(q), q.shape[1] // k.shape[1]
    keys, key_error = (np.repeat(_by_head(x), shared, axis=0) for x in (k, stored_k - k))
    if stored_q is None:
        # |Q eK^T| = |R S^T| for the triangles of Q and eK: small matrices.
        triangle, other = _triangle(queries), _triangle(key_error)
        real = _norms(triangle @ other.transpose(0, 2, 1))
        bound = _norms(triangle) * _norms(other)
        return ScoreBound(real=scale * real, bound=scale * bound)
    query_error = _by_head(stored_q - q)
    whole = queries @ key_error.transpose(0, 2, 1)
    whole += query_error @ (keys + key_error).transpose(0, 2, 1)
    sizes = [_norms(_triangle(x)) for x in (queries, keys, query_error, key_error)]
    bound = sizes[0] * sizes[3] + sizes[2] * sizes[1] + sizes[2] * sizes[3]
    return ScoreBound(real=scale * _norms(whole), bound=scale * bound)


def _by_head(values: Values) -> Values:
    return np.ascontiguousarray(values.transpose(1, 0, 2))


def _triangle(matrices: Values) -> Values:
    """R of QR, which has the spectral norm of the whole."""
    return np.asarray(np.linalg.qr(matrices, mode="r"), dtype=np.float32)


def _norms(matrices: Values) -> Floats:
    found: Floats = np.linalg.norm(matrices, ord=2, axis=(1, 2)).astype(np.float64)
    return found
