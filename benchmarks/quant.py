"""Mixes of KV-cache formats against the best uniform pair, on text that the search has not seen.

`make bench-quant`, or `.venvs/vllm/bin/python -m benchmarks.quant [--json] [--quick] [--model PATH]
[--keep FILE]`: it needs torch and transformers. See docs/reference/benchmarks.md for the bars. Exit
code: 0 all bars met, 1 one missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.output import Output
from benchmarks.support.quant_runs import Judgement, Plan, Runs, asymmetry, spread
from benchmarks.support.verdict import Bar, verdict
from mileage.engines.embedded.bundled_model import fetch_bundled_model
from mileage.engines.embedded.model_cache import cache_directory
from mileage.engines.reference_model.measured_model import ReferenceModel

__all__ = ["figures_of", "main"]

BITS = (4.75, 5.5, 6.5)
BARS = (
    Bar("kl_ratio", 0.6, at_least=False),
    Bar("additivity_error", 0.2, at_least=False),
    Bar("proxy_error", 0.1, at_least=False),
    Bar("bound_violations", 1, at_least=False),
    Bar("asymmetry", 1.0),
    Bar("asymmetry_with_outliers", 1.0, at_least=False),
)
FULL = Plan(window_tokens=256, calibration=6, held_out=12, additive=2)
QUICK = Plan(window_tokens=256, calibration=2, held_out=4, additive=1)


def figures_of(runs: Runs, output: Output) -> dict[str, object]:
    """All figures; KLs are of held-out text, nats per token."""
    judgements = [runs.judgement(bits) for bits in BITS]
    show(output, judgements)
    additive = [runs.additivity(each) for each in judgements]
    sides = asymmetry(runs.model, spread(runs.held_out, 2))
    ratios = {name: pairs["e4m3 / int8"] / pairs["int8 / e4m3"] for name, pairs in sides.items()}
    return {
        "kl_ratio": max(each.ratio for each in judgements),
        "kl_heldout": {
            f"{each.bits_max:g}": {
                "mean": each.judged.mean,
                "ci95": each.judged.ci95,
                "p99": each.judged.p99,
                "ratio": each.ratio,
                "ratio_ci95": each.ratio_ci95,
                "estimate": each.estimate,
                "bits_per_value": each.bits,
                "perplexity_ratio": each.judged.perplexity_ratio,
                "uniform": {name: found.mean for name, found in each.uniform.items()},
                "llama_cpp": each.llama_cpp and {each.llama_cpp[0]: each.llama_cpp[1].mean},
            }
            for each in judgements
        },
        "additivity_error": max(each.error for each in additive),
        "sum_of_single_kl": [each.total for each in additive],
        "proxy_error": runs.proxy_error(judgements),
        "bound_violations": runs.bound_violations,
        "asymmetry": ratios["plain"],
        "asymmetry_with_outliers": ratios["outliers"],
        "asymmetry_kl": sides,
    }


def show(output: Output, judgements: Sequence[Judgement]) -> None:
    """What was chosen, and the KL of each."""
    rows: list[tuple[object, ...]] = []
    for each in judgements:
        rows.append((f"{each.bits_max:g} bits: the mix", *_row(each.judged.mean, each.judged.p99)))
        for name, found in each.uniform.items():
            rows.append((f"  uniform {name}", *_row(found.mean, found.p99)))
        if each.llama_cpp is not None:
            name, found = each.llama_cpp
            rows.append((f"  llama.cpp {name}", *_row(found.mean, found.p99)))
        for side in ("k", "v"):
            names = Counter(f.name for slot, f in each.mix.items() if slot.side == side)
            said = ", ".join(f"{name} {count}" for name, count in names.most_common())
            output.say(f"{each.bits_max:g} bits, {side.upper()}: {said}")
    output.table("KL on held-out text, nats per token", ("keys / values", "mean", "p99"), rows)


def _row(*figures: float) -> tuple[str, ...]:
    return tuple(f"{figure:.2e}" for figure in figures)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quant", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--quick", action="store_true", help="a third of the text")
    parser.add_argument("--model", type=Path, help="a GGUF file or a Hugging Face directory")
    parser.add_argument("--keep", type=Path, help="file that keeps what the search measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(argv)
    output = Output(quiet=arguments.json)
    start_s = time.monotonic()
    path = arguments.model or fetch_bundled_model(
        cache_directory(os.environ), progress=lambda *_: None, environ=os.environ
    )
    runs = Runs(
        ReferenceModel(path, threads=arguments.threads, windows_kept=FULL.held_out),
        QUICK if arguments.quick else FULL,
        keep=arguments.keep,
        say=output.say,
    )
    figures = figures_of(runs, output)
    elapsed_s = round(time.monotonic() - start_s, 1)
    return output.finish({**figures, "elapsed_s": elapsed_s}, verdict(figures, BARS))


if __name__ == "__main__":
    sys.exit(main())
