"""Claim M4: reconstruction grows with the information that is asked for."""

import numpy as np

from understudy.claims import Claims, Verdict, every, number, ordered
from understudy.papers.autoencoder.movie_sentences.results import by_setting
from understudy.papers.autoencoder.movie_sentences.study import MovieSentences
from understudy.store import Run

COMPARED = (0.0, 5.0, 10.0)
"""Targets that are compared, in nats (Phuong 2021, fig. 4.4, tables 4.1 and 4.2)."""
NEAR = 0.05
"""Largest difference of M = 0 from random samples, in shares of words."""
_MEASURES = {"exact": "exactly reconstructed sentences", "matching": "words reconstructed at their place"}
_SETS = {"training": "training sentences, as in the paper", "test": "test sentences"}

claims = Claims(
    free="seeds first_seed dtype device data targets remedies beta free_bits probes evaluated information_samples "
    "information_codes",
    least={"seeds": 3},
    when=lambda study: set(COMPARED) <= set(study.targets),
    tuned_on="seeds from 101 on",
)


def _label(target: float) -> str:
    return f"M = {target:g}"


def _cases(study: MovieSentences, run: Run) -> list[dict[str, str]]:
    return [
        {"measure": measure, "set": part, "what": what, "which": which}
        for part, which in _SETS.items()
        for measure, what in _MEASURES.items()
    ]


@claims.claim(
    "M4",
    "{measure}, {set}",
    statement="the share of {what} rises from M = 0 to 5 to 10, with codes at the mean of q(z|x) and the most probable "
    "words, {which}: medians over seeds",
    paper="a simple monotonic relation (fig. 4.4)",
    values_are="medians over seeds at M = 0, 5 and 10",
    cases=_cases,
)
def reconstruction_rises(study: MovieSentences, run: Run, measure: str, set: str, what: str, which: str) -> Verdict:
    shares = by_setting(run, "reconstructions", measure, set=set, code="mean")
    information = by_setting(run, "information", "value")
    names = [_label(target) for target in COMPARED]
    reached = ", ".join(number(_median(information[name]), ".1f") for name in names)
    verdict = ordered(np.stack([shares[name] for name in names]), names, digits=".1%")
    return verdict.also(f"information {reached} nats")


@claims.claim(
    "M4",
    "M = 0, {set}",
    statement="at M = 0, the share of words reconstructed at their place by sampled codes and words is within "
    f"{NEAR:.0%} of that of random samples, {{which}}, for every seed",
    paper="reconstructions of the VAE are random samples from the decoder (sec. 4.6.3)",
    values_are="share with codes of the encoder minus share with codes of the prior",
    cases=lambda study, run: [{"set": part, "which": which} for part, which in _SETS.items()],
)
def no_information_is_random(study: MovieSentences, run: Run, set: str, which: str) -> Verdict:
    sampled, random = (
        by_setting(run, "reconstructions", "matching", set=set, code=code)[_label(0)] for code in ("sampled", "prior")
    )
    words = f"{number(_median(sampled), '.1%')} against {number(_median(random), '.1%')} of random samples (medians)"
    return every(sampled - random, at_least=-NEAR, at_most=NEAR, say=words)


def _median(values: np.ndarray) -> float:
    found = values[np.isfinite(values)]
    return float(np.median(found)) if len(found) else float("nan")
