"""A run's networks laid out by the parameters that were swept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.store import Run


@dataclass(frozen=True, eq=False)
class Sweep:
    """Networks by polarity, multiple and seed; −1 where there is none, or where it diverged."""

    run: Run
    polarities: np.ndarray
    multiples: np.ndarray
    seeds: np.ndarray
    network: np.ndarray

    @classmethod
    def of(cls, run: Run) -> Sweep:
        axes = [np.unique(run.column(name)) for name in ("polarity", "multiple", "seed")]
        network = np.full([len(axis) for axis in axes], -1)
        places = [
            np.searchsorted(a, run.column(n)) for a, n in zip(axes, ("polarity", "multiple", "seed"), strict=True)
        ]
        alive = run.networks["diverged_at"].is_null().to_numpy()
        network[tuple(place[alive] for place in places)] = run.column("network")[alive]
        polarities, multiples, seeds = axes
        return cls(run, polarities, multiples, seeds, network)

    def at(self, values: np.ndarray) -> np.ndarray:
        """[network, …] as [polarity, multiple, seed, …], NaN where there is no network."""
        laid = values[self.network].astype(float)
        laid[self.network < 0] = np.nan
        return laid

    def where(self, polarity: float, multiple: float) -> np.ndarray:
        """The networks of one setting; none if it was not swept."""
        p, k = np.flatnonzero(self.polarities == polarity), np.flatnonzero(self.multiples == multiple)
        found = self.network[p[0], k[0]] if len(p) and len(k) else np.array([], int)
        return found[found >= 0]
