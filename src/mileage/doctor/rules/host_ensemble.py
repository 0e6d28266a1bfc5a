"""Rules of a Triton ensemble: the models around the engine's."""

from __future__ import annotations

from mileage.doctor.arms import Arm, Ratio
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.host_load import gpu_idle, nothing_asked, part_of
from mileage.doctor.rules.setting_effect import (
    effect_check,
    gain_check,
    loss_of_effect,
    speeds,
    with_more,
)

__all__ = ["RULES"]

SAME = 0.9
"""Speed ratio below which the slower arm is slower by more than noise."""

PER_TOKEN_FACTOR = 10.0
"""Executions of the detokeniser for one of the engine: one per token instead of per request."""

DELAY = "triton.dynamic_batching_delay_s"
"""Key of the batching delay."""

QUEUE_FACTOR = 5.0
"""Wait for detokenising over wait for tokenising: both are small where instances suffice."""

QUEUE_SHARE = 0.2
"""Part of the time between tokens from which the wait is seen."""

WAIT_SEEN_S = 1.0
"""A wait of one request that a person notices; for where its whole time is not known."""


@rule(
    "TRIT001",
    cause="ensemble_postprocessing",
    needs=(
        "triton_exec_postprocess_count",
        "triton_exec_infer_count",
        "triton_queue_postprocess_s",
        "triton_queue_preprocess_s",
        "triton.postprocessing_instances",
        "triton.dynamic_batching_delay_s",
        "comparisons",
    ),
    fires={
        "engine": {"name": "triton", "version": "24.07"},
        "settings": {"triton.postprocessing_instances": 1, "triton.decoupled": True},
        "signals": {
            "triton_exec_infer_count": 900,
            "triton_exec_postprocess_count": 240000,
            "triton_queue_postprocess_s": 4100,
            "triton_queue_preprocess_s": 12,
        },
    },
    clear={
        "engine": {"name": "triton"},
        "signals": {
            "triton_exec_infer_count": 900,
            "triton_exec_postprocess_count": 240000,
            "triton_queue_postprocess_s": 3,
            "triton_queue_preprocess_s": 12,
        },
    },
    silent={"engine": {"name": "triton"}, "signals": {"gpu_util_ratio": 0.4}},
)
def detokeniser_queues_tokens(e: Evidence) -> Opinion:
    """Every streamed token queues for one instance of the ensemble's detokenise model.

    ## Why it costs money
    With streaming the engine model answers once per request and the detokenise model runs once
    per token. One instance, or a batching delay meant for whole requests, holds every token up,
    and requests keep their slots and their key-value cache longer.

    ## How it is told
    The detokenise model is executed far more often than the engine model, and its tokens wait
    far longer than prompts wait for the tokenise model; or more instances, or no delay, are
    faster. Many executions alone are only streaming.

    ## What to do
    In the detokenise model's `config.pbtxt` raise `instance_group { count }` to several (as many
    as cores allow) and set `max_queue_delay_microseconds` to 0; or use the BLS model
    (`tensorrt_llm_bls`) with `accumulate_tokens`, or an OpenAI frontend without an ensemble.

    ## Risk
    More instances of the detokeniser take a core and a tokenizer's memory each, and without order
    between them chunks of one stream can overtake each other unless the model is sequence-aware:
    check that streamed text arrives in order. The BLS model is another endpoint, with other input
    names.
    """
    case = Case()
    runs, infers = e.number("triton_exec_postprocess_count"), e.number("triton_exec_infer_count")
    waited, before = e.number("triton_queue_postprocess_s"), e.number("triton_queue_preprocess_s")
    instances = e.number("triton.postprocessing_instances")
    streams = either(runs.exceeds(infers, factor=PER_TOKEN_FACTOR), e.is_true("triton.decoupled"))
    longer = waited.exceeds(before, factor=QUEUE_FACTOR)
    per_token = _per_token_wait(e)
    more = with_more(e, "triton.postprocessing_instances")
    delays = with_more(e, DELAY) + speeds(e, DELAY, _delayed, also=("triton.preferred_batch_size",))
    case.shows(longer, 3.0)
    case.shows(either(per_token, _request_wait(e)), 3.5)
    case.shows(both(streams, instances.at_most(1.0), _triton_suffers(e)), 2.8)
    case.shows(both(streams, _delay_large(e)), 3.0)
    case.shows(gain_check(more, 1.1), 4.5)
    case.shows(effect_check(delays, SAME), 4.0)
    case.sign(streams, yes=1.0)
    case.sign(instances.at_most(1.0), yes=0.5)
    case.refutes(nothing_asked(e))
    if longer.truth is False and not more:
        case.refutes(longer.negated())
    return case.opinion(
        advice="Run several instances of the detokenise model, without a batching delay.",
        changes=(Change("triton.postprocessing_instances", 4),),
        waste_ratio=_gain_loss(more),
    )


def _gain_loss(more: tuple[Ratio, ...]) -> Interval | None:
    turned = tuple(Ratio(r.signal, Interval(1.0, 1.0).over(r.value)) for r in more)
    return loss_of_effect(turned)


def _per_token_wait(e: Evidence) -> Check:
    """Is the wait of one token a good part of the time between tokens?"""
    waited, runs = e.number("triton_queue_postprocess_s"), e.number("triton_exec_postprocess_count")
    itl, truth = e.number("itl_mean_s"), None
    if waited.known and runs.known and itl.known:
        truth = waited.total.over(runs.total).over(itl.value).at_least(QUEUE_SHARE)
    return Check(waited.key, waited.plain(), f"per token >= {QUEUE_SHARE:g} x itl_mean_s", truth)


def _request_wait(e: Evidence) -> Check:
    """Do the tokens of one request together wait for a good part of its time?"""
    waited, infers = e.number("triton_queue_postprocess_s"), e.number("triton_exec_infer_count")
    whole = e.number("e2e_mean_s").value
    limit, truth = (
        whole.times(exactly(QUEUE_SHARE)) if whole.bounded else exactly(WAIT_SEEN_S),
        None,
    )
    if waited.known and infers.known:
        truth = waited.total.over(infers.total).exceeds(limit)
    return Check(waited.key, waited.plain(), f"a request > {limit.shown()} s", truth)


def _delayed(arm: Arm) -> bool | None:
    """Is there a delay? A setting that is not set is none."""
    if DELAY not in arm.values:
        return None
    return bool(arm.number(DELAY).above(0.0).truth)


def _delay_large(e: Evidence) -> Check:
    delay = e.number(DELAY)
    return either(
        part_of(delay, e.number("itl_mean_s"), QUEUE_SHARE),
        part_of(delay, e.number("slo_itl_s"), QUEUE_SHARE),
    )


def _triton_suffers(e: Evidence) -> Check:
    """Does something say that tokens come late?"""
    return either(
        gpu_idle(e),
        e.number("itl_mean_s").exceeds(e.number("step_time_s"), factor=1.5),
        e.number("client_itl_mean_s").exceeds(e.number("itl_mean_s"), factor=1.5),
    )


RULES: tuple[Rule, ...] = (detokeniser_queues_tokens,)
"""Rules of this family."""
