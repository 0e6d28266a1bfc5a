"""Rules of the sampler: what is worked out for one request after another."""

from __future__ import annotations

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import (
    effect_check,
    free_of_effect,
    loss_of_effect,
    speeds,
)

__all__ = ["RULES"]


@rule(
    "SMPL001",
    cause="serial_sampling_cpu",
    needs=("sampling_penalties", "comparisons"),
    fires={
        "workload": {"concurrency": 32},
        "signals": {"gpu_util_ratio": 0.97, "cpu_util_ratio": 0.3, "requests_waiting": 0},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "without",
                        "workload": {"sampling_penalties": False},
                        "signals": {"output_tokens_per_s": 1500},
                    },
                    {
                        "arm": "with",
                        "workload": {"sampling_penalties": True},
                        "signals": {"output_tokens_per_s": 1230},
                    },
                ]
            }
        ],
    },
    clear={"workload": {"sampling_penalties": False}},
    silent={"workload": {"sampling_penalties": True}, "signals": {"gpu_util_ratio": 0.5}},
)
def sampling_is_serial(e: Evidence) -> Opinion:
    """Sampling options are worked out request by request, and the whole batch waits.

    ## Why it costs money
    Penalties need the tokens that each request has seen. Engines that gather them in Python, one
    request after another, lengthen every step by it, and all requests of the batch pay.

    ## How it is told
    Only by a run with the options beside one without. Where the difference is large and the GPU
    idles meanwhile, that is `engine_host_bound` as a whole.

    ## What to do
    Leave penalties out where they are not needed; use an engine whose sampler keeps token counts
    on the GPU (vLLM V1, SGLang); give the engine a core with a high clock.

    ## Risk
    Without penalties answers of small models repeat themselves more: look at some before and after.
    Moving to another engine's sampler changes the random stream, so that seeded answers are no
    longer the same.
    """
    case = Case()
    pairs = speeds(e, "sampling_penalties", _penalties)
    case.shows(effect_check(pairs, 0.9), 3.0)
    case.refutes(free_of_effect(pairs, 0.95))
    if not pairs:
        case.refutes(e.is_false("sampling_penalties"))
    return case.opinion(
        advice="Leave penalties out, or use a sampler that works on the GPU.",
        waste_ratio=loss_of_effect(pairs),
    )


def _penalties(arm: Arm) -> bool | None:
    value = arm.get("sampling_penalties")
    return value if isinstance(value, bool) else None


RULES: tuple[Rule, ...] = (sampling_is_serial,)
"""Rules of this family."""
