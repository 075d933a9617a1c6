"""Claims Y1, Y2 and Y3: the gradient identities, and that certificates are never wrong (Tian 2020)."""

import numpy as np
import pandas as pd

from understudy.claims import Claims, Verdict, every
from understudy.papers.specialization.certificates.study import AUGMENTED, Certificates
from understudy.report.style import number
from understudy.store import Run
from understudy.store.units import read_units

EQUAL = 1e-10
"""Largest difference between the recursive rule and backpropagation, relative to a layer's largest gradient."""
ENOUGH = 1_000
"""Triples that the claim requires."""
_DEPTHS, _SLOPES = {2, 3, 4, 5, 6}, 2
_NOT_BLIND = "the triples and seeds that decide it"


def read_verdicts(run: Run) -> pd.DataFrame:
    """One row per theorem and teacher node: whether it is certified, the guaranteed `eps`, and the measured `nearest`.

    The column `part` is `triples`, `setting` or `training`.
    """
    if "verdicts" in run.tables:
        return run.table("verdicts").to_pandas()
    units = run.networks.select(["part", "seed", "kind", "near"]).to_pandas()  # an older run: triples are networks
    nodes = run.nodes.to_pandas()
    return units.loc[nodes["network"]].reset_index(drop=True).join(nodes)


def every_node(found: pd.DataFrame, result: str) -> pd.Series:
    """Share of seeds in which one theorem certifies all teacher nodes, by the number of samples."""
    own = found[found["result"] == result]
    return own.groupby(["samples", "seed"])["certified"].all().groupby("samples").mean()


def least_samples(found: pd.DataFrame, result: str) -> int | None:
    """The least number of samples from which on every teacher node of every seed is certified."""
    whole = (every_node(found, result) == 1)[::-1].cummin()
    return int(whole.index[whole].min()) if whole.any() else None


def layer_values(run: Run, metric: str) -> np.ndarray:
    """A metric of the part `identities`, [network, layer]; NaN above the last layer."""
    return run.array(metric, "network layer", part="identities").to_numpy()


def _has_every_depth(study: Certificates) -> bool:
    return set(study.depths) >= _DEPTHS and 0.0 in study.leaky and len(study.leaky) >= _SLOPES


claims = Claims(tuned_on="")


@claims.claim(
    "Y1",
    statement="the recursive gradient rule g = D (A f* − B f) agrees with backpropagation at every layer of networks "
    "of 2 to 6 layers, ReLU and leaky ReLU",
    paper=f"at most {EQUAL:g}",
    values_are="largest difference relative to the layer's largest gradient, per network",
    when=_has_every_depth,
)
def recursive_rule(study: Certificates, run: Run) -> Verdict:
    errors = layer_values(run, "rule")
    largest = np.nanmax(errors, axis=1)
    words = f"{number(float(largest.max()))}; {np.isfinite(errors).sum():,} layers of {len(errors):,} networks"
    return every(largest, at_most=EQUAL, say=words)


@claims.claim(
    "Y2",
    statement="A and B are the same at both ends of segments that stay inside one linear region of teacher and student "
    "(segments from up to 256 samples per network)",
    paper="exactly the same",
    when=_has_every_depth,
)
def constant_in_regions(study: Certificates, run: Run) -> Verdict:
    varies = layer_values(run, "varies")
    compared, differing = np.isfinite(varies), int((varies == 1).sum())
    words = f"different in {differing:,} of {compared.sum():,} layers of {len(varies):,} networks"
    return Verdict(differing == 0 and bool(compared.any(axis=1).all()), words, len(varies))


def _contradicted(found: pd.DataFrame) -> Verdict:
    wrong, given = int(found["contradicted"].sum()), int(found["certified"].sum())
    return Verdict(wrong == 0, f"{wrong} of {given:,} certificates, of {len(found):,} tests", len(found))


@claims.claim(
    "Y3",
    "no certificate contradicted",
    statement="the measured alignment contradicts no certificate of theorems 1, 3, 4, 5 of Tian 2020 and theorem 4 of "
    "Tian 2019, over random and adversarial triples of teacher, student and data, and in every other part of the run",
    paper=f"none, over {ENOUGH:,} triples",
    when=lambda study: study.triples >= ENOUGH,
    tuned_on=_NOT_BLIND,
)
def never_contradicted(study: Certificates, run: Run) -> Verdict:
    verdicts = read_verdicts(run)
    found = verdicts[verdicts["part"] == "triples"]
    others = verdicts[verdicts["part"] != "triples"]
    given = found.loc[found["certified"], "result"].value_counts().sort_index()
    wrong, wrong_elsewhere = int(found["contradicted"].sum()), int(others["contradicted"].sum())
    words = ", ".join(f"{name}: {count:,}" for name, count in given.items())
    kinds = dict.fromkeys(read_units(run, "triples", part="triples")["kind"].to_pylist())
    return Verdict(
        wrong + wrong_elsewhere == 0 and bool(given.sum() > 0),
        f"{wrong} of {given.sum():,} certificates ({words}), over {study.triples:,} triples; elsewhere "
        f"{wrong_elsewhere} of {others['certified'].sum():,}",
        study.triples,
    ).with_variants(
        {kind: _contradicted(found[found["kind"] == kind]) for kind in kinds}
        | {f"the part {part}": _contradicted(others[others["part"] == part]) for part in ("setting", "training")}
    )


@claims.claim(
    "Y3",
    "every node certified",
    statement="enough samples certify every teacher node in every seed: 2 inputs N(0, 1), 2 teacher nodes at "
    "{angle:g}°, student {multiple:g}× with weights at a relative distance of {distance:g}",
    paper="at least one setting",
    when=lambda study: study.triples >= ENOUGH,
    tuned_on=_NOT_BLIND,
)
def every_node_certified(study: Certificates, run: Run) -> Verdict:
    verdicts = read_verdicts(run)
    found = verdicts[verdicts["part"] == "setting"]
    least = {name: least_samples(found, name) for name in AUGMENTED}
    words = "; ".join(
        f"{name}: {f'from {count:,} samples' if count else f'not with {max(study.samples):,} samples'}"
        for name, count in least.items()
    )
    return Verdict(any(least.values()) and not found["contradicted"].any(), words, study.seeds)
