"""What `mileage quant kv` found: as a JSON document, and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from rich.table import Table

from mileage.cli.wide_console import wide_console
from mileage.quant.capture import CaptureFacts
from mileage.quant.effects import SlotEffect
from mileage.quant.expressible import Expressed
from mileage.quant.formats import Side, Slot
from mileage.quant.judged import Judged
from mileage.quant.measured import Mix

__all__ = ["KvResult", "kv_document", "show_kv"]

_HALF_BITS = 16.0


class KvResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of one search."""

    facts: CaptureFacts
    budget_kl: float | None
    bits_per_value: float
    mix: Mix
    judged: Judged
    """On held-out text."""

    alone: tuple[float, ...]
    """KL of each layer alone, on a part of the held-out text."""

    together: float
    """KL of the whole mix on the same part."""

    effects: Mapping[tuple[Slot, str], SlotEffect]
    """Of the slots in their formats."""

    engines: tuple[tuple[Expressed, float | None], ...]
    """Each with its KL on held-out text; None where it leaves the cache as it is."""

    @property
    def budget_met(self) -> bool | None:
        """On held-out text; None without a budget."""
        return None if self.budget_kl is None else self.judged.mean <= self.budget_kl


def kv_document(result: KvResult) -> dict[str, Any]:
    """The document. KLs are nats per token; what was not seen is null."""
    judged = result.judged
    total = sum(result.alone)
    return {
        "model": result.facts.model,
        "model_sha256": result.facts.model_sha256,
        "budget_kl": result.budget_kl,
        "budget_met": result.budget_met,
        "bits_per_value": result.bits_per_value,
        "memory_ratio": result.bits_per_value / _HALF_BITS,
        "kl_heldout": {"mean": judged.mean, "ci95": judged.ci95, "p99": judged.p99},
        "perplexity_ratio": judged.perplexity_ratio,
        "sum_of_single_kl": total,
        "kl_of_the_same_text": result.together,
        "layers": [_layer(result, layer) for layer in range(result.facts.layers)],
        "flags": {
            each.engine: {
                **{key: getattr(each, key) for key in ("k", "v", "bits_per_value", "flags")},
                "kl_estimated": each.kl,
                "kl_heldout": kl,
                "skipped_layers": each.skipped_layers,
                "note": each.note,
            }
            for each, kl in result.engines
        },
    }


def _layer(result: KvResult, layer: int) -> dict[str, Any]:
    keys = _effect(result, layer, "k")
    values = _effect(result, layer, "v")
    return {
        "k": keys.format.name,
        "v": values.format.name,
        "kl": result.alone[layer],
        "k_error": keys.relative_error,
        "v_error": values.relative_error,
        "attention_kl": keys.attention_kl,
        "attention_kl_proxy": keys.effect,
        "output_error": values.effect,
        "bound_ratio": keys.bound_ratio,
    }


def _effect(result: KvResult, layer: int, side: Side) -> SlotEffect:
    slot = Slot(layer, side)
    return result.effects[slot, result.mix[slot].name]


def show_kv(result: KvResult) -> None:
    """The tables."""
    console = wide_console()
    judged = result.judged
    low, high = judged.ci95
    console.print(
        f"{result.facts.model}: {result.bits_per_value:.2f} bits per value, "
        f"{result.bits_per_value / _HALF_BITS:.0%} of FP16's memory"
    )
    console.print(
        f"KL on held-out text {judged.mean:.2e} nats per token (95 % {low:.1e} to {high:.1e}), "
        f"p99 {judged.p99:.1e}, perplexity x {judged.perplexity_ratio:.4f}"
    )
    console.print(
        f"layers alone add up to {sum(result.alone):.2e}, "
        f"all together cost {result.together:.2e} on the same text"
    )
    if result.budget_met is False:
        console.print(f"the budget of {result.budget_kl:g} is NOT met on held-out text")
    for side in ("k", "v"):
        names = Counter(f.name for slot, f in result.mix.items() if slot.side == side)
        said = ", ".join(f"{name} {count}" for name, count in names.most_common())
        console.print(f"{side.upper()}: {said}")
    console.print(_layers(result))
    console.print(_engines(result))


def _layers(result: KvResult) -> Table:
    table = Table(title="Layers, each alone", title_justify="left")
    for name in ("layer", "keys", "values", "KL", "keys' error", "attention's KL", "of the bound"):
        table.add_column(name, justify="left" if name in ("keys", "values") else "right")
    for layer in range(result.facts.layers):
        row = _layer(result, layer)
        bound = row["bound_ratio"]
        table.add_row(
            str(layer),
            row["k"],
            row["v"],
            f"{row['kl']:.1e}",
            f"{row['k_error']:.2%}",
            f"{row['attention_kl']:.1e}",
            "-" if bound is None else f"{bound:.2f}",
        )
    return table


def _engines(result: KvResult) -> Table:
    table = Table(title="What engines can be told", title_justify="left")
    for name in ("engine", "bits", "KL held out", "flags", "note"):
        table.add_column(name, justify="right" if name in ("bits", "KL held out") else "left")
    for each, kl in result.engines:
        table.add_row(
            each.engine,
            f"{each.bits_per_value:.2f}",
            "-" if kl is None else f"{kl:.1e}",
            " ".join(each.flags) or "-",
            each.note or "",
        )
    return table
