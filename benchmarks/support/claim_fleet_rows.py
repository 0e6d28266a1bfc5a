"""Claims of what decides before engines, and of fleets: policies, merging, cards beside cards."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from benchmarks.support.claim_bursts import BURST_FLOOD_RPS, LOAD, BurstRun, Way, burst_run
from benchmarks.support.claim_engine_rows import gained, simulated
from benchmarks.support.claim_lab import Arm, Document, Lab, Ratio, ratio_of, value
from benchmarks.support.claim_ladder import SHOWN, laddered, rate_text
from benchmarks.support.claim_row import Gain, Outcome, RowTest

__all__ = ["ROWS", "elasticity"]

_A100 = ("--model", "llama-3.1-8b", "--gpu", "a100-80gb")
_STEP_TOKENS = (128, 192, 256, 384, 512, 768, 1024, 2048)
_MPS_GAIN = 1.52
_FLOOD_RPS = 2000.0
"""More than any engine here answers."""


def _sm_feedback(lab: Lab) -> Outcome:
    words = (
        *(
            "simulate",
            "compare",
            "--trace",
            "synthetic:rate=60,requests=3000,prompt=256,output=128",
        ),
        *(*_A100, "--policy", "static:64+wait,utilisation+wait"),
    )
    before, after = Arm(words, "static:64+wait"), Arm(words, "utilisation+wait")
    speed = lab.ratio(value("output_tokens_per_s"), after=after, before=before)
    return Outcome(
        {"throughput_ratio": gained(speed, "tok/s", digits=4)},
        [str(before)],
        "An LLM instead of images: the rule is the same, and so is what it finds, that a limit of "
        "64 leaves a GPU below what it can do. SM utilisation itself is an input of the policy in "
        "the simulator (busy share times occupancy), and so no result of it.",
    )


def _volatility(lab: Lab) -> Outcome:
    def between(before: Way, figure: Callable[[BurstRun], float], rate: float) -> Ratio:
        return ratio_of(
            [
                (figure(burst_run(before, seed, rate)), figure(burst_run("volatility", seed, rate)))
                for seed in lab.seeds
            ]
        )

    def jitter(run: BurstRun) -> float:
        return run.jitter

    def tail(run: BurstRun) -> float:
        return run.e2e_p99_s

    capacity_rps = statistics.fmean(
        burst_run("fixed", seed, BURST_FLOOD_RPS).answered_rps for seed in lab.seeds
    )
    to_slots = between("slots", jitter, float(rate_text(capacity_rps * SHOWN)))
    return Outcome(
        {
            "jitter_ratio": laddered(
                capacity_rps,
                lambda rate: between("fixed", jitter, rate),
                lambda r: gained(r, "sigma/mean"),
            ),
            "p99_ratio": laddered(
                capacity_rps,
                lambda rate: between("fixed", tail, rate),
                lambda r: gained(r, "s"),
            ),
        },
        ["make bench-claims ARGS='--only volatility_batch'", "make bench-governor"],
        "A request that joins a running batch waits for neither company nor the longest answer, "
        "which is the gain in latency. Against 64 slots of continuous batching the same policy "
        f"has {to_slots.ratio:.2f} times the jitter: what is gained is continuous batching. "
        "Completions cannot be much more even than arrivals, unless requests are made to wait. "
        "In real time, beside other policies: `make bench-governor`.",
    )


def _mps(lab: Lab) -> Outcome:
    def shared(share: str, rate: float) -> Arm:
        return Arm(
            simulated(
                f"rate={rate_text(rate)},requests=800,prompt=128,output=16",
                *("--model", "llama-3.1-8b", "--gpu", "h20", "--replicas", "2", "--share", share),
            )
        )

    def latency(rate: float) -> Ratio:
        after, before = shared(f"2:{_MPS_GAIN}", rate), shared("2", rate)
        return lab.ratio(value("e2e_s.p50"), after=after, before=before)

    capacity_rps = lab.mean(value("requests_rps"), shared("2", _FLOOD_RPS))
    usual = capacity_rps * SHOWN
    return Outcome(
        {"latency_ratio": laddered(capacity_rps, latency, lambda r: gained(r, "ms", 1e3))},
        [str(shared(share, usual)) for share in ("2", f"2:{_MPS_GAIN}")],
        f"If MPS gets {_MPS_GAIN} times as much done, as the claimed utilisation says, latency "
        "falls as shown. Whether it does is an input here, and not tested.",
    )


def _two_h20(lab: Lab) -> Outcome:
    def fleet(*words: str) -> Arm:
        return Arm(
            simulated(
                "rate=300,requests=2000,prompt=128,output=64",
                *("--model", "llama-3-8b", "--gpu", "h20", "--engine-max-seqs", "32", *words),
            )
        )

    one, two, wide = fleet("--replicas", "1"), fleet("--replicas", "2"), fleet("--tp", "2")
    found = lab.ratio(_per_card, after=two, before=one)
    cut = lab.ratio(_per_card, after=wide, before=one)
    return Outcome(
        {"scaling_ratio per card": gained(found, "requests/s and card")},
        [str(one), str(two), str(wide)],
        "Two cards serve twice of what one does, and no more; a model cut among them "
        f"({cut.ratio:.2f} per card) pays for its exchanges. More than linear is only where one "
        "card lacks memory for the requests that it could run, and at 32 requests it does not.",
    )


def _per_card(document: Document) -> float:
    return float(document["requests_rps"] / document["assumptions"]["gpus"])


def _merging(lab: Lab) -> Outcome:
    def at(rate: float, merged: str, policy: str) -> Arm:
        words = (
            *("simulate", "--trace"),
            f"synthetic:rate={rate_text(rate)},requests=4000,prompt=256,output=16,contents=50:1",
            *(*_A100, "--policy", policy),
        )
        return Arm(words, environment=(("MILEAGE_MERGING_ENABLED", merged),))

    def arms(rate: float) -> tuple[Arm, Arm]:
        return at(rate, "false", "static:64+wait"), at(rate, "true", "model+wait")

    def latency(rate: float) -> Ratio:
        alone, merged = arms(rate)
        return lab.ratio(value("e2e_s.p50"), after=merged, before=alone)

    before, after = arms(1500)
    rate = lab.ratio(value("requests_rps"), after=after, before=before)
    capacity_rps = lab.mean(value("requests_rps"), before)
    return Outcome(
        {
            "qps_ratio": gained(rate, "requests/s"),
            "latency_ratio": laddered(capacity_rps, latency, lambda r: gained(r, "ms", 1e3)),
        },
        [str(arm) for arm in (before, after, *arms(capacity_rps * SHOWN))],
        "Requests that are equal word by word and in flight together share one generation, so "
        "the gain is how often they are: here each of 50 contents comes back all the time. With "
        "nothing in common it is none. In real time, embeddings included: `make bench-governor`.",
    )


def _balance(lab: Lab) -> Outcome:
    def arm(tokens: int, rate: float) -> Arm:
        trace = f"rate={rate_text(rate)},requests=1500,prompt=lognormal:1000:0.7,output=150"
        engine = ("--engine-tokens", str(tokens), "--engine-max-seqs", "128")
        return Arm(simulated(trace, *_A100, *engine))

    def shape(rate: float) -> Ratio:
        fronts = []
        for seed in lab.seeds:
            documents = [lab.document(arm(tokens, rate), seed) for tokens in _STEP_TOKENS]
            fronts.append(_front([(d["ttft_s"]["p50"], d["itl_s"]["p50"]) for d in documents]))
        first = fronts[0]
        ends.append(f"{_point(first[0])} to {_point(first[-1])}")
        return ratio_of([(1.0, elasticity(front)) for front in fronts])

    ends: list[str] = []
    capacity_rps = lab.mean(value("requests_rps"), arm(512, _FLOOD_RPS))
    found = laddered(
        capacity_rps, shape, lambda r: Gain(r.ratio, f"{ends.pop()} ms", r.low, r.high)
    )
    return Outcome(
        {"front_shape": found},
        [
            str(arm(_STEP_TOKENS[0], capacity_rps * SHOWN)),
            "the same with --engine-tokens " + ", ".join(map(str, _STEP_TOKENS[1:])),
        ],
        "The shape is an elasticity: by how many percent TTFT grows where gaps get shorter by one. "
        "The tokens of a step trade one for the other along a front without dominated points; "
        "`mileage bench sweep` measures the same of an endpoint.",
    )


def _point(point: tuple[float, float]) -> str:
    return f"{point[0] * 1e3:.0f}/{point[1] * 1e3:.1f}"


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats in both, by rising TTFT."""
    return sorted(
        p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)
    )


def elasticity(points: Sequence[tuple[float, float]]) -> float:
    """Minus the slope of log TTFT over log ITL, by least squares.

    Raises RuntimeError for fewer than three points: two have any shape.
    """
    if len(points) < 3:
        raise RuntimeError("a front of fewer than three points has no shape")
    fit = statistics.linear_regression(
        [math.log(i) for _, i in points], [math.log(t) for t, _ in points]
    )
    return -fit.slope


def _claimed_elasticity(n: Sequence[float]) -> float:
    return elasticity([(n[0], n[1]), (n[2], n[3]), (n[4], n[5])])


ROWS = (
    RowTest(
        key="sm_feedback",
        title="A limit by SM feedback over a fixed limit of 64",
        words=("sm-feedback",),
        conditions="Llama-3.1-8B on one A100, saturated",
        claims={"throughput_ratio": lambda n: n[1] / n[0]},
        run=_sm_feedback,
    ),
    RowTest(
        key="volatility_batch",
        title="A limit by volatility over fixed batches of 64",
        words=("volatility",),
        conditions=f"Llama-3.1-8B on one A100; {LOAD}; completions per second",
        claims={"jitter_ratio": lambda n: n[1] / n[0], "p99_ratio": lambda n: n[3] / n[2]},
        run=_volatility,
    ),
    RowTest(
        key="mps",
        title="MPS over time slicing",
        words=("mps",),
        conditions="two engines with Llama-3.1-8B on one H20",
        claims={"utilisation_ratio": lambda n: n[1] / n[0], "latency_ratio": lambda n: n[3] / n[2]},
        run=_mps,
        awaits="MPS on a real GPU (`mileage scale`)",
    ),
    RowTest(
        key="two_h20",
        title="Two H20 over one",
        words=("one against two",),
        conditions="Llama-3-8B, 32 requests at once on each engine, saturated; per card, so that "
        "linear is 1",
        claims={"scaling_ratio per card": lambda n: n[1] / n[0] / 2},
        run=_two_h20,
    ),
    RowTest(
        key="gateway_merging",
        title="Merging and adaptive limits in the gateway over neither",
        words=("request merging",),
        conditions="Llama-3.1-8B on one A100; 50 contents by Zipf's law; saturated, and "
        "latency at four loads; the other side has a fixed limit of 64",
        claims={"latency_ratio": lambda n: n[1] / n[0], "qps_ratio": lambda n: n[3] / n[2]},
        run=_merging,
    ),
    RowTest(
        key="balance_points",
        title="The trade of TTFT for ITL",
        words=("ttft/itl",),
        conditions="Llama-3.1-8B on one A100, 128 to 2,048 tokens of a step; capacity is "
        "that at 512",
        claims={"front_shape": _claimed_elasticity},
        absolute=frozenset({"front_shape"}),
        run=_balance,
    ),
)
