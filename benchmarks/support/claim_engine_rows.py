"""Claims of what engines do: batching, precision, graphs, paging; tested by simulation."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.support.claim_lab import Arm, Figure, Lab, Ratio, memory_bytes, value
from benchmarks.support.claim_ladder import SHOWN, laddered, rate_text
from benchmarks.support.claim_row import Gain, Outcome, RowTest

__all__ = ["ROWS", "gained", "simulated"]

_GB = 1e9
_FLOOD_RPS = 2000.0
"""More than any engine here answers."""
_PEAK_OVER_VALLEY = 15.0
"""The claim's 120 requests per second over 8."""


def simulated(trace: str, *words: str, command: Sequence[str] = ("simulate",)) -> tuple[str, ...]:
    """The words of a command that simulates engines without a policy before them."""
    return (*command, "--trace", f"synthetic:{trace}", *words, "--policy", "off")


def gained(ratio: Ratio, unit: str, scale: float = 1.0, digits: int = 3) -> Gain:
    """A ratio with its two values in that unit."""
    before, after = (f"{v * scale:,.{digits}g}" for v in (ratio.before, ratio.after))
    return Gain(ratio.ratio, f"{before} -> {after} {unit}", ratio.low, ratio.high)


def _int4_batching(lab: Lab) -> Outcome:
    plain = ("--model", "qwen3-32b", "--gpu", "a100-80gb")
    alone = (*plain, "--engine-max-seqs", "1")
    batched = (*plain, "--precision", "int4", "--engine-max-seqs", "64")
    requests = "requests=300,prompt=512,output=128"

    def arms(rate: float) -> tuple[Arm, Arm]:
        trace = f"rate={rate_text(rate)},{requests}"
        return Arm(simulated(trace, *alone)), Arm(simulated(trace, *batched))

    def first(rate: float) -> Ratio:
        plain, quick = arms(rate)
        return lab.ratio(value("ttft_s.p50"), after=quick, before=plain)

    before, after = arms(4.0)
    memory = lab.ratio(memory_bytes, after=after, before=before)
    speed = lab.ratio(value("output_tokens_per_s"), after=after, before=before)
    capacity_rps = lab.mean(value("requests_rps"), before)
    calm, calm_after = arms(capacity_rps * SHOWN)
    return Outcome(
        {
            "memory_ratio": gained(memory, "GB", 1 / _GB),
            "throughput_ratio": gained(speed, "tok/s"),
            "ttft_ratio": laddered(capacity_rps, first, lambda ratio: gained(ratio, "ms", 1e3, 4)),
        },
        [str(arm) for arm in (before, after, calm, calm_after)],
        "Most of it is batching: weights in INT4 read in a quarter of the time, but a full engine "
        "waits for arithmetic, which INT4 does not speed up. How much is gained therefore depends "
        "on how many requests wait; the memory is that of weights and of the KV cache in use, "
        "while a server takes its whole share of the GPU in either case.",
    )


def _static_ab(lab: Lab) -> Outcome:
    def arms(rate: float) -> tuple[Arm, Arm]:
        words = simulated(
            f"rate={rate_text(rate)},requests=2400,prompt=128,output=uniform:2:12",
            *("--model", "llama-2-7b", "--gpu", "a100-80gb", "--variant"),
            "static static_batch.size=8 kv_layout=contiguous context_tokens_max=1024",
            command=("simulate", "compare"),
        )
        return Arm(words, "static"), Arm(words, "plain")

    def of(figure: Figure, rate: float) -> Ratio:
        before, after = arms(rate)
        return lab.ratio(figure, after=after, before=before)

    capacity_rps = lab.mean(value("requests_rps"), arms(_FLOOD_RPS)[0])
    tail, memory = value("e2e_s.p99"), memory_bytes
    return Outcome(
        {
            "p99_ratio": laddered(
                capacity_rps, lambda rate: of(tail, rate), lambda r: gained(r, "ms", 1e3)
            ),
            "memory_ratio": laddered(
                capacity_rps, lambda rate: of(memory, rate), lambda r: gained(r, "MB", 1e-6, 5)
            ),
        },
        [str(arms(_FLOOD_RPS)[0]), str(arms(capacity_rps * SHOWN)[0])],
        "A static batch waits for its company first, and for its longest answer then; a request "
        "joins a dynamic one at the next step. Memory follows from the room for the longest "
        "context that a contiguous cache keeps, so the second figure is what was promised to "
        "clients (1,024 tokens), not a property of batching.",
    )


def _cuda_graphs(lab: Lab) -> Outcome:
    figures, commands = [], []
    for batch in (8, 32):
        plain = f"rate=2000,requests={batch},prompt=fixed:32,output=fixed:256"
        words = ("--model", "qwen2.5-0.5b", "--gpu", "a100-80gb", "--graph-sizes")
        before = Arm(simulated(plain, *words, "none"))
        after = Arm(simulated(plain, *words, "1,2,4,8,16,32"))
        figures.append(lab.ratio(value("itl_s.p50"), after=after, before=before))
        commands += [str(before), str(after)]
    small, large = (gained(ratio, "ms", 1e3) for ratio in figures)
    return Outcome(
        {"step_ratio at batch 8": small, "step_ratio at batch 32": large},
        commands,
        "A graph takes away what launching a kernel costs, which is the same at each batch size "
        "and for each model of so many layers: a small model on a fast GPU gains most. A step of "
        "about the claimed time is that of a model of half a billion parameters.",
    )


def _paged(lab: Lab) -> Outcome:
    trace = "rate=50,requests=400,prompt=uniform:64:1024,output=uniform:16:512"
    model = ("--model", "llama-2-7b", "--gpu", "a10", "--precision", "int8")
    contiguous = "contiguous kv_layout=contiguous context_tokens_max=2048 static_batch.size=8"
    words = simulated(trace, *model, "--variant", contiguous, command=("simulate", "compare"))
    before, after = Arm(words, "contiguous"), Arm(words, "plain")
    eight = Arm(simulated(trace, *model, "--engine-max-seqs", "8"))
    rate = lab.ratio(value("requests_rps"), after=after, before=before)
    memory = lab.ratio(memory_bytes, after=eight, before=before)
    return Outcome(
        {"qps_ratio": gained(rate, "requests/s"), "memory_ratio": gained(memory, "GB", 1 / _GB)},
        [str(before), str(eight)],
        "Pages let as many requests run as their real lengths have room for, and continuous "
        "batching goes on where a batch would wait for its longest answer. The memory is that of "
        "eight requests in either case.",
    )


def _graph_share(lab: Lab) -> Outcome:
    trace = "rate=200,requests=400,prompt=256,output=128"
    words = ("--model", "llama-3.1-8b", "--gpu", "a100-80gb", "--engine-max-seqs", "8")
    before = Arm(simulated(trace, *words, "--graph-sizes", "none"))
    after = Arm(simulated(trace, *words, "--graph-sizes", "1,2,4,8"))
    speed = lab.ratio(value("output_tokens_per_s"), after=after, before=before)
    return Outcome(
        {"graphs alone": gained(speed, "tok/s")},
        [str(before), str(after)],
        "CUDA graphs alone bring at batch 8 what stands below. What fused attention adds is not in "
        "it: every engine that the step times were fitted to has it, so that one without cannot "
        "be simulated.",
    )


def _static_valley(lab: Lab) -> Outcome:
    def at(rate: float) -> Arm:
        return Arm(
            simulated(
                f"rate={rate_text(rate)},requests=2000,prompt=fixed:64,output=fixed:1",
                *("--model", "llama-3.1-8b", "--gpu", "a100-80gb"),
                *("--engine-option", "static_batch.size=8"),
            )
        )

    def latency(peak: float) -> Ratio:
        return lab.ratio(value("e2e_s.p50"), after=at(peak / _PEAK_OVER_VALLEY), before=at(peak))

    capacity_rps = lab.mean(value("requests_rps"), at(_FLOOD_RPS))
    usual = float(rate_text(capacity_rps * SHOWN))
    return Outcome(
        {"latency_ratio": laddered(capacity_rps, latency, lambda r: gained(r, "ms", 1e3))},
        [str(at(usual)), str(at(usual / _PEAK_OVER_VALLEY))],
        "At the valley a batch does not fill, and its first request waits for the whole delay; at "
        "the peak it fills at once, until it waits for the batches before it. How far apart they "
        "are is the delay over the time of a step. The claim names no delay: 0.1 s is what the "
        "engine has by itself, and 0.2 s would give the claimed latency at 8 requests/s.",
    )


def _cost_stack(lab: Lab) -> Outcome:
    def arm(*words: str) -> Arm:
        return Arm(
            simulated(
                "rate=2,requests=1000,prompt=1000,output=200",
                *("--model", "qwen3-32b", "--gpu", "a100-80gb"),
                *("--slo", "ttft=2s,itl=100ms", "--gaps", "mean", "--tolerance", "0.02"),
                *words,
                command=("simulate", "capacity"),
            )
        )

    before = arm("--engine-option", "chunked_prefill=false", "--engine-tokens", "8192")
    after = arm("--precision", "int4")
    served = lab.ratio(lambda found: 1 / found["goodput_rps"], after=after, before=before)
    return Outcome(
        {"cost_ratio": gained(served, "GPU-seconds per request within targets")},
        [str(before), str(after)],
        "The GPU costs the same, so cost per request is the inverse of what is served within the "
        "targets (TTFT 2 s, mean gap 100 ms). INT4 leaves more memory for requests, but their "
        "prefills and large batches wait for arithmetic. Another model generation, which the "
        "claim has in it, is none of these settings; accuracy is not simulated.",
    )


_SPEED = {"throughput_ratio": lambda n: n[3] / n[2]}

ROWS = (
    RowTest(
        key="int4_batching",
        title="INT4 weights with dynamic batching, over FP16 one request at a time",
        words=("int4", "dynamic batching"),
        conditions="Qwen3-32B on one A100 80 GB; 512 prompt, 128 output tokens; saturated, and "
        "TTFT at four loads",
        claims={
            "memory_ratio": lambda n: n[1] / n[0],
            "throughput_ratio": lambda n: n[3] / n[2],
            "ttft_ratio": lambda n: n[5] / n[4],
        },
        run=_int4_batching,
    ),
    RowTest(
        key="dynamic_ab",
        title="Dynamic batches over static ones",
        words=("dynamic batching", "a/b"),
        conditions="Llama-2-7B on one A100; both arms have the same requests; 2 to 12 output "
        "tokens; static: batches of 8 after at most 0.1 s, contiguous caches",
        claims={"p99_ratio": lambda n: n[1] / n[0], "memory_ratio": lambda n: n[3] / n[2]},
        run=_static_ab,
    ),
    RowTest(
        key="cuda_graphs",
        title="CUDA graphs for fixed batch sizes",
        words=("cuda graph", "fixed batch"),
        conditions="Qwen2.5-0.5B on one A100, decoding",
        # The numbers between are the batch sizes that the row names.
        claims={
            "step_ratio at batch 8": lambda n: n[1] / n[0],
            "step_ratio at batch 32": lambda n: n[4] / n[3],
        },
        run=_cuda_graphs,
    ),
    RowTest(
        key="paged_kv",
        title="Paged KV cache over a contiguous one with static batches",
        words=("paged", "contiguous"),
        conditions="Llama-2-7B in INT8 on one A10, saturated; contiguous: 2,048 tokens each, "
        "batches of 8",
        claims={"qps_ratio": lambda n: n[1] / n[0], "memory_ratio": lambda n: n[3] / n[2]},
        run=_paged,
    ),
    RowTest(
        key="fused_attention_graphs",
        title="Fused attention and CUDA graphs",
        words=("flashattention", "cuda graph"),
        conditions="Llama-3.1-8B on one A100, eight requests at once; graphs alone",
        claims=_SPEED,
        run=_graph_share,
        awaits="an engine whose attention can be switched, measured by `mileage bench ab`",
    ),
    RowTest(
        key="static_valley",
        title="A static batch of 8 at the valley, over the peak",
        words=("static batch", "valley"),
        conditions="Llama-3.1-8B on one A100, one output token; a batch waits at most 0.1 s; the "
        "peak at four loads, the valley with a fifteenth of each, as claimed",
        claims={"latency_ratio": lambda n: n[0] / n[2]},
        run=_static_valley,
    ),
    RowTest(
        key="cost_stack",
        title="INT4 weights and chunked prefill over FP16 without, in cost",
        words=("awq", "chunked prefill", "baseline"),
        conditions="Qwen3-32B on one A100, at the highest rate that keeps the targets for 95 %",
        claims={"cost_ratio": lambda n: n[1] / n[0]},
        run=_cost_stack,
    ),
)
