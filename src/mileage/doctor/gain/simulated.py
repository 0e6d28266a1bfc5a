"""The gain of a change by simulation: after over before, as far as the simulator is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from mileage.costmodel.efficiency_table import TPOT_INTERVAL
from mileage.doctor.evidence import Evidence
from mileage.doctor.finding import Gain, GainMetric
from mileage.doctor.gain.changed import Pair, changed, held_back, unsimulated
from mileage.doctor.gain.load import load_of
from mileage.doctor.gain.setup import Setup, setup_of
from mileage.doctor.gain.simulator import RUNS, Figures, Simulator, in_flight_of
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change
from mileage.sim.steady_load import SteadyFigures

__all__ = ["simulated_gains"]

THROUGHPUT_ERROR: Final = 1.2
TTFT_ERROR: Final = 1.5
"""Of 3,731 pairs of published measurements of one setup that differ in concurrency alone, four of
five have a ratio of TPOTs within 1.17 times of the predicted one, and one of TTFTs within 1.52
times; of pairs that differ in tensor parallelism 1.16 and 1.38, in weights 1.20 and 1.37."""

NOT_REPRODUCED: Final = "the simulator does not reproduce the present state"

PREEMPTIONS: Final = ("preemptions_per_s", "preemptions_count")

KEEPS_UP: Final = 0.95
"""An engine that answers fewer of those that come has a queue that grows, and no TTFT."""


def simulated_gains(
    evidence: Evidence, changes: Sequence[Change], simulator: Simulator
) -> tuple[Gain, ...] | Unsimulated:
    """After over before of throughput, TTFT and ITL; else why there is none."""
    other = unsimulated(changes)
    if other is not None:
        return other
    load = load_of(evidence)
    if isinstance(load, Unsimulated):
        return load
    setup = setup_of(evidence, load)
    if isinstance(setup, Unsimulated):
        return setup
    wanted = Pair(setup=setup, load=load)
    after, before = changed(wanted, changes), held_back(wanted, evidence, changes)
    if isinstance(after, Unsimulated):
        return after
    if isinstance(before, Unsimulated):
        return before
    now = simulator.figures(before, before)
    if isinstance(now, Unsimulated):
        return now
    doubt = _contradicted(evidence, before, now)
    if isinstance(doubt, Unsimulated):
        return doubt
    then = simulator.figures(after, before)
    if isinstance(then, Unsimulated):
        return then
    return _gains((before, now), (after, then), _basis(before, after, doubt))


def _gains(
    before: tuple[Pair, Figures], after: tuple[Pair, Figures], basis: str
) -> tuple[Gain, ...]:
    found = [_gain("throughput_ratio", _throughput(*before), _throughput(*after), basis)]
    # What waits before a pool is not in a TTFT that begins at the engine.
    pooled = before[0].load != after[0].load
    if not pooled and _keeps_up(*before) and _keeps_up(*after):
        found.append(_of(before[1], after[1], "ttft_p99_ratio", lambda e: e.ttft_p99_s, basis))
    found.append(_of(before[1], after[1], "itl_p99_ratio", lambda e: e.itl_p99_s, basis))
    return tuple(gain for gain in found if gain is not None)


def _of(
    now: Figures,
    then: Figures,
    metric: GainMetric,
    figure: Callable[[SteadyFigures], float | None],
    basis: str,
) -> Gain | None:
    return _gain(metric, [figure(each) for each in now], [figure(each) for each in then], basis)


def _gain(
    metric: GainMetric, now: Sequence[float | None], then: Sequence[float | None], basis: str
) -> Gain | None:
    """Runs of one seed are compared with each other; None where one has no such figure."""
    ratios = [a / b for a, b in zip(then, now, strict=True) if a and b]
    if len(ratios) < len(now):
        return None
    error = TTFT_ERROR if metric == "ttft_p99_ratio" else THROUGHPUT_ERROR
    low, high = min(ratios), max(ratios)
    low, high = low / _error(low, error), high * _error(high, error)
    return Gain(metric=metric, low=_shown(low), high=_shown(high), basis=basis)


def _shown(ratio: float) -> float:
    """To three significant digits: a TTFT may fall to a thousandth."""
    return float(f"{ratio:.3g}")


def _error(ratio: float, most: float) -> float:
    """Two runs share the model's errors: those of a ratio are no larger than the change itself."""
    return min(most, max(ratio, 1.0 / ratio))


def _throughput(pair: Pair, figures: Figures) -> list[float | None]:
    """Output tokens per second and card."""
    cards = pair.setup.deployment.gpus * pair.setup.replicas
    return [
        each.output_tokens_per_s * _at_work(pair, place) / cards
        for each, place in zip(figures, RUNS, strict=True)
    ]


def _at_work(pair: Pair, place: float) -> float:
    """Replicas that have requests."""
    replicas, each = pair.setup.replicas, in_flight_of(pair, place)
    if each is None or pair.load.in_flight is None:
        return replicas
    return min(float(replicas), pair.load.in_flight.high / each)


def _keeps_up(pair: Pair, figures: Figures) -> bool:
    rate = pair.load.rate_rps
    if rate is None:
        return True
    return all(each.requests_per_s * pair.setup.replicas >= KEEPS_UP * rate.low for each in figures)


def _contradicted(evidence: Evidence, pair: Pair, now: Figures) -> str | Unsimulated:
    """What was measured of the present state beside what is simulated of it, for people; or that
    they differ by more than the step-time model may be off."""
    other = _another_cache(evidence, now)
    if other is not None:
        return Unsimulated(f"{NOT_REPRODUCED}: {other}")
    cards = pair.setup.deployment.gpus * pair.setup.replicas
    rates = [each * cards for each in _throughput(pair, now) if each is not None]
    gaps = [each.itl_mean_s for each in now if each.itl_mean_s is not None]
    slower, faster = TPOT_INTERVAL[1], TPOT_INTERVAL[0]
    told = []
    for key, simulated, least, most, unit in (
        ("output_tokens_per_s", rates, 1 / slower, 1 / faster, "tokens/s"),
        ("itl_mean_s", gaps, faster, slower, "s between tokens"),
    ):
        seen = evidence.number(key)
        measured = seen.total if key == "output_tokens_per_s" else seen.value
        if not measured.bounded or not simulated:
            continue
        expected = Interval(min(simulated) * least, max(simulated) * most)
        middle = sorted(simulated)[len(simulated) // 2]
        beside = f"{middle:.3g} {unit} simulated, {measured.shown()} measured"
        if measured.high < expected.low or measured.low > expected.high:
            return Unsimulated(f"{NOT_REPRODUCED}: {beside}")
        told.append(beside)
    return "; ".join(told) or "nothing was measured that the simulated present can be held against"


def _another_cache(evidence: Evidence, now: Figures) -> str | None:
    """Whether the engine preempts requests and the simulated one does not, or the other way."""
    checks = [evidence.number(key).above(0.0).truth for key in PREEMPTIONS]
    counts = [each.preemptions for each in now]
    if True in checks and not any(counts):
        return "requests are preempted, and in the simulation their KV cache has room for all"
    if True not in checks and False in checks and all(counts):
        return "no request is preempted, and in the simulation their KV cache is too small"
    return None


def _basis(before: Pair, after: Pair, doubt: str) -> str:
    setup = before.setup
    parts = [f"simulated: {before.load.told()}", _layout(setup)]
    if after.load != before.load:
        parts.append(f"afterwards {after.load.told()}")
    if _layout(after.setup) != _layout(setup):
        parts.append(f"afterwards {_layout(after.setup)}")
    if setup.assumed:
        parts.append(f"assumed {', '.join(setup.assumed)}")
    return "; ".join((*parts, doubt))


def _layout(setup: Setup) -> str:
    each = setup.deployment
    cards = f"{each.gpus}x {each.gpu.name}" if each.gpus > 1 else each.gpu.name
    many = f"{setup.replicas} replicas of " if setup.replicas > 1 else ""
    return f"{many}{each.model.name} in {each.weights} on {cards}"
