"""Claims of bytes, and of GPUs against each other: arithmetic of the cost model."""

from __future__ import annotations

from benchmarks.support.claim_engine_rows import simulated
from benchmarks.support.claim_lab import Arm, Document, Lab, Ratio, value
from benchmarks.support.claim_ladder import SHOWN, laddered, rate_text
from benchmarks.support.claim_row import Gain, Outcome, RowTest
from mileage.costmodel.catalogue import architecture

__all__ = ["ROWS", "adapter_parameters"]

_MB, _GB = 1e6, 1e9
_DISK_BYTES_PER_S = 3.5e9
"""A PCIe 3 x4 NVMe disk's sequential reads."""
_RESIDENT_ADAPTERS = 6
_HALF_BYTES = 2
_TRAINED_BYTES = 8
"""A trained weight in half precision: itself, its gradient, and Adam's two moments."""
_MODEL = "llama-2-7b"
_MODEL_PARAMETERS = 6.74e9
_DENSITIES = (1, 2, 3, 4)
_KEPT = 0.95
_FLOOD_RPS = 2000.0
"""More than any engine here answers."""
_PROMPT_TOKENS, _CHUNK_TOKENS = 8192, 2048


def adapter_parameters(model_name: str, rank: int) -> int:
    """Weights of a LoRA adapter for all linear layers of a dense model: rank x (in + out) each."""
    model = architecture(model_name)
    queries, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = 2 * (model.hidden + queries) + 2 * (model.hidden + kv)
    feed_forward = 3 * (model.hidden + model.intermediate)
    return model.layers * rank * (attention + feed_forward)


def _only(key: str) -> str:
    return f"make bench-claims ARGS='--only {key}'"


def _int8_kv(lab: Lab) -> Outcome:
    words = ("roofline", "--model", _MODEL, "--gpu", "a100-80gb", "--batch", "1")
    arms = [Arm((*words, "--context", "2048", "--kv", kv)) for kv in ("bf16", "fp8")]
    before, after = (_read_bytes(lab.document(arm), "decode attention") for arm in arms)
    shown = f"{before / _GB:.2f} -> {after / _GB:.2f} GB"
    return Outcome(
        {"memory_ratio": Gain(after / before, shown)},
        [str(arm) for arm in arms],
        "Half the bits are half the bytes, less the scales that INT8 keeps beside them (FP8 has "
        "one for a tensor). Of 2,048 tokens of a 7B model with as many KV heads as heads the keys "
        "and values are 1.07 GB: the claim's absolute figures have something else in them, too.",
    )


def _read_bytes(document: Document, operator: str) -> float:
    return float(sum(o["bytes"] for o in document["operators"] if o["name"] == operator))


def _lora_residency(lab: Lab) -> Outcome:
    one = adapter_parameters(_MODEL, 64) * _HALF_BYTES
    load_s = one / _DISK_BYTES_PER_S
    resident = _RESIDENT_ADAPTERS * one
    shown = f"{resident / _GB:.2f} GB -> {one / _MB:.0f} MB"
    return Outcome(
        {
            "memory_ratio": Gain(one / resident, shown),
            "load_ms": Gain(load_s * 1e3, f"{load_s * 1e3:.1f} ms"),
        },
        [_only("lora_residency")],
        "An adapter of rank 64 for all linear layers of a 7B model has 320 MB in half precision, "
        "as claimed; six of them are about what is claimed to be resident. A disk that reads "
        "3.5 GB/s brings one in the claimed time; from the host's memory it is a seventh of that. "
        "What waiting costs a workload: `mileage simulate --engine-option adapters.load_s=0.09`.",
    )


def _lora_training(lab: Lab) -> Outcome:
    weights = _MODEL_PARAMETERS
    full = weights * _TRAINED_BYTES
    tuned = adapter_parameters(_MODEL, 8)
    lora = weights * _HALF_BYTES + tuned * _TRAINED_BYTES
    return Outcome(
        {"memory_ratio": Gain(lora / full, f"{full / _GB:.1f} -> {lora / _GB:.1f} GB")},
        [_only("lora_training")],
        "Eight bytes for each trained weight (itself, gradient, two moments), two for a frozen "
        "one. The claim's smaller figure has activations in it, which depend on batch and length, "
        "and are not in ours.",
    )


def _h20_a100(lab: Lab) -> Outcome:
    def arm(*load: str) -> Arm:
        words = ("roofline", "--model", "deepseek-r1", "--weights", "int4", "--tp", "8")
        return Arm((*words, "--gpu", "h20", "--against", "a100-80gb", *load, "--context", "2048"))

    decode, prefill = arm("--batch", "1"), arm("--batch", "0", "--prefill", "2048")
    h20, a100 = (each["step_s"] for each in lab.document(decode)["reports"])
    h20_prompt, a100_prompt = (each["step_s"] for each in lab.document(prefill)["reports"])
    return Outcome(
        {"throughput_ratio": Gain(a100 / h20, f"{1 / a100:.1f} -> {1 / h20:.1f} tok/s")},
        [str(decode), str(prefill)],
        "One request at a time waits for memory and for the host, and an H20 has the faster "
        f"memory. The claimed ratio is about that of prompts, {a100_prompt / h20_prompt:.2f}: "
        "there arithmetic counts, of which an A100 has twice as much. So the claim holds for "
        "prefill, and not for the tokens per second of one stream.",
    )


def _kv_traffic(lab: Lab) -> Outcome:
    chunks = _PROMPT_TOKENS // _CHUNK_TOKENS
    whole = 2 * _PROMPT_TOKENS
    cut = _PROMPT_TOKENS + _CHUNK_TOKENS * chunks * (chunks + 1) // 2
    shown = f"{whole:,} -> {cut:,} tokens written and read"
    return Outcome(
        {"chunked traffic_ratio": Gain(cut / whole, shown)},
        [_only("kv_traffic")],
        "Each chunk of a prompt reads the keys and values of all chunks before it once more: KV "
        "traffic grows. What chunks save is waiting, not bytes. Paging moves the bytes that are "
        "stored, as a contiguous cache does that reads no further than it is filled; the claim "
        "must be against one that reads up to the longest context, which no engine here does.",
    )


def _gpu_sharing(lab: Lab) -> Outcome:
    def shared(count: int, rate: float) -> Arm:
        return Arm(
            simulated(
                f"rate={rate_text(rate)},requests=3000,prompt=256,output=64",
                *("--model", "qwen2.5-0.5b", "--gpu", "a10", "--engine-max-seqs", "32"),
                *("--replicas", str(count), "--share", str(count), "--slo", "ttft=1s,itl=100ms"),
            )
        )

    def kept(count: int, rate: float) -> bool:
        found = [lab.document(shared(count, rate), seed) for seed in lab.seeds]
        return all(float(each["slo_attainment_ratio"]) >= _KEPT for each in found)

    def density(rate: float) -> Ratio:
        best = 0
        for count in _DENSITIES:
            if not kept(count, rate):
                break
            best = count
        return Ratio(float(best), float(best), float(best), 1.0, float(best))

    capacity_rps = lab.mean(value("requests_rps"), shared(1, _FLOOD_RPS))
    found = laddered(capacity_rps, density, lambda r: Gain(r.ratio, _engines(round(r.ratio))))
    usual = float(rate_text(capacity_rps * SHOWN))
    return Outcome(
        {"density_ratio": found},
        [str(shared(count, usual)) for count in _DENSITIES],
        "Small engines have room beside each other on a card; what they share is its time, so "
        "that they keep their targets (TTFT 1 s, gaps of 100 ms, 95 % of the answers) as far as "
        "one engine with all of their requests would not have been full. At loads where one alone "
        "does not keep them there is no gain to have. More than four were not tried.",
    )


def _engines(count: int) -> str:
    return f"1 -> {count} replicas on a GPU" if count else "not even one keeps the targets"


def _relative(percent: float) -> float:
    return 1.0 - abs(percent) / 100.0


ROWS = (
    RowTest(
        key="int8_kv",
        title="KV cache in 8 bits over 16",
        words=("int8 kv",),
        conditions="Llama-2-7B, one request of 2,048 tokens; FP8 stands for INT8",
        claims={"memory_ratio": lambda n: n[1] / n[0]},
        run=_int8_kv,
    ),
    RowTest(
        key="lora_residency",
        title="A LoRA adapter loaded on demand, over all of them resident",
        words=("lora resident",),
        conditions="Llama-2-7B, rank 64, all linear layers, half precision",
        claims={"memory_ratio": lambda n: n[2] / 1000 / n[0], "load_ms": lambda n: n[3]},
        absolute=frozenset({"load_ms"}),
        run=_lora_residency,
    ),
    RowTest(
        key="lora_training",
        title="Training a LoRA adapter over training all weights",
        words=("lora", "fine-tune"),
        conditions="Llama-2-7B, rank 8, half precision with Adam; without activations",
        claims={"memory_ratio": lambda n: n[1] / n[0]},
        run=_lora_training,
    ),
    RowTest(
        key="h20_a100",
        title="H20 over A100",
        words=("h20 against a100",),
        conditions="DeepSeek-R1 in INT4 on eight of each, one stream at 2,048 tokens",
        claims={"throughput_ratio": lambda n: n[0] / n[1]},
        run=_h20_a100,
    ),
    RowTest(
        key="kv_traffic",
        title="KV traffic of paged attention, and of prompts in chunks",
        words=("pagedattention", "chunked prefill"),
        conditions="a prompt of 8,192 tokens in one piece and in chunks of 2,048; each key and "
        "value is written once, and read once by each chunk from its own on",
        claims={
            "paged traffic_ratio": lambda n: _relative(n[0]),
            "chunked traffic_ratio": lambda n: _relative(n[1]),
        },
        run=_kv_traffic,
        awaits="memory counters of a GPU under both layouts",
    ),
    RowTest(
        key="gpu_sharing",
        title="Engines that share a card over one on each",
        words=("gpu sharing",),
        conditions="Qwen2.5-0.5B on one A10, time slicing; the load of the card is dealt among its "
        "engines",
        claims={"density_ratio": lambda n: n[1] / n[0]},
        run=_gpu_sharing,
    ),
)
