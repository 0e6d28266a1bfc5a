"""Writes the oracle's steps as a fitted engine: what `mileage simulate --engine FILE` reads.

`python -m benchmarks.support.oracle_engine --model llama-3.1-8b --gpu h100 --out engine.json`, with
the oracle in .venvs/oracle (`make oracle`). Exit code: 0 written, 2 the oracle does not know it, or
it does not fit, 3 the oracle is not installed or fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.oracle_client import ORACLE, Answer, Step, ask, query, seconds
from benchmarks.support.oracle_setups import REQUESTS_MAX, Setup
from mileage.core.errors import ConfigError
from mileage.costmodel.batch_fit import fit_planes
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.fitted import FittedSteps, StepSample
from mileage.costmodel.fitted_engine import FittedEngine, SeenLoad
from mileage.costmodel.operators import Array

__all__ = ["engine_steps", "fitted_engine", "main", "oracle_engine"]

_BLOCK_TOKENS = 16
_CONTEXT_MIN, _CONTEXT_MAX = 64, 16384
_CONTEXTS = 6
_PROMPTS = 16
_BESIDE = 6
_LONGER = (1, 4)
"""Contexts beside a prompt, in its lengths."""
_REST_MIN_RATIO = 0.05
_STEP_TOKENS_MAX = 2048


def oracle_engine(
    deployment: Deployment, *, running_max: int, step_tokens_max: int
) -> FittedEngine:
    """Asks the oracle. ConfigError for what it has no kernels of, or what does not fit."""
    blocks = deployment.kv_blocks(_BLOCK_TOKENS, step_tokens_max, running_max)
    kv_tokens = blocks * _BLOCK_TOKENS
    steps = list(engine_steps(running_max, step_tokens_max, kv_tokens))
    question = query(deployment, steps)
    if question is None:
        name = f"{deployment.model.name} in {deployment.weights} on {deployment.gpu.name}"
        raise ConfigError("model", name, "a model, precision and GPU of the oracle")
    version, (answer,) = ask([question])
    return fitted_engine(
        deployment,
        steps,
        answer,
        told=f"aiconfigurator-core {version}",
        running_max=running_max,
        step_tokens_max=step_tokens_max,
        kv_tokens=kv_tokens,
    )


def engine_steps(running_max: int, step_tokens_max: int, kv_tokens: int) -> Iterator[Step]:
    """Every batch size with contexts that fit in `kv_tokens`, prompts alone, and both."""
    for batch in range(1, running_max + 1):
        longest = min(_CONTEXT_MAX, max(kv_tokens // batch, 2 * _CONTEXT_MIN))
        for context in _spread(_CONTEXT_MIN, longest, _CONTEXTS):
            yield Step(batch, context)
    for prompt in _spread(min(16, step_tokens_max), step_tokens_max, _PROMPTS):
        yield Step(0, 0, prompt)
        for batch in _spread(1, running_max, _BESIDE):
            for context in (prompt * times for times in _LONGER):
                if prompt + batch <= step_tokens_max and batch * context <= kv_tokens:
                    yield Step(batch, context, prompt)


def _spread(low: int, high: int, count: int) -> list[int]:
    """So many numbers, evenly in their logarithms."""
    return sorted({int(each) for each in np.rint(np.geomspace(low, high, count))})


def fitted_engine(
    deployment: Deployment,
    steps: list[Step],
    answer: Answer,
    *,
    told: str,
    running_max: int,
    step_tokens_max: int,
    kv_tokens: int,
) -> FittedEngine:
    """An engine that takes as long for its steps as the answer says.

    Kernels alone: no host time, and nothing before a first token.
    """
    known = [(step, k) for step, k in zip(steps, answer.steps, strict=True) if k is not None]
    if not known:
        raise ConfigError("model", deployment.model.name, f"one of the oracle: {answer.reason}")
    samples = [
        StepSample(
            running=step.decoding,
            kv_tokens=step.decoding * step.context_tokens,
            prefill_tokens=step.prompt_tokens,
            step_s=seconds(kernels),
        )
        for step, kernels in known
    ]
    model = deployment.model.name
    fitted = _fit(samples, f"{told}, {deployment.gpus} x {deployment.gpu.name}")
    return FittedEngine(
        steps=fitted,
        kind="steps",
        model=model,
        running_max=running_max,
        running_max_told=True,
        step_tokens_max=step_tokens_max,
        step_tokens_told=True,
        kv_tokens_max=kv_tokens,
        first_token_s=0.0,
        shared_prompt_tokens=0,
        noise_ratio=0.0,
        seen=SeenLoad(
            requests=len(known),
            duration_s=sum(sample.step_s for sample in samples),
            running_max=max(step.decoding for step, _ in known),
            kv_tokens_max=max(step.decoding * step.context_tokens for step, _ in known),
            prompt_tokens_max=max(max(s.context_tokens, s.prompt_tokens) for s, _ in known),
            output_tokens_max=max(step.context_tokens for step, _ in known),
            prefill_step_tokens_max=max(step.prompt_tokens for step, _ in known),
        ),
    )


def _fit(samples: Sequence[StepSample], engine: str) -> FittedSteps:
    """Seconds per token of context from steps that decode, planes from those with prompts.

    What decoding takes beyond a plane is told size by size. A running engine's samples have to
    tell all that from whatever steps there were; here each part has steps of its own.
    """
    loads = np.array([(1.0, *sample[:3]) for sample in samples])
    seconds_ = np.array([sample.step_s for sample in samples])
    counts, kv_tokens = loads[:, 1].astype(int), loads[:, 2].copy()
    mixed = loads[:, 3] > 0.0
    kv_s = _slope(counts[~mixed], kv_tokens[~mixed], seconds_[~mixed])
    loads[:, 2] = 0.0
    rest_s = np.maximum(seconds_ - kv_s * kv_tokens, _REST_MIN_RATIO * seconds_)
    found = np.array(fit_planes(loads[mixed], rest_s[mixed]))
    # What every step with a prompt takes alike may be several times a step that decodes one
    # request, of a mixture of experts: it is no part of the planes, which are of both.
    prompt_s = float(found[:, 0].min())
    found[:, 0] -= prompt_s
    predicted = (loads @ found.T).max(axis=1)
    offsets = [0.0]
    for count in range(1, int(counts.max()) + 1):
        beyond = (rest_s - predicted)[~mixed & (counts == count)]
        offsets.append(float(np.median(beyond)) if len(beyond) else offsets[-1])
    predicted += np.where(mixed, prompt_s, np.array(offsets)[counts])
    error = np.abs((predicted + kv_s * kv_tokens) / seconds_ - 1.0)
    planes: list[list[float]] = found.tolist()
    return FittedSteps(
        planes=tuple((start, request, kv_s, prompt) for start, request, _, prompt in planes),
        samples=len(samples),
        error_ratio=float(np.median(error)),
        engine=engine,
        decode_offsets_s=tuple(offsets),
        prompt_offset_s=prompt_s,
    )


def _slope(counts: NDArray[np.intp], kv_tokens: Array, seconds_: Array) -> float:
    """Seconds per token of context: by relative least squares, batch sizes apart."""
    above = under = 0.0
    for count in np.unique(counts):
        own = counts == count
        weight = seconds_[own] ** -2.0
        moved = kv_tokens[own] - np.average(kv_tokens[own], weights=weight)
        above += float(np.sum(weight * moved * seconds_[own]))
        under += float(np.sum(weight * moved**2))
    return max(above / under, 0.0) if under else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.support.oracle_engine", description=__doc__
    )
    parser.add_argument("--model", required=True, help="as `mileage simulate --model`")
    parser.add_argument("--gpu", required=True, help="as `mileage simulate --gpu`")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share each layer")
    parser.add_argument("--ep", type=int, default=1, help="GPUs that share the experts")
    parser.add_argument("--weights", choices=("bf16", "fp8", "int4", "fp4"), default="bf16")
    parser.add_argument("--kv", choices=("bf16", "fp8"), default="bf16")
    parser.add_argument("--engine", choices=("vllm", "sglang", "trtllm"), default="vllm")
    parser.add_argument("--running-max", type=int, default=REQUESTS_MAX)
    parser.add_argument("--step-tokens", type=int, default=_STEP_TOKENS_MAX)
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    a = parser.parse_args(argv)
    if not ORACLE.exists():
        sys.stderr.write("error: the oracle is not installed: make oracle\n")
        return 3
    setup = Setup(a.model, a.gpu, a.tp, a.weights, a.kv, a.engine, a.ep)
    try:
        found = oracle_engine(
            setup.deployment(), running_max=a.running_max, step_tokens_max=a.step_tokens
        )
        a.out.write_bytes(found.to_json())
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 3
    steps = found.steps
    sys.stdout.write(
        f"wrote {a.out}: {steps.samples:,} steps, median error {steps.error_ratio:.1%}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
