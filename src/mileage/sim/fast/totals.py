"""Totals: the results of a compiled simulation, in the forms of the Python path."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from mileage.sim.fast.layout import NONE, Record, Records
from mileage.sim.node import ReplicaSpec, ReplicaTotals
from mileage.sim.outcome import OK, Outcomes

__all__ = ["outcomes_of", "rejections_of", "totals_of"]


def outcomes_of(seqs: Records) -> Outcomes:
    """One row per request."""
    out, count = Outcomes(), len(seqs)
    answered = seqs["status"] == OK
    out.arrived_s = _doubles(seqs["arrived_s"])
    out.e2e_s = _doubles(seqs["e2e_s"])
    first_s = seqs["first_token_s"] - seqs["arrived_s"]
    out.ttft_s = _doubles(np.where(answered, first_s, np.nan))
    out.itl_p99_s = _doubles(np.where(answered, seqs["itl_p99_s"], np.nan))
    out.itl_mean_s = _doubles(np.where(answered, seqs["itl_mean_s"], np.nan))
    out.prompt_tokens = array("q", seqs["prompt_tokens"].tobytes())
    out.output_tokens = array("q", np.where(answered, seqs["produced"], 0).tobytes())
    cached = np.where(answered, np.maximum(seqs["cached_tokens"], 0), 0)
    out.cached_tokens = array("q", cached.tobytes())
    preemptions = np.where(answered, seqs["preemptions"], 0)
    out.preemptions = array("i", preemptions.astype(np.intc).tobytes())
    replica = np.where(answered, seqs["replica"], NONE)
    out.replica = array("i", replica.astype(np.intc).tobytes())
    out.status = array("b", seqs["status"].astype(np.int8).tobytes())
    out.joined = array("b", bytes(count))
    return out


def _doubles(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> array[float]:
    return array("d", np.ascontiguousarray(values).tobytes())


def rejections_of(world: Record) -> dict[str, int]:
    """Requests by the reason of their refusal."""
    counts = {"queue_full": int(world.full), "deadline": int(world.late)}
    return {reason: count for reason, count in counts.items() if count}


def totals_of(engines: Records, specs: Sequence[ReplicaSpec]) -> tuple[ReplicaTotals, ...]:
    """What each engine did."""
    return tuple(
        ReplicaTotals(
            name=spec.name,
            steps=int(each.steps),
            finished=int(each.finished),
            preemptions=int(each.preemptions),
            prompt_tokens=int(each.prompt_tokens),
            prefill_tokens=int(each.prefill_tokens),
            output_tokens=int(each.output_tokens),
            prefix_query_tokens=int(each.query_tokens),
            prefix_hit_tokens=int(each.hit_tokens),
            busy_s=float(each.busy_s),
            running_s=float(each.running_s),
            waiting_s=float(each.waiting_s),
            kv_blocks=int(each.kv_blocks),
            kv_blocks_peak=int(each.kv_blocks - each.free_min),
        )
        for each, spec in zip(engines, specs, strict=True)
    )
