"""Layout: the records of which a compiled simulation consists.

Lists and heaps of an engine lie in one array of integers, at the places that its record tells.
Where a field has the name of an attribute of a class of the Python path, it is the same thing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ENGINE",
    "LOAD",
    "LOAD_FIELDS",
    "NONE",
    "SAMPLE",
    "SEQUENCE",
    "SERVICE",
    "THROTTLE",
    "VIEW",
    "WORLD",
    "Floats",
    "Ints",
    "Record",
    "Records",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Record: TypeAlias = Any
"""One element of an array of records: its fields are read and set as attributes."""
Records: TypeAlias = Any

NONE: Final = -1
"""No request, no place."""


def _record(floats: str, integers: str, flags: str = "") -> np.dtype[np.void]:
    kinds = (("f8", floats), ("i8", integers), ("?", flags))
    return np.dtype([(name, kind) for kind, names in kinds for name in names.split()], align=True)


SEQUENCE: Final = _record(
    "arrived_s first_token_s last_token_s e2e_s itl_p99_s itl_mean_s started_s "
    "work cost prompt expires_s forecast_s ahead_tokens mark_in_flight_s mark_kv_s mark_prefilled "
    "mark_decoding_s",
    "prompt_tokens output_tokens target computed produced preemptions cached_tokens base first_at "
    "ends_at order state chunk units_at units keys owned registered past_at past status replica "
    "following run_before run_after fill_before fill_after others",
    "flying",
)
"""One request, in an engine and before it. `following`: the next one in the queue that it is in;
`run_*` and `fill_*`: its neighbours among those that run, and among those that are prefilled."""

ENGINE: Final = _record(
    "due_s begun_s changed_s c1 d1 c2 d2 busy_s running_s waiting_s token_s seen_s seen_busy_s",
    "kv_blocks running_max step_tokens_max block_tokens chunk_max watermark unit_tokens "
    "table lines decode_size mixed_size "
    "turn planned ticket "
    "free blank free_min units held_units freed_nodes query_tokens hit_tokens "
    "count steps bases first_sum past_sum order heap_size "
    "waiting wait_first wait_last running run_first run_last filling fill_first fill_last "
    "chunks_size firsts_size dones_size "
    "preemptions finished output_tokens prompt_tokens prefill_tokens decode_tokens seen_tokens "
    "needs_at heap_at heap_max chunks_at firsts_at dones_at held_at freed_at before_at after_at "
    "spare_at spare_size times_at times_base times_kept times_max",
    "caching whole_prompt_fits retry",
)

LOAD_FIELDS: Final = (
    "work _area _began_s _changed_s _done _done_work _expected _idle_s _presence_s _sampled_s "
    "_view_until_s _window_due_s view_max_age_s",
    "in_flight _finished _others",
    "_queueing hot",
)
"""Those of `ReplicaLoad`."""
LOAD: Final = _record(
    f"{LOAD_FIELDS[0]} s_per_token free_s", LOAD_FIELDS[1], f"{LOAD_FIELDS[2]} to_learn"
)

VIEW: Final = _record(
    "observed_s kv_usage busy",
    "running waiting hit_tokens query_tokens preemptions prompt_tokens output_tokens",
    "known",
)
"""What a scrape told last."""

THROTTLE: Final = _record(
    "prefill_tokens _in_flight_s _kv_s _decoding_s _prefilled _kv_tokens _changed_s due_s "
    "cost done calm_tokens",
    "in_flight arrivals _peak _prefilling limit own_limit bound samples running_max",
)
"""What `Throttle` counts, and the limit. `bound`: of the prompt tokens in prefill, NONE where there
is none; `running_max`: what the engine runs at once, where that was told."""

SERVICE: Final = _record(
    "t0 t1 t2 t3 p00 p01 p02 p03 p10 p11 p12 p13 p20 p21 p22 p23 p30 p31 p32 p33 "
    "due_s residual_ratio speed",
    "samples",
)
"""What `ServiceForecast` has learned of a replica, and the value of its `Speed`."""

SAMPLE: Final = _record(
    "took_s ttft_s service_ttft_s itl_p99_s in_flight_s kv_s prefilled decoding_s",
    "prompt_tokens output_tokens steps",
)
"""What a request showed that has ended: differences between its first token and its end."""

WORLD: Final = _record(
    "now_s scrape_s scrape_interval_s last_s slack_s output_tokens _gain work_tokens next_s "
    "prefill_cost _bias residual_s held_work "
    "wake_s asked_s due_s period_s queue_wait_s running waiting kv_usage busy",
    "arrival open tickets phase after at index draws spent tell_first tell_last in_flight_max "
    "in_flight rows held held_first held_last queue_max limit_min limit_max static full late",
    "routes acts decides in_time early",
)
"""The fleet's clock and counters, and what the controller has of its own. `open`: requests whose
clients wait; `in_flight`: those that the controller has; `full` and `late`: refused as such."""
