"""Runs of the quantisation benchmark: the search on one text, its mixes judged on another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from mileage.engines.reference_model.measured_model import ReferenceModel
from mileage.measure.bootstrap import bootstrap_mean_ratio
from mileage.quant.effects import Formats
from mileage.quant.fitted_mix import layers_alone
from mileage.quant.formats import GGML_BITS, KvFormat, format_named
from mileage.quant.judged import Judged, judge
from mileage.quant.measured import Mix, Window
from mileage.quant.offered import ANCHORS, IDEAL, fitting
from mileage.quant.search import Search, SearchData, look
from mileage.quant.sweep import slots_of
from mileage.quant.uniform import uniform_mix

__all__ = ["Additivity", "Judgement", "Plan", "Runs", "asymmetry", "spread"]

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION, HELD_OUT = "docs/explanation", "docs/how-to"
PAIRS_TRIED = 2
"""Of the pairs that the estimates put first, so that a wrong estimate does not flatter the mix."""

OUTLIER = 32.0
_OUTLIER_CHANNELS = (3, 17)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much text of what length."""

    window_tokens: int
    calibration: int
    held_out: int
    additive: int
    """Windows of held-out text on which each layer of a mix is measured alone."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """At one budget: what was chosen, and what it is held against, on held-out text."""

    bits_max: float
    bits: float
    mix: Mix
    judged: Judged
    estimate: float
    uniform: dict[str, Judged]
    """The best pairs by estimate, as measured."""

    llama_cpp: tuple[str, Judged] | None
    """The best pair of its types, of those that one would try; None for too few bits."""

    @property
    def ratio(self) -> float:
        """Of the mix's KL to the best uniform pair's."""
        return self.judged.mean / self._best.mean

    @property
    def ratio_ci95(self) -> tuple[float, float] | None:
        """Of the ratio: a bootstrap of windows, each with its two KLs together."""
        arms = ([np.array([kl]) for kl in each.windows] for each in (self._best, self.judged))
        found = bootstrap_mean_ratio(*arms, random=Random(0))
        return None if found is None else (found.low, found.high)

    @property
    def _best(self) -> Judged:
        return min(self.uniform.values(), key=lambda each: each.mean)


@dataclass(frozen=True, slots=True)
class Additivity:
    """Layers measured alone, on the windows of the whole mix."""

    total: float
    whole: float

    @property
    def error(self) -> float:
        """Of the sum, as a share of the whole."""
        return abs(self.total - self.whole) / self.whole


def spread(windows: Sequence[Window], count: int) -> tuple[Window, ...]:
    """So many windows, evenly over the text."""
    count = min(count, len(windows))
    return tuple(windows[int((i + 0.5) * len(windows) / count)] for i in range(count))


def _text(directory: str) -> str:
    pages = sorted((ROOT / directory).glob("*.md"))
    return "\n\n".join(page.read_text(encoding="utf-8") for page in pages)


class Runs:
    """One model, its calibration text and its held-out text."""

    def __init__(
        self, model: ReferenceModel, plan: Plan, *, keep: Path | None, say: Callable[[str], None]
    ) -> None:
        """`keep`: where what was measured in the search is kept, and read from."""
        self.model, self._plan, self._keep, self._say = model, plan, keep, say
        windows = model.windows(_text(CALIBRATION), plan.window_tokens)
        self.calibration = spread(windows, plan.calibration)
        windows = model.windows(_text(HELD_OUT), plan.window_tokens)
        self.held_out = spread(windows, plan.held_out)
        self.model.calibrate(self.calibration)
        self.data = self._data()
        self.search = Search(self.data)

    def _data(self) -> SearchData:
        capture = self.model.capture(self.calibration)
        if self._keep is not None and self._keep.exists():
            kept = msgspec.msgpack.decode(self._keep.read_bytes(), type=SearchData)
            if kept.facts == capture.facts:
                self._say(f"what was measured is read from {self._keep}")
                return kept
        found = look(
            self.model,
            capture,
            self.calibration,
            formats=_both(fitting(IDEAL, self.model.head_dim)),
            anchors=_anchors(self.model.head_dim),
            progress=self._progress,
        )
        if self._keep is not None:
            self._keep.write_bytes(msgspec.msgpack.encode(found))
        return found

    def _progress(self, done: int, of: int) -> None:
        if done == of or done % 30 == 0:
            self._say(f"slots measured alone: {done} of {of}")

    def judgement(self, bits_max: float) -> Judgement:
        """The mix for so many bits against uniform pairs of at most as many."""
        choice = self.search.within_bits(bits_max)
        if choice is None:
            sys.exit(f"{bits_max} bits are too few: at least {self.search.bits_least:.2f}")
        mix = self.search.mix(choice)
        pairs = self.search.pairs(bits_max)
        self._say(f"{bits_max} bits: on held-out text")
        ggml = [p for p in pairs if p.k in GGML_BITS and p.v in GGML_BITS][:1]
        return Judgement(
            bits_max=bits_max,
            bits=self.search.bits_per_value(choice),
            mix=mix,
            judged=judge(self.model, self.held_out, mix),
            estimate=choice.kl,
            uniform={f"{p.k} / {p.v}": self._pair(p.k, p.v) for p in pairs[:PAIRS_TRIED]},
            llama_cpp=next(((f"{p.k} / {p.v}", self._pair(p.k, p.v)) for p in ggml), None),
        )

    def _pair(self, k: str, v: str) -> Judged:
        mix = uniform_mix(self.search.slots, format_named(k), format_named(v))
        return judge(self.model, self.held_out, mix)

    def additivity(self, judgement: Judgement) -> Additivity:
        """Keys and values of each layer alone, added up, against all at once."""
        windows = spread(self.held_out, self._plan.additive)
        alone = layers_alone(self.model, windows, judgement.mix)
        whole = judge(self.model, windows, judgement.mix)
        return Additivity(total=sum(alone), whole=whole.mean)

    def proxy_error(self, judgements: Sequence[Judgement]) -> float:
        """Of all layers' proxy together against their attention's KL; the worst of the mixes."""
        known = {(e.slot, e.format.name): e for e in self.data.effects}
        errors = []
        for each in judgements:
            keys = [known[slot, f.name] for slot, f in each.mix.items() if slot.side == "k"]
            kl = sum(e.attention_kl or 0.0 for e in keys)
            errors.append(abs(sum(e.effect for e in keys) - kl) / kl)
        return max(errors)

    @property
    def bound_violations(self) -> int:
        """Heads of any layer, format and window whose score error is above the bound."""
        return sum(each.bound_violations for each in self.data.effects)


def asymmetry(model: ReferenceModel, windows: Sequence[Window]) -> dict[str, dict[str, float]]:
    """INT8 keys with FP8 values and the reverse: as the model is, and with outlier channels.

    Two pairs of channels that the rotation turns together are `OUTLIER` times as large in the
    keys, and queries as much smaller: the model is the same function.
    """
    int8, e4m3 = format_named("int8-token"), format_named("e4m3")
    slots = slots_of(model.layers)
    factors = np.ones(model.head_dim)
    half = model.head_dim // 2
    for channel in _OUTLIER_CHANNELS:
        factors[[channel, channel + half]] = OUTLIER
    found = {}
    for name, scaled in (("plain", None), ("outliers", factors.astype(np.float32).tolist())):
        model.scale_keys(scaled)
        try:
            found[name] = {
                pair: float(np.mean([model.measure(w, mix).kl.mean() for w in windows]))
                for pair, mix in (
                    ("int8 / e4m3", uniform_mix(slots, int8, e4m3)),
                    ("e4m3 / int8", uniform_mix(slots, e4m3, int8)),
                )
            }
        finally:
            model.scale_keys(None)
    return found


def _both(formats: Sequence[KvFormat]) -> Formats:
    return {"k": formats, "v": formats}


def _anchors(head_dim: int) -> Formats:
    return {side: fitting(names, head_dim) for side, names in ANCHORS.items()}
