"""When a change of a setting takes effect: at once, or after a restart, and of what."""

from __future__ import annotations

from typing import Final

from mileage.doctor.engine_flags import engine_family
from mileage.doctor.evidence import Evidence
from mileage.doctor.hot_fixes import HOT_FIXES
from mileage.doctor.opinion import Change

__all__ = ["takes_effect"]

ENGINE: Final = "after a restart of the engine, which loses its KV cache"
KNOB: Final = f"{ENGINE}; at once by Mileage's vLLM plugin"
POD: Final = "in new pods: each starts its engine anew"
CLUSTER: Final = "at once: the autoscaler reads it anew, and no pod restarts"

EFFECTS: Final = (
    ("router.", "at once where Mileage routes (`--fix`); in other routers after a restart"),
    ("client.", "after a restart of the client; the engine goes on"),
    ("proxy.", "after a restart of the proxy; the engine goes on"),
    ("hpa.", CLUSTER),
    ("keda.", CLUSTER),
    ("knative.", "in the revision that is made next"),
    ("k8s.gpu_sharing", "after the node's device plugin restarts, and its pods are placed anew"),
    ("k8s.", POD),
    ("vgpu.", POD),
    ("storage.", POD),
    ("triton.", "when Triton loads the model anew"),
    ("nccl.", POD),
    ("env.", "after a restart of the process"),
    ("dp_balancer.", ENGINE),
)
"""What a setting's name begins with -> when it takes effect; all others are the engine's flags."""


KNOBS: Final = frozenset({"max_num_seqs", "max_num_batched_tokens"})
"""What the plugin can lower while the engine runs, from the value that it started with."""


def takes_effect(change: Change, cause: str, evidence: Evidence) -> str:
    """Of a change against that cause, in that deployment."""
    setting = change.setting
    told = next((told for start, told in EFFECTS if setting.startswith(start)), ENGINE)
    if setting in KNOBS and _is_lowered(change, evidence):
        told = KNOB
    fix = HOT_FIXES.get(cause)
    if fix is None or setting.startswith("router."):
        return told
    return f"{told}; a Mileage gateway eases it at once (`--fix`): {fix.why}"


def _is_lowered(change: Change, evidence: Evidence) -> bool:
    if engine_family(evidence.text("engine.name")) != "vllm":
        return False
    value = change.value
    return isinstance(value, (int, float)) and bool(
        evidence.number(change.setting).above(value).truth
    )
