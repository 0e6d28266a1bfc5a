"""Joint anomalies: points that are unusual as a whole, though no single series need be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mileage.doctor.rca.anomalies import Anomaly, Scored, run_score, runs
from mileage.doctor.rca.series import POINTS_MIN, Floats

__all__ = ["forest_installed", "joint_anomalies"]

_SERIES_MIN: Final = 3
_TREES: Final = 100
_NAMED: Final = 3
_SEEN_RATIO: Final = 0.8
_CLIP: Final = 20.0


def forest_installed() -> bool:
    """Whether scikit-learn is there."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError:
        return False
    return True


def joint_anomalies(of_node: Sequence[Scored], first: int, *, seed: int) -> list[Anomaly]:
    """What an isolation forest (Liu, Ting, Zhou 2008) finds in the series of one node, together.

    It learns from every other point of what is usual; the points between tell how scores of usual
    points are spread, because those that a forest has learnt from are scored too well. Runs count
    as those of one series do. Nothing without scikit-learn, and
    for fewer than three series or too little that is usual.
    """
    seen = [each for each in of_node if float(np.mean(np.isfinite(each.z))) >= _SEEN_RATIO]
    if len(seen) < _SERIES_MIN or not forest_installed():
        return []
    from sklearn.ensemble import IsolationForest

    reference = min(each.reference for each in seen)
    table = np.column_stack([np.clip(each.z, -_CLIP, _CLIP) for each in seen])
    whole: npt.NDArray[np.bool_] = np.all(np.isfinite(table), axis=1)
    places = np.flatnonzero(whole[:reference])
    if len(places) < 2 * POINTS_MIN:
        return []
    forest = IsolationForest(n_estimators=_TREES, random_state=seed, n_jobs=1)
    forest.fit(table[places[::2]])
    score = np.full(len(table), np.nan)
    score[whole] = -forest.score_samples(table[whole])
    usual = score[places[1::2]]
    middle = float(np.median(usual))
    sigma = 1.4826 * float(np.median(np.abs(usual - middle))) + 1e-9
    z: Floats = (score - middle) / sigma
    return [
        _anomaly(seen, found, start, end)
        for start, end in runs(z, first)
        if (found := run_score(z[start:end], 0.0)) is not None
    ]


def _anomaly(seen: Sequence[Scored], score: float, start: int, end: int) -> Anomaly:
    far = {each.series.name: abs(float(np.nanmedian(each.z[start:end]))) for each in seen}
    named = sorted(far, key=lambda name: (-far[name], name))[:_NAMED]
    first = next(each for each in seen if each.series.name == named[0])
    return Anomaly(
        node=first.series.node,
        name=named[0],
        kind=first.series.kind,
        start=start,
        end=end,
        direction="up" if float(np.nanmedian(first.z[start:end])) > 0 else "down",
        score=score,
        actual=float(np.nanmedian(first.values[start:end])),
        expected=float(np.median(first.expected[start:end])),
        method=first.method,
        joint=tuple(named),
    )
