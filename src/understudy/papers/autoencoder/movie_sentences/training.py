"""What the study `movie-sentences` computes: trains the networks, saves them, and lets them write sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from understudy._atomic import write_text
from understudy._devices import allow_tf32
from understudy._random import Stream, integers, normal, uniform, words
from understudy.lab.pieces import network_rows, table_rows
from understudy.measures.information.estimate import information
from understudy.measures.reconstruction import Reconstruction, reconstruction
from understudy.nets.latent.initial import initialise
from understudy.nets.latent.model import LatentModel
from understudy.nets.latent.sentences import SentenceDecoder, SentenceEncoder
from understudy.papers.autoencoder.movie_sentences import grammar
from understudy.papers.autoencoder.movie_sentences.corpus import Corpus
from understudy.papers.autoencoder.movie_sentences.study import MovieSentences, SentenceMember
from understudy.papers.autoencoder.movie_sentences.writing import write_sentences
from understudy.papers.autoencoder.training import MODELS, TrainingSpeaker, save_models
from understudy.training.latent.objective import TermWeights, lower_bound
from understudy.training.latent.plan import CodeNetwork
from understudy.training.latent.population import TrainedCodes, train_codes
from understudy.training.parallel import one_thread_each

if TYPE_CHECKING:
    from understudy.lab.study import Tables, Workplace

_COPIES = 4
"""Copies of a network's weights on disk: the weights and two moments in the state, and the file."""
_PROBED = 200
"""Most test sentences that are reconstructed at a probe."""
_SMALL = 64
"""Nodes of an LSTM up to which networks are faster side by side on a CPU: larger ones compete for its cache."""
_PIECE = 250
"""Sentences that are decoded at once."""
_PURPOSES = _NOISE, _CHOICE, _WORDS, _PRIOR, _LEVEL = range(5)


def build(study: MovieSentences, corpus: Corpus, network: CodeNetwork) -> LatentModel:
    """Make a network with its initial weights.

    Args:
        study: The study.
        corpus: The sentences.
        network: Its seed and objective.
    """
    tokens, sizes = len(corpus.vocabulary), (study.embedding, study.hidden, study.latent)
    model = LatentModel(
        SentenceEncoder(tokens, *sizes),
        SentenceDecoder(tokens, *sizes, study.longest),
        SentenceEncoder(tokens, *sizes),
        likelihood="sequence",
        latent=study.latent,
        resamples=network.resamples,
    )
    return initialise(model, network.seed)


def network_bytes(study: MovieSentences, corpus: Corpus) -> int:
    """About the disk space that a network takes during training.

    Args:
        study: The study.
        corpus: The sentences.
    """
    sizes = len(corpus.vocabulary), study.embedding, study.hidden, study.latent
    with torch.device("meta"):
        parts = SentenceEncoder(*sizes), SentenceDecoder(*sizes, study.longest), SentenceEncoder(*sizes)
    return 4 * _COPIES * sum(each.numel() for part in parts for each in part.parameters())


def train_networks(study: MovieSentences, members: Sequence[SentenceMember], first: int, place: Workplace) -> Tables:
    """Train all networks, save them, and return their tables.

    Args:
        study: The study.
        members: The networks.
        first: Number of the first of them.
        place: Where the state of the training is saved, and the networks.
    """
    corpus = study.corpus()
    if study.made and not study.data:
        write_text(place.run / "sentences.txt", "\n".join(grammar.sentences(study.made)) + "\n")
    training = corpus.tokens["training"]

    def draw(seed: int, step: int, count: int) -> Tensor:
        return training[integers(words(seed, Stream.BATCH, step, count), len(training))]

    plan = study.code_plan()
    with one_thread_each(), allow_tf32(study.dtype == "tf32"):
        trained = train_codes(
            plan,
            lambda network: build(study, corpus, network),
            draw,
            folder=place.state,
            device=study.device,
            save_every=max(1, study.steps // 20),
            on_probe=lambda step, models: _probe(corpus, models),
            say=TrainingSpeaker(plan, place),
            side_by_side=study.device != "cpu" or study.hidden <= _SMALL,
        )
    numbers = np.arange(first, first + len(members), dtype=np.int32)
    facts = [{"setting": each.setting.label, "target": each.setting.target, "seed": each.seed} for each in members]
    save_models(trained, place.run, [each.file for each in members], facts, corpus.vocabulary.words)
    tables: Tables = {
        "networks": _networks(study, members, first, trained),
        "metrics": _metrics(numbers, trained),
        "corpus": _corpus(study, corpus),
    }
    alive = [i for i, step in enumerate(trained.history.diverged.tolist()) if not step]
    parts: dict[str, list[pa.Table]] = {}
    with one_thread_each(), torch.inference_mode():
        for done, i in enumerate(alive, 1):
            place.say(f"sentences and information of network {done} of {len(alive)}")
            model, seed = trained.models[i].to(study.device), members[i].seed
            found = {
                "reconstructions": _reconstructions(study, corpus, model, seed),
                "information": _information(study, corpus, model, seed),
                "sentences": write_sentences(corpus, model, seed),
            }
            for name, rows in found.items():
                column = pa.array(np.full(rows.num_rows, numbers[i]))
                parts.setdefault(name, []).append(rows.add_column(0, "network", column))
    return tables | {name: pa.concat_tables(each) for name, each in parts.items()}


def _probe(corpus: Corpus, models: Sequence[LatentModel]) -> dict[str, Tensor]:
    """Evidence lower bound and share of matching words of test sentences, whose codes are at the posterior mean."""
    found: dict[str, list[float]] = {"test_elbo": [], "test_matching": []}
    for model in models:
        x = corpus.tokens["test"][:_PROBED].to(model.device)
        noise = _numbers("normal", 0, _NOISE, 1, len(x), model.latent).to(model.device)
        found["test_elbo"].append(float(lower_bound(model, x, noise, TermWeights(1.0, 0.0, 0.0, 0.0)).elbo))
        z = model.encode(x).mean
        found["test_matching"].append(float(reconstruction(x, _decoder(model).most_likely(z)).matching_share))
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def _reconstructions(study: MovieSentences, corpus: Corpus, model: LatentModel, seed: int) -> pa.Table:
    """One row per set of sentences and kind of code: how much is reconstructed.

    `mean` is the mean of q(z|x) with the most probable words, `sampled` a code drawn from the encoder with words drawn
    from p(x|z), and `prior` a code drawn from the prior with such words: the level of random samples.
    """
    rows = []
    for part in ("training", "test"):
        x = _chosen(corpus.tokens[part], study.evaluated)
        for code in ("mean", "sampled", "prior"):
            pieces = [_compare(few.to(model.device), model, code, seed, at) for at, few in enumerate(x.split(_PIECE))]
            found = Reconstruction(*(torch.cat(each).cpu() for each in zip(*pieces, strict=True)))
            shares = {name: float(getattr(found, f"{name}_share")) for name in ("exact", "matching", "overlap")}
            rows.append({"set": part, "code": code, **shares, "sentences": len(x)})
    return pa.Table.from_pylist(rows)


def _compare(x: Tensor, model: LatentModel, code: str, seed: int, piece: int) -> Reconstruction:
    """Compare sentences with their reconstructions."""
    decoder = _decoder(model)
    if code == "mean":
        return reconstruction(x, decoder.most_likely(model.encode(x).mean))
    step = piece * len(_PURPOSES)
    if code == "prior":
        z = _numbers("normal", seed, step + _PRIOR, len(x), model.latent).to(x.device)
    else:
        noise = _numbers("normal", seed, step + _NOISE, model.resamples, len(x), model.latent).to(x.device)
        z = model.draw_codes(x, noise, _numbers("uniform", seed, step + _CHOICE, len(x)).to(x.device))
    purpose = _LEVEL if code == "prior" else _WORDS
    return reconstruction(x, decoder.generate(z, _numbers("uniform", seed, step + purpose, *x.shape).to(x.device)))


def _information(study: MovieSentences, corpus: Corpus, model: LatentModel, seed: int) -> pa.Table:
    """One row: the information with its interval, and what bounds or approximates it."""
    found = information(
        model,
        corpus.tokens["test"],
        samples=study.information_samples,
        codes=study.information_codes,
        seed=seed,
        device=study.device,
    )
    names = ("value", "low", "high", "method", "bound", "bound_error", "divergence", "active_units")
    return pa.Table.from_pylist([{name: getattr(found, name) for name in names}])


def _chosen(tokens: Tensor, most: int) -> Tensor:
    """All sentences, or a random subset of them, the same for every network."""
    order = words(0, Stream.SUBSET, 1, len(tokens)).argsort(stable=True)
    return tokens[order[:most]]


def _numbers(kind: str, seed: int, step: int, *shape: int) -> Tensor:
    """Random numbers for sentences that are written after training."""
    make = normal if kind == "normal" else uniform
    return make(seed, Stream.EVALUATION, step, math.prod(shape)).float().view(shape)


def _decoder(model: LatentModel) -> SentenceDecoder:
    assert isinstance(model.decoder, SentenceDecoder)
    return model.decoder


def _networks(study: MovieSentences, members: Sequence[SentenceMember], first: int, trained: TrainedCodes) -> pa.Table:
    """One row per network."""
    diverged = trained.history.diverged.tolist()
    return network_rows(
        first,
        [each.seed for each in members],
        [step or None for step in diverged],
        setting=[each.setting.label for each in members],
        target=[math.nan if each.setting.target is None else each.setting.target for each in members],
        penalty=study.penalty,
        resamples=[each.resamples for each in trained.plan.networks],
        steps=study.steps,
        model=["" if lost else f"{MODELS}/{each.file}" for each, lost in zip(members, diverged, strict=True)],
    )


def _metrics(numbers: np.ndarray, trained: TrainedCodes) -> pa.Table:
    """Means over the steps since the probe before, and what was measured at each probe, until networks diverged."""
    history, probes = trained.history, np.array(trained.plan.probes)
    curves: Mapping[str, Tensor] = history.curves | {
        name: torch.stack([history.measures[step, name] for step in trained.plan.probes], 1)
        for name in ("test_elbo", "test_matching")
    }
    diverged = history.diverged.numpy()[:, None]
    before, parts = (diverged == 0) | (probes < diverged), []
    for name, values in curves.items():
        net, at = np.nonzero(np.isfinite(values.numpy()) & before)
        parts.append(table_rows(numbers[net], probes[at], -1, metric=name, value=values.numpy()[net, at]))
    return pa.concat_tables(parts)


def _corpus(study: MovieSentences, corpus: Corpus) -> pa.Table:
    """One row: the sentences that were used, and how many lines were not."""
    facts = {
        "origin": corpus.origin,
        "training": corpus.training,
        "test": len(corpus.tokens["test"]),
        "words": len(corpus.vocabulary.words),
        "longest": study.longest,
        "entropy": corpus.entropy,
    }
    return pa.Table.from_pylist([facts | corpus.dropped._asdict()])
