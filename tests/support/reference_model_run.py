"""A reference model's figures as JSON, for tests: python -m tests.support.reference_model_run PATH.

Runs where torch and transformers are, so that it takes from Mileage only what is tested.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from mileage.core.errors import ConfigError
from mileage.engines.reference_model.measured_model import ReferenceModel
from mileage.quant.formats import format_named
from mileage.quant.sweep import slots_of
from mileage.quant.uniform import uniform_mix

__all__ = ["main"]

TEXT = (
    "The cache of keys and values grows with every token that a model reads or writes. Where its "
    "numbers take fewer bits, more requests fit on the same card, and each step reads less. "
)
TOKENS = 96


def main(path: Path) -> None:
    """Print what the model measures on a few sentences."""
    model = ReferenceModel(path, threads=1)
    windows = model.windows(TEXT * 6, TOKENS)[:2]
    slots = slots_of(model.layers)

    def kl(pair: str, layers: range | None = None) -> float:
        k, v = pair.split("/")
        mix = uniform_mix(slots, format_named(k), format_named(v))
        some = {s: f for s, f in mix.items() if layers is None or s.layer in layers}
        return float(np.mean([model.measure(window, some).kl.mean() for window in windows]))

    capture = model.capture(windows)
    plain = {pair: kl(pair) for pair in ("f16/f16", "q8_0/q8_0", "q4_0/q4_0")}
    plain |= {pair: kl(pair) for pair in ("int8-token/e4m3", "e4m3/int8-token")}
    last = range(model.layers - 2, model.layers)
    resumed = kl("q4_0/q4_0", last)
    model._resumes = False
    whole = kl("q4_0/q4_0", last)
    factors = np.ones(model.head_dim, dtype=np.float32)
    factors[[3, 3 + model.head_dim // 2]] = 32.0
    model.scale_keys(factors.tolist())
    stressed = {pair: kl(pair) for pair in ("int8-token/e4m3", "e4m3/int8-token")}
    unchanged = kl("f16/f16")
    model.scale_keys(None)
    try:
        refused = str(model.windows("Too short.", TOKENS))
    except ConfigError as error:
        refused = str(error)
    document = {
        "layers": model.layers,
        "shapes": [list(capture.layers[0].q.shape), list(capture.layers[-1].k.shape)],
        "scale": capture.facts.scale,
        "plain": plain,
        "resumed": resumed,
        "whole": whole,
        "stressed": stressed,
        "unchanged": unchanged,
        "refused": refused,
    }
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
