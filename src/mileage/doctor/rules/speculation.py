"""Rules of speculative decoding."""

from __future__ import annotations

import re

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower, larger_than, share_lost

__all__ = ["RULES"]

NO_GAIN_RATIO = 1.02
"""Speed with over speed without speculation up to which it gains nothing beyond noise."""

GAIN_RATIO = 1.05
"""Speed with over speed without speculation from which on it pays."""

LENGTH_MIN = 1.1
"""Tokens per step up to which speculation could gain a tenth even if drafting were free."""

HEAD_COST = {"ngram": Interval(0.0, 0.05), "mtp": Interval(0.02, 0.3), "eagle": Interval(0.02, 0.3)}
"""Time of one drafted token over one step of the target: a search in the prompt costs next to
nothing, a head of one layer at least its share of the layers, and its launch."""

DRAFT_OVERHEAD = Interval(1.0, 4.0)
"""How many times its share of the weights a draft model's step takes: small models are bound by
launches, not by memory."""

RIDGE_OF_ANY = Interval(30.0, 450.0)
"""Tokens of a step from which on it is bound by compute, of any card of the catalogue."""

ABOUT = (
    "speculative.method",
    "speculative.num_tokens",
    "speculative.draft_params_b",
)

LOGGED_LENGTH = re.compile(
    r"(?:mean acceptance length|accept len): *(\d+(?:\.\d+)?)", re.IGNORECASE
)
"""vLLM and SGLang."""


@rule(
    "SPEC001",
    cause="speculation_not_paying",
    needs=(
        "comparisons",
        "speculative.method",
        "speculative.num_tokens",
        "speculative.draft_params_b",
        "spec_mean_accepted_len",
        "spec_acceptance_ratio",
        "requests_running",
    ),
    fires={
        "model": {"params_b": 14},
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "off",
                        "settings": {"speculative.method": None},
                        "signals": {"output_tokens_per_s": 900},
                    },
                    {
                        "arm": "on",
                        "settings": {"speculative.method": "ngram", "speculative.num_tokens": 5},
                        "signals": {"output_tokens_per_s": 780},
                        "current": True,
                    },
                ]
            }
        ],
    },
    clear={
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "off",
                        "settings": {"speculative.method": None},
                        "signals": {"output_tokens_per_s": 60},
                    },
                    {
                        "arm": "on",
                        "settings": {"speculative.method": "eagle", "speculative.num_tokens": 3},
                        "signals": {"output_tokens_per_s": 118},
                    },
                ]
            }
        ],
    },
    silent={
        "settings": {"speculative.method": "draft_model", "speculative.num_tokens": 4},
        "signals": {"spec_acceptance_ratio": {"min": 0.2, "max": 0.8}},
    },
)
def speculation_does_not_pay(e: Evidence) -> Opinion:
    """Speculative decoding costs as much as it gains at this load, or more.

    ## Why it costs money
    Every step drafts tokens and verifies them. Where few are accepted, or where the batch keeps
    the card busy anyway, that work displaces tokens that could have been served.

    ## How it is told
    An A/B at this load where it is no faster; throughput that falls as more tokens are drafted
    or the draft grows; or tokens per verified step that do not pay for the draft and, in a large
    batch, for verifying. A low acceptance alone says little: three drafted tokens of which one
    is accepted may still pay at batch 1.

    ## What to do
    Switch it off for this load, draft fewer tokens, or use a cheaper method (n-gram, a trained
    head); vLLM `--speculative-config`, SGLang `--speculative-algorithm`.

    ## Risk
    Without speculation a lone request at night is slower again: where load changes over the day
    keep it for the quiet hours, or draft fewer tokens. The draft model's memory comes back as KV
    cache only after a restart.
    """
    case = Case()
    pairs, longer = _at_this_load(e, _on_against_off(e)), _more_drafted(e)
    no_gain, pays = _no_gain(pairs), _pays(pairs)
    case.shows(no_gain, 5.0)
    case.shows(any_slower(longer), 3.5)
    case.shows(_costs_more_than_it_yields(e), 3.5)
    case.refutes(_is_off(e))
    if no_gain.truth is not True:
        case.refutes(pays)
    case.sign(e.number("spec_acceptance_ratio").below(0.3), yes=0.5)
    drafted = e.number("speculative.num_tokens").value
    return case.opinion(
        advice="Switch speculation off at this load, or draft fewer tokens"
        + (f" than {drafted.shown()}." if drafted.bounded else "."),
        changes=(Change("speculative.method", None),),
        waste_ratio=share_lost(pairs or longer),
    )


def _uses(arm: Arm) -> bool:
    return arm.get("speculative.method") is not None or (
        arm.number("speculative.num_tokens").value.above(0.0) is True
    )


def _uses_not(arm: Arm) -> bool:
    drafted = arm.number("speculative.num_tokens")
    if drafted.known and drafted.value.at_most(0.0):
        return True
    return arm.has("speculative.method") and arm.get("speculative.method") is None


def _on_against_off(e: Evidence) -> tuple[Contrast, ...]:
    pairs = contrasts(e, _uses, _uses_not, *ABOUT)
    return tuple(pair for pair in pairs if not pair.besides and pair.speed.known)


def _at_this_load(e: Evidence, pairs: tuple[Contrast, ...]) -> tuple[Contrast, ...]:
    """Those at the concurrency (or rate) of the deployment; all, where it is not among them."""
    for key in ("concurrency", "rate_rps"):
        now = e.number(key)
        at_it = tuple(pair for pair in pairs if now.known and pair.one.number(key) == now)
        if at_it:
            return at_it
    return pairs


def _no_gain(pairs: tuple[Contrast, ...]) -> Check:
    checks = [pair.speed.at_most(NO_GAIN_RATIO) for pair in pairs]
    for wanted in (True, None, False):
        for check in checks:
            if check.truth is wanted:
                return check
    return Check("comparisons", None, f"ratio <= {NO_GAIN_RATIO:g}", None)


def _pays(pairs: tuple[Contrast, ...]) -> Check:
    if not pairs:
        return Check("comparisons", None, f"ratio >= {GAIN_RATIO:g}", None)
    return min(pairs, key=lambda pair: pair.speed.value.middle).speed.at_least(GAIN_RATIO)


def _more_drafted(e: Evidence) -> tuple[Contrast, ...]:
    """Arms that draft more, or with a larger model, beside those that draft less."""
    return (
        *larger_than(e, "speculative.num_tokens", *ABOUT),
        *larger_than(e, "speculative.draft_params_b", *ABOUT),
    )


def _is_off(e: Evidence) -> Check:
    method, drafted = e.is_unset("speculative.method"), e.number("speculative.num_tokens")
    return both(method, drafted.at_least(1.0).negated()) if drafted.known else method


def _costs_more_than_it_yields(e: Evidence) -> Check:
    """Are the tokens of a step fewer than its cost, in steps without speculation?

    A step yields `1 + accepted share x drafted` tokens. It costs one target step, `drafted` draft
    steps, and where the batch times the verified tokens is beyond the ridge of the roofline, the
    verification in proportion. (Leviathan et al. 2023, section 3.3, with the batch.)
    """
    drafted = e.number("speculative.num_tokens").value
    length, source = _tokens_per_step(e, drafted)
    if not drafted.bounded or not length.bounded or drafted.low < 1:
        return Check(source, None, "< cost of a step", None)
    cost = drafted.times(_draft_cost(e)).plus(_verify_cost(e, drafted))
    limit = f"< cost of a step ({cost.shown()})"
    dear = cost.exceeds(length)
    useless = True if length.at_most(LENGTH_MIN) else dear
    return Check(source, length.plain(), limit, useless)


def _tokens_per_step(e: Evidence, drafted: Interval) -> tuple[Interval, str]:
    length, share = e.number("spec_mean_accepted_len"), e.number("spec_acceptance_ratio")
    if length.known:
        return length.value, length.key
    logged = next(e.log_matches(LOGGED_LENGTH, last_first=True), None)
    if logged is not None:
        return exactly(float(logged[1])), "logs"
    if share.known and drafted.bounded:
        return exactly(1.0).plus(share.value.times(drafted)), share.key
    return ANY, length.key


def _draft_cost(e: Evidence) -> Interval:
    method, draft = e.text("speculative.method"), e.number("speculative.draft_params_b")
    active = e.number("model.active_params_b")
    target = active.value if active.known else Machine(e).parameters_b
    if draft.known and target.bounded and target.low > 0:
        return draft.value.over(target).times(DRAFT_OVERHEAD)
    return HEAD_COST.get(method or "", Interval(0.0, 1.0))


def _verify_cost(e: Evidence, drafted: Interval) -> Interval:
    """Time to verify over a plain step: 1 below the ridge, in proportion to the tokens above it."""
    running = e.number("requests_running" if e.known("requests_running") else "concurrency").value
    ridge, most = Machine(e).ridge_requests, drafted.high + 1.0
    if not running.bounded:
        return Interval(1.0, most)
    if not ridge.bounded or ridge.low <= 0:
        ridge = RIDGE_OF_ANY
    low = _verify_at(running.low, drafted.low, ridge.high)
    return Interval(low, max(low, _verify_at(running.high, drafted.high, ridge.low)))


def _verify_at(running: float, drafted: float, ridge: float) -> float:
    """Grows with the batch and with what is drafted, and falls with the ridge."""
    verified = max(1.0, running * (drafted + 1.0) / ridge)
    return verified / max(1.0, running / ridge)


RULES: tuple[Rule, ...] = (speculation_does_not_pay,)
"""Rules of this family."""
