"""Replays a trace with Dynamo's offline replay; run by the interpreter of .venvs/dynamo.

`python dynamo_replay.py TRACE KV_BLOCKS RUNNING_MAX STEP_TOKENS_MAX`: a trace in Mooncake's format.
Prints one JSON object. Once to warm up, then once on the clock, which includes reading the trace:
the two are one call.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

__all__ = ["BLOCK_TOKENS", "main"]

BLOCK_TOKENS = 512
"""Tokens that one of the trace's `hash_ids` stands for."""


def main(argv: list[str]) -> None:
    """Replay it twice."""
    from dynamo._core import run_mocker_trace_replay

    trace, *limits = argv
    blocks, running_max, step_tokens_max = map(int, limits)
    engine = {
        "backend": "vllm",
        "worker_type": "aggregated",
        "block_size": 16,
        "num_gpu_blocks": blocks,
        "max_num_seqs": running_max,
        "max_num_batched_tokens": step_tokens_max,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
    }

    def replay() -> tuple[dict[str, Any], float]:
        started_s = time.perf_counter()
        result = run_mocker_trace_replay(
            [trace],
            extra_engine_args={"engine": engine},
            trace_block_size=BLOCK_TOKENS,
            capture_planner_details=False,
        )
        return result.summary, time.perf_counter() - started_s

    replay()
    summary, total_s = replay()
    document = {
        "requests": summary["completed_requests"],
        "output_tokens": summary["total_output_tokens"],
        "total_s": total_s,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
