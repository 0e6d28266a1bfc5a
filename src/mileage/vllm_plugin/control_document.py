"""The document of /mileage/control: what all ranks say, as one."""

from __future__ import annotations

from collections.abc import Sequence

from mileage import __version__
from mileage.policy.engine_knobs import ControlDocument, RankState

__all__ = ["control_document", "leader"]


def leader(ranks: Sequence[RankState]) -> RankState:
    """The rank that took the last request."""
    return max(ranks, key=lambda rank: (rank.version, rank.writer))


def control_document(ranks: Sequence[RankState], engine_version: str) -> ControlDocument:
    """The document: requested is the last request's, applied the rank's that is furthest behind."""
    first, last = min(ranks, key=lambda rank: rank.applied_version), leader(ranks)
    left = [rank.lease_left_s for rank in ranks if rank.lease_left_s is not None]
    capabilities = dict(first.capabilities)
    bounds = dict(first.bounds)
    for rank in ranks:
        capabilities.update(
            {name: can for name, can in rank.capabilities.items() if can is not True}
        )
        for name, (low, high) in rank.bounds.items():
            known = bounds.get(name, (low, high))
            bounds[name] = (max(low, known[0]), min(high, known[1]))
    return ControlDocument(
        engine_version=engine_version,
        plugin_version=__version__,
        boot=".".join(rank.boot for rank in ranks),
        version=last.version,
        applied_version=first.applied_version,
        requested=last.requested,
        applied=first.applied,
        start=first.start,
        bounds=bounds,
        clamped=last.clamped,
        capabilities=capabilities,
        lease_s=last.lease_s,
        lease_left_s=min(left, default=None),
        reverted=any(rank.reverted for rank in ranks),
        ranks=list(ranks),
        policy=last.policy,
        graph_sizes=first.graph_sizes,
        prompt_block_tokens=first.prompt_block_tokens,
        failed=next((rank.failed for rank in ranks if rank.failed is not None), None),
    )
