"""Attention that stores keys and values in the formats asked for, and shows what it saw.

It stands where transformers calls an attention function: with queries, keys and values of one layer
after the positional rotation, which is what an engine's cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mileage.core.errors import EngineError
from mileage.quant.formats import KvFormat, Side, Slot, Values
from mileage.quant.quantised import quantised
from mileage.quant.ranges import Ranges

__all__ = ["NAME", "Tap", "register"]

NAME = "mileage-tap"
"""Of the attention function in transformers' registry."""

Seen = Callable[[int, Values, Values, Values], None]
"""Called with the layer and its queries, keys, values, each (tokens, heads, head_dim)."""


class Tap:
    """What is done in each layer: set before a run, read by the attention function."""

    def __init__(self) -> None:
        self.formats: Mapping[Slot, KvFormat] = {}
        self.ranges: Mapping[Slot, Ranges] = {}
        self.seen: Seen | None = None
        self.key_scale: Any | None = None
        """(head_dim,) factors of the keys' channels; queries are divided by them, so that nothing
        changes but the keys' range. Pairs of channels that are rotated together share theirs."""

    def stored(self, tensor: Any, layer: int, side: Side) -> tuple[Any, int | None]:
        """Keys or values (1, heads, tokens, dim) as read back; and the size of an open group."""
        import torch

        slot = Slot(layer, side)
        kv_format = self.formats.get(slot)
        if kv_format is None:
            return tensor, None
        values = quantised(_as_values(tensor), kv_format, self.ranges.get(slot))
        back = torch.from_numpy(values).permute(1, 0, 2)[None].contiguous()
        return back, kv_format.open_group


def register(tap: Tap) -> None:
    """Make the tap the attention function `NAME`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def attention(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **rest: Any
    ) -> tuple[Any, None]:
        return _attention(tap, module, query, key, value, attention_mask, rest), None

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, eager_mask)


def _attention(
    tap: Tap, module: Any, query: Any, key: Any, value: Any, mask: Any, rest: Mapping[str, Any]
) -> Any:
    """softmax(Q K^T scale + mask) V; the output's axes are (1, tokens, heads, dim)."""
    import torch

    if rest.get("s_aux") is not None or rest.get("softcap") is not None:
        raise EngineError("reference model", "attention with sinks or soft caps is not supported")
    layer = module.layer_idx
    if tap.key_scale is not None:
        query, key = query / tap.key_scale, key * tap.key_scale
    if tap.seen is not None:
        tap.seen(layer, _as_values(query), _as_values(key), _as_values(value))
    shared = query.shape[1] // key.shape[1]
    stored_key, key_group = tap.stored(key, layer, "k")
    stored_value, value_group = tap.stored(value, layer, "v")
    scale = rest.get("scaling") or query.shape[-1] ** -0.5
    key, stored_key = _repeated(key, shared), _repeated(stored_key, shared)
    value, stored_value = _repeated(value, shared), _repeated(stored_value, shared)
    scores = query @ stored_key.transpose(2, 3)
    if key_group is not None:
        own = _own_group(query.shape[2], key_group)
        scores = torch.where(own, query @ key.transpose(2, 3), scores)
    scores = scores * scale + mask[:, :, :, : key.shape[2]]
    weights = torch.softmax(scores, dim=-1)
    if value_group is None:
        output = weights @ stored_value
    else:
        own = _own_group(query.shape[2], value_group)
        output = weights.masked_fill(own, 0.0) @ stored_value
        output = output + weights.masked_fill(~own, 0.0) @ value
    return output.transpose(1, 2).contiguous()


def _repeated(tensor: Any, times: int) -> Any:
    """Each head of keys or values beside itself, once for each query head that shares it."""
    return tensor if times == 1 else tensor.repeat_interleave(times, dim=1)


def _own_group(tokens: int, group: int) -> Any:
    """Which tokens (columns) are of the group that the query (row) is in itself."""
    import torch

    of = torch.arange(tokens) // group
    return of[:, None] == of[None, :]


def _as_values(tensor: Any) -> Values:
    values: Values = tensor[0].permute(1, 0, 2).contiguous().numpy()
    return values
