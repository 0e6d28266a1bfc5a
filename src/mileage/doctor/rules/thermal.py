"""Rules of heat."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower, share_lost
from mileage.doctor.rules.some_arm import in_some_arm

__all__ = ["RULES"]

THERMAL_TIME_RATIO = 0.005
"""Time with a thermal reason that counts: below is the rounding of a sample."""

CLOCK_CUT_RATIO = 0.85
"""Share of the highest clock below which a loaded card is held back: boost clocks move by a few
per cent with load and voltage."""

POWER_AT_LIMIT_RATIO = 0.95
"""Share of the power limit from which on the power cap sets the clock."""

NEAR_SLOWDOWN_C = 5.0
"""Degrees below the slowdown temperature at which drivers begin to lower clocks."""

HOT_C = 90.0
"""Makers' slowdown temperatures of cards for servers lie between 85 and 95 degrees."""

LOGGED_THERMAL = (
    r"(sw|hw)[ _]thermal[ _]slowdown *[:=] *active"
    r"|thermal (violation|slowdown|throttl)\w* *(detected|active|asserted|event)?"
    r"|clocks_(throttle|event)_reasons\.\w*thermal\w*[^,\n]*\bactive\b"
    r"|GPU .*(over-?temperature|overheat)"
)
LOGGED_NOT_ACTIVE = r"thermal[ _]slowdown *[:=] *not active"


@rule(
    "HEAT001",
    cause="thermal_throttle",
    needs=(
        "throttle_thermal_ratio",
        "sm_clock_mhz",
        "sm_clock_max_mhz",
        "gpu_temp_c",
        "gpu_slowdown_temp_c",
        "power_w",
        "power_limit_w",
        "logs",
    ),
    fires={
        "signals": {
            "throttle_thermal_ratio": 0.4,
            "sm_clock_mhz": 1150,
            "sm_clock_max_mhz": 1980,
            "gpu_util_ratio": 0.97,
        }
    },
    clear={
        "signals": {
            "throttle_thermal_ratio": 0,
            "throttle_power_ratio": 0.6,
            "sm_clock_mhz": 1400,
            "sm_clock_max_mhz": 1980,
            "power_w": 699,
            "power_limit_w": 700,
        }
    },
    silent={"signals": {"sm_clock_mhz": 1150, "gpu_temp_c": 71}},
)
def clocks_cut_for_heat(e: Evidence) -> Opinion:
    """The card lowers its clocks because it is too hot.

    ## Why it costs money
    The card costs the same and computes in proportion to its clock. In a tensor-parallel group
    the hottest card sets the pace of all.

    ## How it is told
    A thermal reason is active; or, under load, the clock is far below its maximum while power is
    below its limit, or while the temperature is near the slowdown point. Power at its limit
    without a thermal reason is the power cap. A low clock on an idle card is power saving; a
    clock that was locked is a setting.

    ## What to do
    Air flow, fans, dust, position in the rack, or a lower power limit (`nvidia-smi -pl`) that
    keeps the card below the slowdown temperature; move load off the hottest card.

    ## Risk
    A lower power limit costs clock rate when the card is cool, too: some percent of prefill, hardly
    any of decode. Higher fan speeds move heat to the neighbours: watch their temperatures, and XID
    errors, for a day.
    """
    case = Case()
    thermal, temp = e.number("throttle_thermal_ratio"), e.number("gpu_temp_c")
    hot, cut, loaded = _near_slowdown(e), _clock_is_cut(e), _under_load(e)
    logged = e.logged(LOGGED_THERMAL)
    if e.logged(LOGGED_NOT_ACTIVE).truth:
        logged = Check("logs", None, "says so", None)
    case.shows(in_some_arm(e, _thermal_reason), 5.0)
    case.shows(logged, 4.0)
    case.shows(both(cut, loaded, _power_below_limit(e)), 3.5)
    case.shows(both(cut, hot), 4.0)
    case.shows(_at_slowdown(e), 3.0)
    case.shows(both(temp.any_above(HOT_C), loaded, _power_below_limit(e)), 2.6)
    case.shows(_falls_as_it_warms(e), 3.5)
    case.shows(_hotter_and_slower(e), 3.5)
    if logged.truth is None:
        case.refutes(thermal.all_below(THERMAL_TIME_RATIO))
    if thermal.known is False and logged.truth is None:
        case.refutes(loaded.negated())
        case.refutes(e.number("sm_clock_locked_ratio").below(CLOCK_CUT_RATIO))
        case.sign(e.number("throttle_power_ratio").any_above(0.1), yes=-2.0)
        if hot.truth is not True:
            case.refutes(_power_below_limit(e).negated())
        case.sign(temp.all_below(60.0), yes=-3.0)
    case.sign(hot, yes=0.5, no=-0.5)
    return case.opinion(advice=_advice(e), waste_ratio=_waste(e))


def _thermal_reason(e: Evidence) -> Check:
    return e.number("throttle_thermal_ratio").any_above(THERMAL_TIME_RATIO)


def _advice(e: Evidence) -> str:
    clock, most = e.number("sm_clock_mhz").least, e.number("sm_clock_max_mhz").most
    if clock.bounded and most.bounded:
        return f"Cool the card: it runs at {clock.shown()} MHz and could run at {most.shown()}."
    return "Cool the card, or lower its power limit until no thermal reason is active."


def _clock_is_cut(e: Evidence) -> Check:
    clock, most = e.number("sm_clock_mhz"), e.number("sm_clock_max_mhz")
    limit = f"any < {CLOCK_CUT_RATIO:g} x sm_clock_max_mhz"
    if not most.known and clock.units:
        most, limit = clock, f"any < {CLOCK_CUT_RATIO:g} x that of the fastest card"
    if not clock.known or not most.known:
        return Check(clock.key, clock.plain(), limit, None)
    share = clock.least.over(most.most)
    return Check(clock.key, clock.plain(), limit, share.below(CLOCK_CUT_RATIO))


def _under_load(e: Evidence) -> Check:
    """Does the card work? A card that is idle lowers its clock to save power."""
    busy = either(
        e.number("gpu_util_ratio").any_above(0.3),
        e.number("sm_active_ratio").any_above(0.3),
        e.number("gr_engine_active_ratio").any_above(0.3),
        e.number("requests_running").any_above(0.0),
        e.number("output_tokens_per_s").any_above(0.0),
        e.number("prompt_tokens_per_s").any_above(0.0),
    )
    if busy.truth is None and any(part.truth is False for part in busy.parts):
        known = tuple(part for part in busy.parts if part.truth is not None)
        return either(*known)
    return busy


def _power_below_limit(e: Evidence) -> Check:
    """Is there power left, so that the power cap does not explain the clock?"""
    power, limit = e.number("power_w"), e.number("power_limit_w")
    cap = limit if limit.known else e.number("hardware.tdp_w")
    words = f"< {POWER_AT_LIMIT_RATIO:g} x {cap.key}"
    if not power.known or not cap.known:
        return Check(power.key, power.plain(), words, None)
    return Check(
        power.key, power.plain(), words, power.least.over(cap.most).below(POWER_AT_LIMIT_RATIO)
    )


def _near_slowdown(e: Evidence) -> Check:
    return _against_slowdown(e, NEAR_SLOWDOWN_C)


def _at_slowdown(e: Evidence) -> Check:
    return _against_slowdown(e, 0.0)


def _against_slowdown(e: Evidence, below_c: float) -> Check:
    temp, slowdown = e.number("gpu_temp_c"), e.number("gpu_slowdown_temp_c")
    limit = f">= gpu_slowdown_temp_c ({slowdown.value.shown()}) - {below_c:g}"
    if not temp.known or not slowdown.known:
        return Check(temp.key, temp.plain(), limit, None)
    margin = temp.most.minus(slowdown.least)
    return Check(temp.key, temp.plain(), limit, margin.at_least(-below_c))


def _falls_as_it_warms(e: Evidence) -> Check:
    """Does the clock, or the throughput, fall over time while the temperature rises?"""
    temp = e.number("gpu_temp_c")
    falls = [_changed(e.number(key)) for key in ("sm_clock_mhz", "output_tokens_per_s")]
    warmed = _changed(temp)
    limit = "rises while the clock or the throughput falls"
    if warmed is None or all(fall is None for fall in falls):
        return Check(temp.key, temp.plain(), limit, None)
    fell = any(fall is not None and fall.below(CLOCK_CUT_RATIO) is True for fall in falls)
    return Check(temp.key, temp.plain(), limit, warmed.above(1.05) is True and fell)


def _changed(series: Quantity) -> Interval | None:
    """The last value over the first of a series."""
    points = series.series
    if len(points) < 2 or points[0].low <= 0:
        return None
    return points[-1].over(points[0])


def _hotter_and_slower(e: Evidence) -> Check:
    """Is an arm hotter, with a lower clock, and slower than one in which nothing else differs?"""
    pairs = contrasts(
        e,
        lambda arm: arm.number("sm_clock_mhz").known and arm.has("sm_clock_mhz"),
        lambda arm: arm.number("sm_clock_mhz").known and arm.has("sm_clock_mhz"),
    )
    hotter = tuple(
        pair
        for pair in pairs
        if not pair.besides
        and pair.ratio("sm_clock_mhz").value.below(CLOCK_CUT_RATIO)
        and pair.ratio("gpu_temp_c").value.above(1.05)
    )
    return any_slower(hotter)


def _waste(e: Evidence) -> Interval | None:
    """Up to the share of the clock that is missing: work bound by memory loses less of it."""
    pairs = contrasts(e, lambda arm: arm.has("gpu_temp_c"), lambda arm: arm.has("gpu_temp_c"))
    hotter = tuple(pair for pair in pairs if pair.ratio("gpu_temp_c").value.above(1.05))
    measured = share_lost(hotter)
    clock, most = e.number("sm_clock_mhz").least, e.number("sm_clock_max_mhz").most
    if measured is not None or not clock.bounded or not most.bounded or most.low <= 0:
        return measured
    return Interval(0.0, exactly(1.0).minus(clock.over(most)).clipped(0.0, 1.0).high)


RULES: tuple[Rule, ...] = (clocks_cut_for_heat,)
"""Rules of this family."""
