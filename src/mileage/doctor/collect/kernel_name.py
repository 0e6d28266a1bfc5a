"""Names of GPU kernels: what a kernel is for, and one spelling of it for all profilers."""

from __future__ import annotations

import re
from typing import Final, Literal

__all__ = ["KernelKind", "kernel_base", "kernel_kind", "shown_kernel"]

KernelKind = Literal[
    "communication", "attention", "matrix", "moe", "sampling", "norm", "copy", "other"
]

_KINDS: Final[tuple[tuple[KernelKind, re.Pattern[str]], ...]] = (
    (
        "communication",
        re.compile(
            r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce"
            r"|nvshmem|deep_?ep|multimem|twoshot|oneshot",
            re.IGNORECASE,
        ),
    ),
    ("copy", re.compile(r"memcpy|memset|\bcopy_|CatArrayBatched|reshape_and_cache|direct_copy")),
    ("moe", re.compile(r"moe|topk_?gating|expert|grouped_gemm", re.IGNORECASE)),
    ("sampling", re.compile(r"softmax_warp|sampl|multinomial|top_?[kp]|argmax|sort|penalt", re.I)),
    (
        "attention",
        re.compile(r"flash|attention|attn|fmha|paged|mla|decode_kernel|prefill_kernel", re.I),
    ),
    (
        "matrix",
        re.compile(
            r"gemm|gemv|cutlass|cublas|matmul|_mm_|marlin|wgmma|nvjet|xmma|Cijk|splitk", re.I
        ),
    ),
    ("norm", re.compile(r"norm", re.IGNORECASE)),
)
_LENGTH_MAX: Final = 4000


def kernel_kind(name: str) -> KernelKind:
    """What it is for, by the words of its name: an estimate, since names are free."""
    text = name[:_LENGTH_MAX]
    for kind, pattern in _KINDS:
        if pattern.search(text):
            return kind
    return "other"


def kernel_base(name: str) -> str:
    """Its name without result, namespaces, template and parameters, as `ncu` prints it in short.

    `void at::native::copy_kernel<4, float>(int, float*)` -> `copy_kernel`.
    """
    text = name[:_LENGTH_MAX].replace("(anonymous namespace)", "").strip()
    depth = 0
    kept: list[str] = []
    for char in text:
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if char == "(" and kept:
                break
            kept.append(char)
    words = "".join(kept).split()
    return (words[-1] if words else text).rpartition("::")[2] or text


def shown_kernel(name: str, *, limit: int = 72) -> str:
    """The name without parameters, cut in its middle where it is long."""
    text = " ".join(name[:_LENGTH_MAX].split()).removeprefix("void ")
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}…{text[-(limit // 3 - 1) :]}"
