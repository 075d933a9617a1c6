"""The study `movie-sentences`: short sentences in codes with M nats of information (Phuong 2021, sec. 4.6.3)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from annotated_types import Ge, Le

from understudy._errors import UserError
from understudy._numbers import number
from understudy.lab.options import (
    Among,
    Count,
    Distinct,
    InputFile,
    NonNegative,
    NonNegatives,
    Positive,
    Share,
    Steps,
    Unsized,
)
from understudy.lab.study import ComputedStudy, Dtype, LongPiece
from understudy.papers.autoencoder.movie_sentences import grammar
from understudy.papers.autoencoder.settings import CARRIED

if TYPE_CHECKING:
    from understudy.papers.autoencoder.movie_sentences.corpus import Corpus
    from understudy.store import Run
    from understudy.store.tables import Table
    from understudy.training.latent.objective import CodeObjective
    from understudy.training.latent.plan import CodeNetwork, CodePlan

Remedy = Literal["none", "vae", "beta", "free-bits"]


class SentenceSetting(NamedTuple):
    """What distinguishes networks besides their seed.

    Attributes:
        label: The setting in words.
        target: M in nats; None without a target.
    """

    label: str
    target: float | None


class SentenceMember(NamedTuple):
    """A network of the study."""

    setting: SentenceSetting
    seed: int

    @property
    def file(self) -> str:
        """Name of the file with the network."""
        words = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.setting.label.replace(" = ", ""))
        return f"{words.replace('β', 'beta').replace('--', '-')}-seed{self.seed}.safetensors"


@dataclass(frozen=True)
class MovieSentences(ComputedStudy):
    """How well sentences are reconstructed from codes that have M nats of information about them.

    Mutual autoencoders learn sentences of at most 8 words: a bidirectional LSTM encodes them, and an LSTM, to which the
    code is fed at every word, decodes them. The gradient of the information is estimated by REINFORCE. All networks are
    trained side by side, for equal numbers of steps.
    """

    name: ClassVar[str] = "movie-sentences"
    summary: ClassVar[str] = "reconstruction, samples and interpolations of sentences whose code has M nats"
    figures: ClassVar[str] = "S3 fig. 4.4, tables 4.1, 4.2"
    decides: ClassVar[str] = "M4"
    gains_from_gpu: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = (
        "batch longest hidden",
        "batch longest embedding",
        "hidden hidden",
        "embedding hidden",
        "latent hidden",
        "information_samples latent",
    )
    table_title: ClassVar[str] = "Sentences"
    table_lead: ClassVar[str] = (
        "Test sentences with their reconstructions: mean, from the mean of q(z|x) with the most probable words; drawn, "
        "from codes drawn from the encoder with words drawn from p(x|z). In place: words reconstructed at their place."
    )

    seeds: Count = 2
    """Number of seeds: each is the initial weights, the order of the sentences, and the noise."""
    first_seed: Steps = 1
    """The first seed. Settings are chosen on seeds from 101 on, and claims decided on seeds from 1 on."""
    dtype: Dtype = "tf32"
    """Precision: float32, or tf32, which lets a GPU round the factors of products to 11 bits."""
    data: InputFile = ""
    """Text file with a sentence a line; by default movie_reviews.txt, or movies/movie_reviews.txt, in the folder
    $UNDERSTUDY_DATA or else ~/.cache/understudy."""
    made: Annotated[int, Ge(0), Le(grammar.SENTENCES)] = 0
    """Number of sentences of a small grammar that are used where --data is not given; 0 to use the file of movie
    reviews."""
    longest: Annotated[int, Ge(1), Le(1_000)] = 8
    """Words of the longest sentences, punctuation included; longer ones are dropped."""
    least: Count = 2
    """How often a word must occur in the training sentences to enter the vocabulary; sentences with other words are
    dropped."""
    words: Annotated[int, Ge(0)] = 0
    """Words of the vocabulary, the most frequent ones; 0 for all that occur often enough."""
    targets: NonNegatives = (0.0, 2.5, 5.0, 7.5, 10.0)
    """M, the information between code and sentence that is asked for, in nats; the paper has 5 and 10."""
    penalty: Positive = 5.0
    """C, the weight of the distance of the estimated information from M; values from 0.1 to 10 work best in the
    paper."""
    remedies: Annotated[tuple[Remedy, ...], Among(get_args(Remedy)), Distinct()] = ("none",)
    """Autoencoders without a target that are trained besides: vae, beta (another weight of the KL term), free-bits (no
    KL term where it is small)."""
    beta: NonNegative = 0.2
    """Weight of the KL term of the remedy beta."""
    free_bits: Positive = 0.25
    """KL divergence of each coordinate of the code, averaged over a batch, below which the remedy free-bits does not
    penalise it, in nats."""
    steps: Steps = 20_000
    """Updates of encoder and decoder, each followed by one of the inference network."""
    batch: Count = 128
    """Sentences per update, drawn with replacement from the training sentences."""
    samples: Count = 128
    """Sentences of the model per update, by which the information is estimated."""
    rate: Positive = 1e-3
    """Learning rate of Adam for encoder and decoder."""
    infer_rate: Positive = 1e-3
    """Learning rate of Adam for the inference network."""
    decayed: Annotated[float, Ge(0), Le(1)] = 0.4
    """Share of the steps, the last ones, over which the learning rates fall linearly to 0."""
    warm_up: Annotated[int, Ge(0), Unsized()] = 4_000
    """Steps over which the weight of the KL term increases from 0."""
    penalty_from: Annotated[int, Ge(0), Unsized()] = 1_000
    """Steps before the distance from M enters the objective."""
    clip: Positive = 5.0
    """Largest norm of the gradient of the evidence lower bound."""
    clip_information: Positive = 10.0
    """Largest norm of the gradient of the information, before it is multiplied by C."""
    resamples: Count = 1
    """Codes that the encoder draws for each sentence, of which one is chosen by its importance weight; remedies always
    draw one."""
    latent: Count = 16
    """Coordinates of the code."""
    embedding: Count = 128
    """Numbers that stand for a word."""
    hidden: Count = 256
    """Nodes of each LSTM."""
    test: Share = 0.1
    """Share of the sentences that are for testing; the others are for training."""
    probes: Count = 40
    """Number of measurements during training."""
    evaluated: Count = 1_000
    """Most training sentences, and most test sentences, that are reconstructed after training."""
    information_samples: Annotated[int, Ge(2)] = 1_000
    """Pairs of code and sentence, drawn from the model, by which its information is measured after training."""
    information_codes: Count = 512
    """Codes by which the probability of each of these sentences is estimated."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=1,
            made=grammar.SENTENCES,
            longest=grammar.LONGEST,
            least=1,
            targets=(0.0, 1.5, 3.0),
            steps=400,
            batch=32,
            samples=64,
            rate=0.01,
            infer_rate=0.01,
            warm_up=400,
            penalty_from=60,
            latent=4,
            embedding=16,
            hidden=48,
            probes=12,
            evaluated=200,
            information_samples=200,
            information_codes=128,
        )

    def validate(self) -> None:
        if self.dtype == "float64":
            raise UserError(f"--dtype must be float32 or tf32, got {self.dtype}: {self.name} trains in float32")
        if "none" in self.remedies and len(self.remedies) > 1:
            raise UserError(f"--remedies takes none alone, got {' '.join(self.remedies)}")
        if self.penalty_from >= self.steps:
            raise UserError(
                f"--penalty-from must be below the number of steps ({self.steps:,}), got {self.penalty_from:,}: the "
                "target would never count"
            )
        if self.made and not self.data:
            self.require_targets(self.corpus())

    def validate_files(self) -> None:
        if self.data:
            self.require_targets(self.corpus())

    def require_targets(self, corpus: Corpus) -> None:
        """Refuse more information than sentences with these words can have, or than the code can carry.

        Args:
            corpus: The sentences.

        Raises:
            UserError: A target above the entropy of words that are drawn at every place by themselves, or above what
                numbers in float32 carry.
        """
        words = "the entropy of sentences whose words are drawn at each place by their frequency in the training "
        limits = {
            f"{words}sentences there": corpus.most,
            f"what a code in float32 with --latent {self.latent} can carry": self.latent * CARRIED,
        }
        reason = min(limits, key=limits.__getitem__)
        if (highest := max(self.targets)) > limits[reason]:
            raise UserError(
                f"--targets must be at most {number(limits[reason], '.2f')} nats, {reason}, got {number(highest, 'g')}"
            )

    def warnings(self) -> tuple[str, ...]:
        corpus = self.corpus()
        if (highest := max(self.targets)) <= corpus.entropy:
            return ()
        return (
            f"--targets {number(highest, 'g')} is above log({corpus.training:,}) = {number(corpus.entropy, '.2f')} "
            "nats, the entropy of the training sentences: only a model that writes other sentences, too, can reach it",
        )

    def config(self) -> dict[str, Any]:
        """What fixes the results of a run; with a hash of the file of movie reviews, if it is used and there."""
        found = super().config()
        if not (self.data or self.made):
            from understudy.papers.autoencoder.movie_sentences.corpus import published_file

            if (file := published_file()) is not None:
                found["contents"] = {"data": hashlib.sha256(file.read_bytes()).hexdigest()}
        return found

    def require_data(self) -> None:
        self.corpus()

    def corpus(self) -> Corpus:
        """The sentences.

        Raises:
            UserError: No file, or one without such sentences.
        """
        from understudy.papers.autoencoder.movie_sentences.corpus import read_corpus

        return read_corpus(self.data, self.made, self.longest, self.least, self.words, self.test)

    @property
    def seed_names(self) -> range:
        """The seeds, from the first on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def settings(self) -> tuple[SentenceSetting, ...]:
        """Settings in increasing order of M, and then the remedies."""
        targets = tuple(SentenceSetting(f"M = {target:g}", target) for target in sorted(self.targets))
        labels = {"vae": "VAE", "beta": f"VAE, β = {self.beta:g}", "free-bits": f"VAE, free bits {self.free_bits:g}"}
        return (*targets, *(SentenceSetting(labels[each], None) for each in self.remedies if each != "none"))

    def members(self) -> tuple[SentenceMember, ...]:
        """All networks, setting by setting."""
        return tuple(SentenceMember(setting, seed) for setting in self.settings() for seed in self.seed_names)

    def code_plan(self) -> CodePlan:
        """What to train."""
        from understudy.training.latent.plan import CodePlan

        return CodePlan(
            tuple(self._network(each) for each in self.members()),
            self.steps,
            batch=self.batch,
            samples=self.samples,
            rates={"encoder": self.rate, "decoder": self.rate, "infer": self.infer_rate},
            decayed=self.decayed,
            probes=tuple(sorted({math.ceil(i * self.steps / self.probes) for i in range(self.probes + 1)})),
        )

    def pieces(self, *runs: Run) -> Iterator[LongPiece]:
        from understudy.papers.autoencoder.movie_sentences.training import network_bytes, train_networks

        corpus = self.corpus()  # raises an error before anything is written
        self.require_targets(corpus)
        members = self.members()
        space = len(members) * network_bytes(self, corpus)
        yield LongPiece("networks", len(members), partial(train_networks, self, members), space)

    def table(self, run: Run) -> Table:
        from understudy.papers.autoencoder.movie_sentences.results import sentence_table

        return sentence_table(run)

    def _network(self, member: SentenceMember) -> CodeNetwork:
        from understudy.training.latent.plan import CodeNetwork

        return CodeNetwork(member.seed, self._objective(member.setting), 1 if self._remedy(member) else self.resamples)

    def _remedy(self, member: SentenceMember) -> bool:
        return member.setting.target is None

    def _objective(self, setting: SentenceSetting) -> CodeObjective:
        from understudy.training.latent.objective import CodeObjective

        return CodeObjective(
            setting.target,
            self.penalty,
            penalty_from=self.penalty_from,
            warm_up=self.warm_up,
            beta=self.beta if "β" in setting.label else 1.0,
            free_bits=self.free_bits if "free bits" in setting.label else 0.0,
            clip=self.clip,
            clip_information=self.clip_information,
        )
