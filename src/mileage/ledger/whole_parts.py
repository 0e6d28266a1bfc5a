"""whole_parts(): many amounts, each shared out in whole parts that sum to it exactly."""

from __future__ import annotations

import numpy as np

from mileage.ledger.columns import Floats, Ints, sums, whole_sums

__all__ = ["whole_parts"]


def whole_parts(amounts: Ints, groups: Ints, weights: Floats) -> Ints:
    """Part i is of `amounts[groups[i]]`, in proportion to `weights[i]` among those of its group.

    Largest remainder, ties to the first, as `mileage.control.gpu_meter.split`, but in floating
    point: a part may differ from that by one, and the sum of the parts does not. `groups` is
    sorted. Amounts (below 2 ** 53) and weights are at least 0; a group whose weights are all 0 is
    shared equally. An amount of a group that has no part is in no part.
    """
    count = len(amounts)
    tops = np.zeros(count)
    np.maximum.at(tops, groups, weights)
    top = tops[groups]
    # Relative to the largest, so that no sum is beyond what a float holds, or below.
    scaled = np.where(top > 0.0, weights / np.where(top > 0.0, top, 1.0), 1.0)
    total = sums(scaled, groups, count)
    exact = amounts[groups] * (scaled / total[groups])
    parts = np.floor(exact).astype(np.int64)
    lacking = amounts - whole_sums(parts, groups, count)
    # The largest rests of each group get one more; a stable sort leaves ties to the first.
    order = np.lexsort((parts - exact, groups))
    sizes = np.bincount(groups, minlength=count)
    rank = np.arange(len(groups)) - (np.cumsum(sizes) - sizes)[groups[order]]
    parts[order[rank < lacking[groups[order]]]] += 1
    for group in np.flatnonzero((amounts != whole_sums(parts, groups, count)) & (sizes > 0)):
        # Rounding made up more than there was, or less: the largest part takes the difference.
        own = np.flatnonzero(groups == group)
        parts[own[parts[own].argmax()]] += amounts[group] - parts[own].sum()
    return parts
