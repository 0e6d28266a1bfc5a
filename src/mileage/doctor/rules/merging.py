"""Rules of merging: identical prompts are computed once for each of those who ask."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Opinion
from mileage.doctor.request_path import first_known, proxied_path
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

WHOLE_PROMPT = 0.995
"""Share of the prompt in a common head from which prompts are the same but for rounding."""


@rule(
    "MRG001",
    cause="no_request_merging",
    needs=(
        "shared_prefix_ratio",
        "first_diff_token",
        "isl_tokens",
        "kind",
        "topology.proxies",
        "requests_running",
        "concurrency",
    ),
    fires={
        "topology": {"proxies": ["gateway"]},
        "workload": {"kind": "online", "shared_prefix_ratio": 1.0, "isl_tokens": 900},
        "signals": {"requests_running": 24},
    },
    clear={
        "topology": {"proxies": ["gateway"]},
        "workload": {"kind": "online", "shared_prefix_ratio": 0.6, "isl_tokens": 900},
        "signals": {"requests_running": 24},
    },
    silent={
        "topology": {"proxies": ["gateway"]},
        "workload": {"kind": "online", "isl_tokens": 900},
        "signals": {"requests_running": 24},
    },
)
def identical_requests_are_not_merged(e: Evidence) -> Opinion:
    """Identical prompts that arrive together are each computed by the engine.

    ## Why it costs money
    A prefix cache saves the prefill of a repeated prompt, not its decode: the same answer is
    generated as often as it is asked for, and takes a place in the batch each time.

    ## How it is told
    Prompts are the same from the first token to the last while several run at once, in real
    traffic through a gateway. A benchmark repeats one prompt by intent, and prompts that share
    only their head are a matter of the prefix cache.

    ## What to do
    Merge requests in flight whose prompt and sampling parameters are the same and whose sampling
    is deterministic (temperature 0 or a seed): `[merging]` in the gateway's configuration. Do not
    merge what is meant to be sampled anew.

    ## Risk
    Everybody who asked the same gets the same answer, also where variety was meant: only
    deterministic requests may be merged. A generation that fails or is slow hits all that share it,
    and usage must be split between them on the bill. It can be switched off while the gateway runs.
    """
    case = Case()
    same = either(
        e.number("shared_prefix_ratio").at_least(WHOLE_PROMPT),
        _no_difference(e),
    )
    together = first_known(e, ("requests_running", "requests_running_max", "concurrency"))
    case.must(proxied_path(e))
    case.must(e.is_one_of("kind", "online"))
    case.must(together.at_least(2.0))
    case.shows(same, 2.8)
    case.refutes(e.number("shared_prefix_ratio").below(WHOLE_PROMPT))
    case.refutes(e.number("n").above(1.0))
    return case.opinion("info")


def _no_difference(e: Evidence) -> Check:
    """Do consecutive prompts not differ before their end?"""
    first, prompt = e.number("first_diff_token"), e.number("isl_tokens")
    truth = first.value.at_least(prompt.value.high) if first.known and prompt.known else None
    return Check(first.key, first.plain(), ">= isl_tokens", truth)


RULES: tuple[Rule, ...] = (identical_requests_are_not_merged,)
"""Rules of this family."""
