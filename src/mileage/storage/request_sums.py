"""What requests add to a roll-up, as SQL over the table `requests`: what the attribution booked."""

from __future__ import annotations

from typing import Final

from mileage.storage.request_rows import FIGURE_MAX

__all__ = ["REPLICA", "REQUEST_SUMS"]


def _tokens(figure: str) -> str:
    own = f"booked = 2 AND merged_into IS NULL AND {figure} > 0"
    bounded = f"CASE WHEN {figure} < {FIGURE_MAX} THEN {figure} ELSE {FIGURE_MAX} END"
    return f"coalesce(sum({bounded}) FILTER (WHERE {own}), 0)"


REPLICA: Final = "coalesce(replica, '')"
"""The replica under which a request is booked."""
REQUEST_SUMS: Final = {
    "requests": "count(*) FILTER (WHERE booked = 2)",
    "requests_failed": "count(*) FILTER (WHERE booked = 2 AND outcome != 'ok')",
    "prompt_tokens": _tokens("prompt_tokens"),
    "cached_tokens": _tokens("cached_tokens"),
    "output_tokens": _tokens("coalesce(output_tokens, output_tokens_counted)"),
    "gpu_ns": "sum(coalesce(attributed_ns, 0))",
    "prefill_ns": "sum(coalesce(attributed_prefill_ns, 0))",
    "recomputed_ns": "sum(coalesce(attributed_recomputed_ns, 0))",
}
"""Columns of UsageRow that can be told from the requests again: requests and tokens count once
all of a request's windows are settled, GPU time with each window."""
