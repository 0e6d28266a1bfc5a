"""Measured serving results: reads the rows of a CSV file that the cost model can be judged on.

The file has one row per run: model, GPU, parallelism, precision, engine, lengths, requests in
flight, and the mean TTFT and TPOT, or the whole rate, that came out; `source_class` names who
measured. Rows that say too little, or something else than the kernels, are left out: `why_not`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.layout import Engine
from mileage.costmodel.precision import Precision, precision

__all__ = ["QUEUE_TTFT_S", "Measured", "Readings", "classes", "read"]

QUEUE_TTFT_S = 5.0
"""A longer TTFT tells of the queue, or of a burst, not of the kernels."""
_BANDWIDTH_MAX = 0.92
"""Nothing reads weights faster than this share of the bandwidth, so a lower TPOT speculates."""
_RESULT = ("source_class", "model", "gpu", "ttft_mean_ms", "tpot_mean_ms", "total_tok_s", "engine")
_RANDOM_LENGTH_RATIO = 0.9
"""InferenceMAX draws lengths evenly from 0.8 to 1 of the nominal one."""
_SPECULATES = re.compile(r"specul|eagle|mtp|draft", re.IGNORECASE)
_ENGINES: tuple[tuple[str, Engine], ...] = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("trt", "trtllm"),
    ("tensorrt", "trtllm"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Seconds; None: not measured."""

    source_class: str
    deployment: Deployment
    requests: float
    prompt_tokens: float
    output_tokens: float
    step_tokens_max: int
    running_max: int
    same_length: bool
    """All prompts and answers are equally long."""
    tpot_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    """Of a source that gives the whole time only."""


@dataclass(slots=True)
class Readings:
    """Rows that are used, and how many were left out, by the reason."""

    rows: list[Measured] = field(default_factory=list)
    left_out: dict[tuple[str, str], int] = field(default_factory=dict)


class _UnusableError(Exception):
    """The row cannot be used; the message says why."""


def read(path: Path) -> Readings:
    """The usable rows of the file."""
    found = Readings()
    seen: set[tuple[str, ...]] = set()
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            try:
                measured = _measured(row)
                result = tuple(row[column] for column in _RESULT)
                if result in seen:
                    raise _UnusableError("the same result again")
                seen.add(result)
                found.rows.append(measured)
            except _UnusableError as why:
                key = (row["source_class"], str(why))
                found.left_out[key] = found.left_out.get(key, 0) + 1
    return found


def _measured(row: dict[str, str]) -> Measured:
    if "disagg" in row["workload"]:
        raise _UnusableError("prefill and decode are on different GPUs")
    if _SPECULATES.search(row["metric_note"] + row["engine"]):
        raise _UnusableError("decodes speculatively")
    prompt, output = _number(row["input_len"]), _number(row["output_len"])
    if prompt is None or output is None:
        raise _UnusableError("lengths vary or are not told")
    requests = _number(row["batch_or_concurrency"])
    if requests is None:
        raise _UnusableError("requests in flight are not told")
    ttft, tpot = _number(row["ttft_mean_ms"]), _number(row["tpot_mean_ms"])
    total = _number(row["total_tok_s"])
    e2e_s = (prompt + output) / total if ttft is None and tpot is None and total else None
    if ttft is None and tpot is None and e2e_s is None:
        raise _UnusableError("neither TTFT nor TPOT")
    if ttft is not None and ttft > QUEUE_TTFT_S * 1e3:
        raise _UnusableError(f"TTFT above {QUEUE_TTFT_S:.0f} s")
    if output < 16:
        raise _UnusableError("fewer than 16 tokens of output")
    vary = _random_lengths(row)
    if vary:
        prompt, output = prompt * _RANDOM_LENGTH_RATIO, output * _RANDOM_LENGTH_RATIO
    deployment = _deployment(row)
    if "DeepSeek" in deployment.model.name and deployment.engine == "trtllm" and tpot:
        # The same set-ups are listed twice, with TPOTs that are 2.3 times apart.
        raise _UnusableError("decodes speculatively, or not: not told")
    rank = re.search(r"per-rank batch_size=(\d+)", row["metric_note"])
    if rank and requests != int(rank.group(1)) * deployment.data_parallel:
        raise _UnusableError("requests in flight are unclear")
    burst = re.match(r"n=(\d+);", row["metric_note"])
    if burst and requests >= int(burst.group(1)):
        raise _UnusableError("a burst: all requests at once")
    known_prefix = "prefix-cache" in row["metric_note"]
    large = deployment.gpu.memory_gb >= 70 and "A100" not in deployment.gpu.name
    measured = Measured(
        source_class=row["source_class"],
        deployment=deployment,
        requests=requests,
        prompt_tokens=prompt,
        output_tokens=output,
        step_tokens_max=8192 if large or deployment.engine != "vllm" else 2048,
        running_max=1024 if large else 256,
        same_length=not vary and row["source_class"] != "GPUStack",
        tpot_s=None if tpot is None else tpot / 1e3,
        ttft_s=None if ttft is None or known_prefix else ttft / 1e3,
        e2e_s=e2e_s,
    )
    _require_possible(measured)
    return measured


def _random_lengths(row: dict[str, str]) -> bool:
    """The row is of InferenceMAX: the other campaign names its runs otherwise."""
    return row["source_class"] == "AIC-silicon" and "epnone" not in row["metric_note"]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _deployment(row: dict[str, str]) -> Deployment:
    name = row["model"].replace("\xa0", " ").split(" (")[0].split("/")[-1]
    bare = re.sub(r"-(FP8|NVFP4|AWQ|GPTQ|INT4)$", "", name, flags=re.IGNORECASE)
    engine = next((kind for word, kind in _ENGINES if word in row["engine"].lower()), None)
    if engine is None:
        raise _UnusableError("engine is not told")
    try:
        model = architecture(bare)
        accelerator = gpu(row["gpu"].replace("_", "-"))
    except ConfigError as unknown:
        raise _UnusableError(f"unknown {unknown.key}") from None
    tensor, data, pipeline, experts = _parallelism(row)
    weights = _weights(row, name, model.name)
    try:
        return Deployment(
            model=model,
            gpu=accelerator,
            tensor_parallel=tensor,
            data_parallel=data,
            pipeline_parallel=pipeline,
            expert_parallel=experts if model.experts else 1,
            weights=weights,
            kv="fp8" if engine == "trtllm" and weights != "bf16" else "bf16",
            engine=engine,
        )
    except ConfigError as wrong:
        raise _UnusableError(f"{wrong.key} cannot be") from None


def _weights(row: dict[str, str], name: str, model: str) -> Precision:
    told = row["precision"].lower()
    if "gpt-oss" in model:
        return "fp4"
    if told in ("", "default ckpt"):
        if name.upper().endswith(("AWQ", "GPTQ", "INT4")):
            return "int4"
        return "fp8" if "DeepSeek-V3" in model or name.upper().endswith("FP8") else "bf16"
    return precision(told)


def _parallelism(row: dict[str, str]) -> tuple[int, int, int, int]:
    """Tensor, data, pipeline and expert parallelism."""
    text, note = row["parallelism"], row["metric_note"]

    def degree(name: str, where: str = text) -> int | None:
        found = re.search(rf"(?<![a-z_]){name}\s?(\d+)", where)
        return int(found.group(1)) if found else None

    tensor = degree("tp") or 1
    data, pipeline, experts = degree("dp") or 1, degree("pp") or 1, degree("ep") or 1
    cut = re.search(r"moe_tp(\d+)", text)
    if cut and experts > 1 and int(cut.group(1)) > 1:
        raise _UnusableError("parallelism of attention is unclear")
    pipeline = degree("pp-size", note.replace("-pp ", "pp-size ")) or pipeline
    experts = degree("ep-size", note) or experts
    if "--enable-expert-parallel" in note:
        experts = tensor
    if "enable-dp-attention" in note:
        raise _UnusableError("parallelism of attention is unclear")
    told = _number(row["num_gpus"])
    if told is not None and told != tensor * data * pipeline:
        raise _UnusableError("number of GPUs is unclear")
    if tensor * data * pipeline > 8 and row["source_class"] == "AIC-silicon":
        raise _UnusableError("number of GPUs is unclear")
    return tensor, data, pipeline, experts


def _require_possible(row: Measured) -> None:
    """What fits, and is not faster than the memory."""
    deployment = row.deployment
    try:
        blocks = deployment.kv_blocks(16, row.step_tokens_max, 256)
    except ConfigError:
        raise _UnusableError("does not fit, by the model of memory") from None
    if row.requests * (row.prompt_tokens + row.output_tokens) > 16 * blocks:
        raise _UnusableError("more requests than fit in the KV cache")
    if row.requests > row.running_max:
        raise _UnusableError("more requests than run at once")
    if row.tpot_s is not None and row.tpot_s < _floor_s(row):
        raise _UnusableError("faster than the weights can be read")


def _floor_s(row: Measured) -> float:
    """The least time of a step: its weights are read at nearly the whole bandwidth."""
    deployment = row.deployment
    model = deployment.model
    weights = deployment.weight_bytes
    if model.experts:
        missed = (1.0 - model.experts_per_token / model.experts) ** row.requests
        routed = model.moe_layers * model.experts * model.expert_parameters
        share = routed / model.parameters
        weights *= 1.0 - share * missed
    return weights / (deployment.gpu.bandwidth_gb_per_s * 1e9 * _BANDWIDTH_MAX)


def classes(rows: Iterable[Measured]) -> Iterator[str]:
    """The source classes, each once."""
    yield from dict.fromkeys(row.source_class for row in rows)
