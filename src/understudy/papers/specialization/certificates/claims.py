"""What a run of certificates decides: Y1, Y2, Y3."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.specialization.certificates.study import AUGMENTED
from understudy.report.style import number
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.specialization.certificates.study import Certificates

EQUAL = 1e-10
"""Within which the recursive rule and backpropagation agree, relative to a layer's largest gradient."""
ENOUGH = 1_000
"""Triples that the claim asks for."""
ELSEWHERE = ("setting", "training")
"""Parts of a run that certify nodes too."""
_DEPTHS, _SLOPES = {2, 3, 4, 5, 6}, 2


class Verdicts(NamedTuple):
    """What theorems said of teacher nodes in one part of a run, a row each."""

    network: np.ndarray
    epoch: np.ndarray
    samples: np.ndarray
    result: np.ndarray
    certified: np.ndarray
    contradicted: np.ndarray
    eps: np.ndarray
    """Guaranteed; NaN where not certified."""
    nearest: np.ndarray

    def some(self, which: np.ndarray) -> Verdicts:
        return Verdicts(*(column[which] for column in self))


def part(run: Run, name: str) -> np.ndarray:
    """The networks of a part of the run."""
    return np.flatnonzero(run.column("part") == name)


def said(run: Run, name: str) -> Verdicts:
    columns = (np.asarray(run.nodes[field].to_numpy(zero_copy_only=False)) for field in Verdicts._fields)
    every = Verdicts(*columns)
    return every.some(np.isin(every.network, part(run, name)))


def by(key: np.ndarray, found: Verdicts, result: str, values: np.ndarray) -> dict[int, np.ndarray]:
    """What one theorem gave, by samples or by epochs."""
    here = found.result == result
    return {int(k): values[here & (key == k)] for k in np.unique(key[here])}


def every_node(found: Verdicts, result: str) -> dict[int, float]:
    """By samples, the share of networks all of whose teacher nodes are certified."""
    here = found.some(found.result == result)
    shares = {}
    for count in np.unique(here.samples):
        now = here.some(here.samples == count)
        whole = [now.certified[now.network == net].all() for net in np.unique(now.network)]
        shares[int(count)] = float(np.mean(whole))
    return shares


def least_samples(found: Verdicts, result: str) -> int | None:
    """The fewest samples from which on every teacher node of every network is certified."""
    least = None
    for count, share in sorted(every_node(found, result).items(), reverse=True):
        if share < 1:
            break
        least = count
    return least


def rule_errors(run: Run) -> np.ndarray:
    """[network, layer] of the part `identities`, NaN above the last layer."""
    return _layers(run, "rule")


def _layers(run: Run, metric: str) -> np.ndarray:
    networks = part(run, "identities")
    depth = int(run.column("layers")[networks].max()) - 1
    return np.stack([run.series(metric, layer)[networks, 0] for layer in range(depth)], axis=1)


def claims(study: Certificates, run: Run) -> list[Claim]:
    """Each decided where the run has what it asks for."""
    found = []
    if set(study.depths) >= _DEPTHS and 0.0 in study.leaky and len(study.leaky) >= _SLOPES:
        found += [_rule(run), _constant(run)]
    if study.triples >= ENOUGH:
        found.append(_never_contradicted(study, run))
        found.append(_every_node(study, run))
    return found


def _rule(run: Run) -> Claim:
    errors = rule_errors(run)
    largest = np.nanmax(errors, axis=1)
    return Claim(
        id="Y1",
        statement="recursive gradient rule: g = D (A f* − B f) at every layer of networks of 2 to 6 layers, ReLU and leaky; "
        "largest difference from backpropagation, relative to the layer's largest gradient (below: each network)",
        paper=f"at most {EQUAL:g}",
        measured=f"{number(float(largest.max()))}; {np.isfinite(errors).sum():,} layers of {len(errors):,} networks",
        n=len(errors),
        holds=bool(largest.max() <= EQUAL),
        values=tuple(largest.tolist()),
        high=EQUAL,
    )


def _constant(run: Run) -> Claim:
    varies = _layers(run, "varies")
    looked = np.isfinite(varies)
    differing = int((varies == 1).sum())
    return Claim(
        id="Y2",
        statement="A and B at both ends of segments that stay inside one linear region of teacher and student, from up to 256 "
        "samples a network: layers at which any entry differs",
        paper="none, exactly",
        measured=f"{differing:,} of {looked.sum():,} layers of {len(varies):,} networks",
        n=len(varies),
        holds=differing == 0 and bool(looked.any(axis=1).all()),
    )


def _never_contradicted(study: Certificates, run: Run) -> Claim:
    found = said(run, "triples")
    given = Counter(found.result[found.certified].tolist())
    elsewhere = {name: said(run, name) for name in ELSEWHERE}
    wrong = int(found.contradicted.sum())
    wrong_elsewhere = sum(int(each.contradicted.sum()) for each in elsewhere.values())
    words = ", ".join(f"{name} {count:,}" for name, count in sorted(given.items()))
    kind = run.column("kind")
    return Claim(
        id="Y3",
        statement="certificates of S0 theorems 1, 3, 4, 5 and S1 theorem 4 that the measured alignment contradicts, over random "
        "and adversarial triples of teacher, student and data, and in every other part of the run",
        paper=f"none, over {ENOUGH:,} triples",
        measured=f"{wrong} of {sum(given.values()):,} certificates ({words}), over {study.triples:,} triples; "
        f"elsewhere {wrong_elsewhere} of {sum(int(each.certified.sum()) for each in elsewhere.values()):,}",
        n=study.triples,
        holds=wrong + wrong_elsewhere == 0 and sum(given.values()) > 0,
        part="no certificate contradicted",
        variants=(
            *(_beside(name, found.some(kind[found.network] == name)) for name in _kinds(run)),
            *(_beside(f"the part {name}", each) for name, each in elsewhere.items()),
        ),
    )


def _kinds(run: Run) -> list[str]:
    return list(dict.fromkeys(run.column("kind")[part(run, "triples")].tolist()))


def _beside(name: str, here: Verdicts) -> Variant:
    wrong, given = int(here.contradicted.sum()), int(here.certified.sum())
    return Variant(name, f"{wrong} of {given:,} certificates, {len(here.network):,} asked for", wrong == 0)


def _every_node(study: Certificates, run: Run) -> Claim:
    found = said(run, "setting")
    least = {name: least_samples(found, name) for name in AUGMENTED}
    words = "; ".join(
        f"{name}: {f'from {count:,} samples' if count else f'not with {max(study.samples):,} samples'}"
        for name, count in least.items()
    )
    wrong = int(found.contradicted.sum())
    return Claim(
        id="Y3",
        statement=f"a setting in which every teacher node is certified, in every seed: 2 inputs N(0, 1), 2 teacher nodes at "
        f"{study.angle:g}°, student {study.multiple:g}×, weights off by {study.distance:g}",
        paper="at least one",
        measured=words,
        n=study.seeds,
        holds=any(least.values()) and wrong == 0,
        part="every node certified",
    )
