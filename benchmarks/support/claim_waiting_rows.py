"""Claims that nothing here can show yet, and what will."""

from __future__ import annotations

from benchmarks.support.claim_row import RowTest

__all__ = ["ROWS"]

ROWS = (
    RowTest(
        key="chunked_warmup",
        title="Warm-up in chunks over all at once",
        words=("chunked warm-up",),
        conditions="a cold start",
        # The first two numbers are the size of the chunks' blocks, or of a spread.
        claims={"first_latency_ratio": lambda n: n[2] / n[0]},
        awaits="`mileage engine`, which loads and warms up real engines; what a warm-up brings to "
        "a prefix cache, in chunks and in one piece, is in `make bench-cache`",
    ),
    RowTest(
        key="directory_invalidation",
        title="Invalidation by a directory over broadcast",
        words=("directory",),
        conditions="caches of several GPUs",
        claims={"message_ratio": lambda n: 1 - abs(n[4]) / 100},
        awaits="an index of prefix caches over replicas that counts its own messages",
    ),
    RowTest(
        key="mixed_weights",
        title="Weights in AWQ and FP8 over AWQ alone",
        words=("awq", "mixed weights"),
        conditions="one layer, after calibration",
        claims={"kl_ratio": lambda n: n[3] / n[4]},
        awaits="`mileage quant`, which measures the error of formats per layer",
    ),
    RowTest(
        key="instance_groups",
        title="Several instances of a model, and a warm pool",
        words=("instance groups",),
        conditions="an image model in batches of 64",
        claims={"throughput_ratio": lambda n: n[2]},
        awaits="the control of Triton as an engine; a cold start is an input of `mileage simulate` "
        "(--cold-start)",
    ),
    RowTest(
        key="context_warmup",
        title="A CUDA context that is warm before the first request",
        words=("context warm-up",),
        conditions="start of a server on a GPU",
        claims={"first_latency_ratio": lambda n: n[1] / n[0]},
        awaits="`mileage engine` on a real GPU",
    ),
    RowTest(
        key="post_processing",
        title="Post-processing off the path of a step",
        words=("post-processing",),
        conditions="an engine's step",
        claims={"latency_ratio": lambda n: n[1] / n[0]},
        awaits="`mileage doctor`, which tells host time within steps apart",
    ),
    RowTest(
        key="probes",
        title="Batched probes beside the work over synchronous ones",
        words=("probes",),
        conditions="telemetry of a GPU",
        # 2.1 GB/s -> 68 MB/s
        claims={"overhead_ratio": lambda n: n[1] / 1000 / n[0]},
        awaits="probes of NVML on a real GPU at both rates",
    ),
    RowTest(
        key="metering",
        title="Metering by what SMs and memory did over metering by time",
        words=("metering",),
        conditions="one card, several tenants",
        claims={"error_ratio": lambda n: abs(n[1]) / abs(n[0])},
        awaits="`mileage cost`, which attributes GPU time to requests",
    ),
)
