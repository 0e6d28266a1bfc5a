"""A real model behind the search's questions: its windows of text, captures, the KL of a mix."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mileage.core.errors import ConfigError
from mileage.engines.reference_model.load import LoadedModel, load_model
from mileage.engines.reference_model.tap import Tap
from mileage.quant.capture import Capture, CaptureFacts, LayerCapture
from mileage.quant.formats import Side, Slot, Values
from mileage.quant.measured import Measurement, Mix, Window
from mileage.quant.ranges import Ranges, ranges_of

__all__ = ["ReferenceModel"]

_WINDOWS_KEPT = 6
"""References in memory at a time: logits of 256 tokens over 49,152 words are 50 MB, twice."""

_RESUMED_WITHIN = 1e-4
"""Of the greatest logit: a run that is resumed from any layer must end as a whole run does."""


class _Reference(NamedTuple):
    """A window without quantisation."""

    logits: Any
    """(tokens, words)."""

    probabilities: Any
    hidden: Sequence[Any]
    """What goes into each layer, (1, tokens, width)."""


class ReferenceModel:
    """Runs in float32 on the CPU; implements `mileage.quant.measured.MeasuredModel`."""

    def __init__(self, path: Path, *, threads: int = 2, windows_kept: int = _WINDOWS_KEPT) -> None:
        """Loads the model; raises as `load_model` does."""
        self._tap, self._kept = Tap(), windows_kept
        self._loaded: LoadedModel = load_model(path, tap=self._tap, threads=threads)
        _check(self._loaded.model, path)
        config = self._loaded.model.config
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self._whole = self._loaded.model.model.layers
        self._references: OrderedDict[Window, _Reference] = OrderedDict()
        self._resumes: bool | None = None

    def windows(self, text: str, tokens: int) -> tuple[Window, ...]:
        """The text in windows of that many tokens; ConfigError where it does not fill one."""
        ids: list[int] = self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) < tokens:
            raise ConfigError("--text", f"{len(ids)} tokens", f"at least one window of {tokens}")
        return tuple(tuple(ids[i : i + tokens]) for i in range(0, len(ids) - tokens + 1, tokens))

    def scale_keys(self, factors: Sequence[float] | None) -> None:
        """Multiply each head's channels of keys, and divide those of queries: the outlier stress.

        The model computes what it did; only the keys' ranges differ. One factor a channel, after
        the rotation; None ends it. Scales fixed beforehand need a new `calibrate`.
        """
        import torch

        if factors is not None and len(factors) != self.head_dim:
            raise ValueError(f"{len(factors)} factors for heads of {self.head_dim} channels")
        self._tap.key_scale = None if factors is None else torch.tensor(factors)

    def calibrate(self, windows: Sequence[Window]) -> None:
        """Fix the scales that are fixed beforehand on the extremes of these windows."""
        capture = self.capture(windows)
        self._tap.ranges = {
            slot: ranges
            for layer in range(self.layers)
            for slot, ranges in self._ranges(capture, layer).items()
        }

    def _ranges(self, capture: Capture, layer: int) -> Mapping[Slot, Ranges]:
        sides: tuple[Side, ...] = ("k", "v")
        whole = capture.layers[layer]
        return {Slot(layer, side): ranges_of([getattr(whole, side)]) for side in sides}

    def capture(self, windows: Sequence[Window]) -> Capture:
        """Queries, keys and values of all layers on these windows."""
        seen: dict[int, list[tuple[Values, Values, Values]]] = {}
        self._tap.formats = {}
        self._tap.seen = lambda layer, q, k, v: seen.setdefault(layer, []).append((q, k, v))
        try:
            for window in windows:
                self._hidden_after(self._ids(window))
        finally:
            self._tap.seen = None
        layers = tuple(
            LayerCapture(
                q=np.concatenate([q for q, _, _ in seen[i]]),
                k=np.concatenate([k for _, k, _ in seen[i]]),
                v=np.concatenate([v for _, _, v in seen[i]]),
            )
            for i in range(self.layers)
        )
        text = hashlib.sha256(repr(tuple(windows)).encode()).hexdigest()
        attention = self._whole[0].self_attn
        facts = CaptureFacts(
            model=self._loaded.name,
            model_sha256=self._loaded.sha256,
            text_sha256=text,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            scale=float(getattr(attention, "scaling", self.head_dim**-0.5)),
            window_tokens=tuple(map(len, windows)),
        )
        return Capture(facts=facts, layers=layers)

    def measure(self, window: Window, mix: Mix) -> Measurement:
        """The window under the mix, against the window as it is."""
        import torch

        reference = self._reference(window)
        self._tap.formats = dict(mix)
        try:
            logits = reference.logits
            if mix:
                logits = self._logits(window, reference, min(slot.layer for slot in mix))
        finally:
            self._tap.formats = {}
        with torch.inference_mode():
            kl = _divergence(reference.probabilities, logits - reference.logits)
            targets = torch.tensor(window[1:])
            own = logits[:-1].gather(1, targets[:, None])[:, 0]
            loss = torch.logsumexp(logits[:-1], dim=1) - own
        return Measurement(kl=kl.numpy().astype(np.float64), loss=loss.numpy().astype(np.float64))

    def _reference(self, window: Window) -> _Reference:
        import torch

        if window in self._references:
            self._references.move_to_end(window)
            return self._references[window]
        self._tap.formats = {}
        hidden: list[Any] = []
        hooks = [
            layer.register_forward_pre_hook(
                lambda _, args, kwargs: hidden.append(args[0] if args else kwargs["hidden_states"]),
                with_kwargs=True,
            )
            for layer in self._whole
        ]
        try:
            logits = self._head(self._hidden_after(self._ids(window)))
        finally:
            for hook in hooks:
                hook.remove()
        found = _Reference(logits, torch.softmax(logits, dim=1), hidden)
        if self._resumes is None:
            self._resumes = self._can_resume(window, found)
        self._references[window] = found
        if len(self._references) > self._kept:
            self._references.popitem(last=False)
        return found

    def _can_resume(self, window: Window, reference: _Reference) -> bool:
        """Whether the last half of the layers, given the middle's input, ends as the whole does."""
        try:
            resumed = self._head(self._hidden_from(self.layers // 2, reference))
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError):
            return False
        error = float((resumed - reference.logits).abs().max())
        return error <= _RESUMED_WITHIN * float(reference.logits.abs().max())

    def _logits(self, window: Window, reference: _Reference, first: int) -> Any:
        """From the first layer that differs on; what comes before it is the reference's."""
        if first and self._resumes:
            return self._head(self._hidden_from(first, reference))
        return self._head(self._hidden_after(self._ids(window)))

    def _hidden_from(self, layer: int, reference: _Reference) -> Any:
        import torch

        core = self._loaded.model.model
        core.layers = torch.nn.ModuleList(list(self._whole)[layer:])
        try:
            return self._hidden_after({"inputs_embeds": reference.hidden[layer]})
        finally:
            core.layers = self._whole

    def _ids(self, window: Window) -> Mapping[str, Any]:
        import torch

        return {"input_ids": torch.tensor([window])}

    def _hidden_after(self, given: Mapping[str, Any]) -> Any:
        import torch

        with torch.inference_mode():
            return self._loaded.model.model(**given, use_cache=False).last_hidden_state

    def _head(self, hidden: Any) -> Any:
        import torch

        with torch.inference_mode():
            return self._loaded.model.lm_head(hidden)[0].float()


def _check(model: Any, path: Path) -> None:
    """Raises ConfigError for what does not cache keys and values of heads in each layer."""
    config = model.config
    if getattr(config, "kv_lora_rank", None):
        raise ConfigError("PATH", str(path), "keys and values of heads: latent attention has none")
    wanted = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size")
    missing = [name for name in wanted if getattr(config, name, None) is None]
    if missing or not hasattr(model, "lm_head") or not hasattr(model.model, "layers"):
        expected = "a decoder of layers alike, such as a Llama, Qwen or Mistral model"
        raise ConfigError("PATH", str(path), expected)


def _divergence(p: Any, d: Any) -> Any:
    """KL(p || p') of each row, for p' ~ p e^d: log E_p[e^d] - E_p[d], which is exact.

    With d centred, what cancels is small, so that float32 holds KLs of 1e-7; where e^d leaves
    float32, the KL is so large that the plain form holds it.
    """
    import torch

    centred = d - (p * d).sum(dim=1, keepdim=True)
    fine = torch.log1p((p * torch.expm1(centred)).sum(dim=1))
    if bool(torch.isfinite(fine).all()):
        return fine.clamp(min=0.0)
    plain = torch.logsumexp(torch.log(p) + centred, dim=1)
    return torch.where(torch.isfinite(fine), fine, plain).clamp(min=0.0)
