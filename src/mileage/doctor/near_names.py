"""Names of the vocabulary that somebody may have meant by another one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from mileage.doctor.engine_flags import settings_of_flags
from mileage.doctor.vocabulary import SECTIONS

__all__ = ["near_keys", "nearest_of"]

SHOWN_MAX: Final = 3
LIKE_MIN: Final = 0.55
"""Likeness below which a name is no better a guess than any other."""
LETTERS_MIN: Final = 0.5
"""Shared letters, in any order, below which names are not looked at: it is quick to know."""
HERE: Final = 0.05
"""What being in the section in which it was written adds."""
NEARLY: Final = 0.1
"""Names that are as much less like it as this are told beside the best."""
NAME_MAX: Final = 100
"""Characters of a name that are compared: longer ones are no slip of a key."""

OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("hardware.count", "hardware.gpu"),
    "gpu_count": ("hardware.count",),
    "num_gpus": ("hardware.count",),
    "n_gpus": ("hardware.count",),
    "gpu_type": ("hardware.gpu",),
    "gpu_name": ("hardware.gpu",),
    "gpu_model": ("hardware.gpu",),
    "accelerator": ("hardware.gpu",),
    "vram": ("hardware.memory_gb",),
    "vram_gb": ("hardware.memory_gb",),
    "gpu_memory_gb": ("hardware.memory_gb",),
    "tp": ("settings.tensor_parallel_size",),
    "pp": ("settings.pipeline_parallel_size",),
    "dp": ("settings.data_parallel_size",),
    "batch_size": ("settings.max_num_seqs", "signals.requests_running"),
    "slots": ("settings.max_num_seqs",),
    "context_length": ("settings.max_model_len",),
    "parameters": ("model.params_b",),
    "params": ("model.params_b",),
    "qps": ("workload.rate_rps", "signals.requests_per_s"),
    "rps": ("workload.rate_rps", "signals.requests_per_s"),
    "users": ("workload.concurrency",),
    "clients": ("workload.concurrency",),
    "input_tokens": ("workload.isl_tokens",),
    "input_len": ("workload.isl_tokens",),
    "prompt_len": ("workload.isl_tokens",),
    "prompt_length": ("workload.isl_tokens",),
    "prompt_tokens": ("workload.isl_tokens", "signals.prompt_tokens_per_s"),
    "output_tokens": ("workload.osl_tokens", "signals.output_tokens_per_s"),
    "output_len": ("workload.osl_tokens",),
    "throughput": ("signals.output_tokens_per_s", "signals.requests_per_s"),
    "latency": ("signals.e2e_mean_s", "signals.ttft_mean_s"),
    "tpot": ("signals.itl_mean_s",),
    "tpot_s": ("signals.itl_mean_s",),
    "queue": ("signals.requests_waiting",),
    "queue_length": ("signals.requests_waiting",),
    "hit_rate": ("signals.prefix_cache_hit_ratio",),
    "gpu_utilization": ("signals.gpu_util_ratio",),
    "gpu_util": ("signals.gpu_util_ratio",),
    "replicas": ("topology.replicas", "signals.replicas_current"),
    "engine": ("engine.name",),
    "model": ("model.name",),
    "gpu": ("hardware.gpu",),
}
"""What the field says -> what a facts document says."""


def near_keys(name: str, section: str | None = None) -> tuple[str, ...]:
    """Names with their section, `hardware.count`, that `name` may stand for, the likeliest first.

    `section`: the one in which it was written; names in it are likelier. At most three.
    """
    plain = _plain(name)
    last = plain.rpartition(".")[2]
    found = dict.fromkeys(
        (*OTHER_WORDS.get(plain, ()), *OTHER_WORDS.get(last, ()), *_same_name(plain, last))
    )
    setting = settings_of_flags().get(last)
    if setting is not None:
        found[f"settings.{setting}"] = None
    if not found:
        found = dict.fromkeys(_alike(plain, section))
    return tuple(found)[:SHOWN_MAX]


def nearest_of(name: str, known: Iterable[str]) -> str | None:
    """The one of a few known names that is most like it; None where none is like it."""
    return next(iter(difflib.get_close_matches(name[:NAME_MAX], sorted(known), n=1)), None)


def _plain(name: str) -> str:
    return name[:NAME_MAX].strip().lstrip("-").replace("-", "_").lower()


def _same_name(*names: str) -> list[str]:
    """The very name, in whichever section it stands."""
    return [
        f"{section}.{name}"
        for section, kinds in SECTIONS.items()
        for name in names
        if name in kinds
    ]


def _alike(plain: str, section: str | None) -> list[str]:
    letters = difflib.SequenceMatcher(b=plain, autojunk=False)
    words = set(_words(plain))
    close: list[tuple[float, str]] = []
    for where, kinds in SECTIONS.items():
        for name in kinds:
            letters.set_seq1(name)
            score = _likeness(letters, words, set(_words(name)))
            if score >= LIKE_MIN:
                close.append((score + (HERE if where == section else 0.0), f"{where}.{name}"))
    best = max((score for score, _ in close), default=0.0)
    ordered = sorted(close, key=lambda one: (-one[0], one[1]))
    return [key for score, key in ordered if score >= best - NEARLY]


def _likeness(letters: difflib.SequenceMatcher[str], words: set[str], others: set[str]) -> float:
    """Of 0 to 1: shared words count as much as shared letters."""
    if letters.quick_ratio() < LETTERS_MIN:
        return 0.0
    shared = len(words & others) / max(len(words), len(others), 1)
    ratio = letters.ratio()
    return max(ratio, 0.5 * (shared + ratio))


def _words(name: str) -> list[str]:
    """Words of a name, without the s of a plural."""
    return [word.removesuffix("s") for word in name.replace(".", "_").split("_") if word]
