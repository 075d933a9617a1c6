"""Figures and headline of `movie-sentences` (Phuong et al. 2018; Phuong 2021, sec. 4.6.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from understudy._numbers import number
from understudy.papers.autoencoder.movie_sentences.results import by_setting, targets
from understudy.papers.autoencoder.movie_sentences.study import MovieSentences
from understudy.report import style
from understudy.report.figures import Curves, Panel, SentenceList, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_CODES = {"mean": "mean code", "sampled": "drawn code", "prior": "code of the prior"}
_COLOURS = {"mean": style.BLUE, "sampled": style.ORANGE, "prior": style.CONTEXT}
_SETS = {"training": "training sentences", "test": "test sentences"}
_EXAMPLES, _PAIRS, _SAMPLES = 4, 2, 12


def story(study: MovieSentences, run: Run) -> Story:
    """Reconstruction against M, information against M, sentences, and the curves of training."""
    if "sentences" not in run.tables:
        return Story("All networks diverged; lower --rate or --penalty.", _numbers(run), (_training(study, run),))
    figures = (
        _reconstruction(study, run),
        _reconstructed(study, run),
        _information(study, run),
        *_interpolated(study, run),
        _sampled(study, run),
        _training(study, run),
    )
    return Story(_headline(study, run), _numbers(run), figures)


def _headline(study: MovieSentences, run: Run) -> str:
    asked = targets(run)
    low, high = min(asked, key=asked.__getitem__), max(asked, key=asked.__getitem__)
    shares = by_setting(run, "reconstructions", "matching", set="test", code="mean")
    exact = by_setting(run, "reconstructions", "exact", set="training", code="mean")
    reached = by_setting(run, "information", "value")
    placed = {each: number(_median(shares[each]), ".0%") for each in (low, high)}
    nats = {each: number(_median(reached[each]), ".1f") for each in (low, high)}
    first = f"From codes with {high} nats, {placed[high]} of the words of test sentences are reconstructed in place"
    if low != high:
        first += f"; with {low}, {placed[low]}"
    information = f"{nats[high]} nats" if low == high else f"{nats[high]} and {nats[low]} nats"
    exactly = ", ".join(f"{number(_median(exact[each]), '.0%')} at {each}" for each in asked)
    return (
        f"{first}. The codes have {information} of information. Training sentences reconstructed exactly: {exactly} "
        f"(means of q(z|x), most probable words; medians of {counted(study.seeds, 'seed')}, {study.steps:,} steps)."
    )


def _numbers(run: Run) -> tuple[Number, ...]:
    networks, corpus = run.networks.num_rows, run.table("corpus").to_pylist()[0]
    found = [Number(f"{networks:,}", "networks")]
    if lost := int(run.networks["diverged_at"].is_valid().to_numpy().sum()):
        found.append(Number(f"{lost} of {networks}", "diverged"))
    if "information" in run.tables:
        reached = by_setting(run, "information", "value")
        for setting, target in targets(run).items():
            if target == max(targets(run).values()):
                found.append(Number(f"{number(_median(reached[setting]), '.2f')} nats", f"information at {setting}"))
    found.append(
        Number(f"{corpus['training']:,}", f"training sentences, entropy {number(corpus['entropy'], '.2f')} nats")
    )
    found.append(Number(f"{corpus['words']:,}", "words of the vocabulary"))
    return tuple(found)


def _median(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(np.median(there)) if len(there) else float("nan")


def _seeds(study: MovieSentences) -> str:
    return f"n = {counted(study.seeds, 'seed')}"


def _series(
    label: str, asked: dict[str, float], values: dict[str, np.ndarray], numbers: dict[str, np.ndarray], **how: object
) -> Series:
    """Median and range over seeds against the target, with the values of single networks."""
    each = np.array([values[setting] for setting in asked]).T  # [net, target]
    middle, low, high = np.full((3, len(asked)), np.nan)
    for at, column in enumerate(each.T):
        if len(there := column[np.isfinite(column)]):
            middle[at], low[at], high[at] = np.median(there), there.min(), there.max()
    network = np.array([numbers[setting] for setting in asked]).T.astype(int)
    x = np.array(list(asked.values()))
    return Series(label, x, middle, low, high, network=network, network_y=each, **how)  # type: ignore[arg-type]


def _network_numbers(run: Run) -> dict[str, np.ndarray]:
    networks = run.networks.to_pandas()
    return {str(setting): rows["network"].to_numpy() for setting, rows in networks.groupby("setting", sort=False)}


def _reconstruction(study: MovieSentences, run: Run) -> Figure:
    """The thesis' figure: reconstruction grows with M."""
    asked, numbers = targets(run), _network_numbers(run)
    panels = []
    for part, which in _SETS.items():
        for column, name in (("exact", "exact sentences, %"), ("matching", "words in place, %")):
            series = []
            for code, label in _CODES.items():
                values = by_setting(run, "reconstructions", column, set=part, code=code)
                percent = {setting: 100 * each for setting, each in values.items()}
                series.append(_series(label, asked, percent, numbers, colour=_COLOURS[code]))
            panels.append(Panel(which, "M, nats", name, tuple(series)))
    corpus = run.table("corpus").to_pylist()[0]
    caption = (
        f"Sentences reconstructed exactly, and words reconstructed at their place, of up to {study.evaluated:,} "
        "sentences: with the mean of q(z|x) and the most probable words, and with a drawn code, of the encoder or of "
        f"the prior, and drawn words. Median and range over seeds. Sentences of at most {corpus['longest']} words from "
        f"{corpus['origin']}: {corpus['training']:,} for training, {corpus['test']:,} for testing, "
        f"{corpus['words']:,} different words; {_dropped(corpus)}."
    )
    if others := [name for name in by_setting(run, "information", "value") if name not in asked]:
        caption += f" {'; '.join(_remedy_words(run, name) for name in others)}."
    kind = Curves(tuple(panels), note=_seeds(study), columns=2, band="range")
    return Figure("reconstruction", "Reconstruction grows with M", caption, "S3 fig. 4.4", kind)


def _dropped(corpus: dict[str, object]) -> str:
    """What was dropped, in words."""
    reasons = {
        "too_long": "are longer",
        "repeated": "are repetitions",
        "rare_words": "are training sentences with a word that is too rare",
        "unknown_words": "are test sentences with such a word",
        "empty": "are empty",
    }
    words = [f"{corpus[name]:,} {reason}" for name, reason in reasons.items() if corpus[name]]
    return f"of the other lines, {', '.join(words)}" if words else "no line was dropped"


def _remedy_words(run: Run, setting: str) -> str:
    """What a network without a target reaches."""
    information = _median(by_setting(run, "information", "value")[setting])
    share = _median(by_setting(run, "reconstructions", "matching", set="test", code="mean")[setting])
    elbo = _median(_last(run, "test_elbo")[setting])
    return (
        f"{setting}: {number(information, '.2f')} nats, {number(share, '.0%')} of the words of test sentences in "
        f"place, lower bound {number(elbo, '.1f')} nats"
    )


def _last(run: Run, metric: str) -> dict[str, np.ndarray]:
    """Values of a metric at the last probe, by setting."""
    rows = run.metrics.to_pandas()
    rows = rows[(rows["metric"] == metric) & (rows["epoch"] == rows["epoch"].max())].set_index("network")["value"]
    return {setting: rows.reindex(numbers).to_numpy() for setting, numbers in _network_numbers(run).items()}


def _information(study: MovieSentences, run: Run) -> Figure:
    """Information that is reached, with what bounds or approximates it, against M."""
    asked, numbers = targets(run), _network_numbers(run)
    columns = {"value": ("information", style.BLUE), "bound": ("infomax bound", style.VERMILLION)}
    columns["divergence"] = ("KL term", style.HAIRLINE)
    series = [
        _series(label, asked, by_setting(run, "information", column), numbers, colour=colour)
        for column, (label, colour) in columns.items()
    ]
    x = np.array(list(asked.values()))
    series.append(Series("asked for", x, x, colour=style.CONTEXT, dashed=True))
    interval = by_setting(run, "information", "high"), by_setting(run, "information", "low")
    ends = [interval[0][name] - interval[1][name] for name in asked]
    widest = max((float(np.nanmax(each)) for each in ends if np.isfinite(each).any()), default=float("nan"))
    caption = (
        "Information I(z, x) of the model by nested Monte Carlo, whose 95% intervals are at most "
        f"{number(widest, '.2f')} nats wide; the infomax bound, which is never above it; and the KL term of test "
        "sentences. Median and range over seeds."
    )
    kind = Curves((Panel("", "M, nats", "nats", tuple(series)),), note=_seeds(study), band="range")
    return Figure("information", "Information that is reached", caption, "", kind)


def _written(run: Run, kind: str) -> tuple[list[str], dict[str, pd.DataFrame]]:
    """Sentences of one kind of the first network of each setting that has any."""
    rows = run.table("sentences").to_pandas()
    rows = rows[rows["kind"] == kind]
    found = {}
    for setting, numbers in _network_numbers(run).items():
        for network in numbers:
            own = rows[rows["network"] == network]
            if len(own) and setting not in found:
                found[setting] = own.sort_values(["example", "place"])
    return list(found), found


def _slider(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Names of settings for a slider, and what they have in common."""
    if all(name.startswith("M = ") for name in names):
        return tuple(name.removeprefix("M = ") for name in names), "M = "
    return tuple(names), ""


def _note(study: MovieSentences) -> str:
    return f"seed {study.first_seed} of n = {study.seeds}"


def _blocks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    return [block for _, block in rows.groupby("example")]


def _reconstructed(study: MovieSentences, run: Run) -> Figure:
    """Table 4.1, for all M."""
    settings, mean = _written(run, "mean")
    _, drawn = _written(run, "drawn")
    given = tuple(block["given"].iloc[0] for block in _blocks(mean[settings[0]])[:_EXAMPLES])
    lines = tuple(
        tuple(
            (first["text"].iloc[0], *others["text"])
            for first, others in zip(_blocks(mean[s]), _blocks(drawn[s]), strict=True)
        )[:_EXAMPLES]
        for s in settings
    )
    count = len(lines[0][0]) - 1
    slider, prefix = _slider(settings)
    kind = SentenceList(
        slider,
        given,
        ("mean", *["drawn"] * count),
        lines,
        _note(study),
        like=given,
        prefix=prefix,
        blocks_on_paper=2,
    )
    caption = (
        f"Test sentences (grey) and what a network makes of their codes: the most probable words at the mean of "
        f"q(z|x), and {count} times a code drawn from the encoder with words drawn from p(x|z). Words at their "
        "place are bold."
    )
    return Figure("reconstructed-sentences", "Sentence reconstructions", caption, "S3 table 4.1", kind)


def _interpolated(study: MovieSentences, run: Run) -> tuple[Figure, ...]:
    """Table 4.2, for all M."""
    settings, found = _written(run, "interpolation")
    given = tuple(block["given"].iloc[0] for block in _blocks(found[settings[0]])[:_PAIRS])
    lines = tuple(tuple(tuple(block["text"]) for block in _blocks(found[setting])[:_PAIRS]) for setting in settings)
    slider, prefix = _slider(settings)
    names = tuple(number(share, ".2f") for share in np.linspace(0, 1, len(lines[0][0])))
    highest = max((i for i, setting in enumerate(settings) if setting in targets(run)), default=0)
    kind = SentenceList(
        slider, given, names, lines, _note(study), prefix=prefix, blocks_on_paper=2, settings_on_paper=(highest,)
    )
    caption = (
        "The most probable words at codes in equal steps between the posterior means of two test sentences; at the "
        "left, the position on the path, from 0 to 1."
    )
    return (Figure("interpolations", "Sentence interpolation", caption, "S3 table 4.2", kind),)


def _sampled(study: MovieSentences, run: Run) -> Figure:
    """Samples of the models."""
    settings, found = _written(run, "sample")
    lines = tuple((tuple(found[setting]["text"])[:_SAMPLES],) for setting in settings)
    slider, prefix = _slider(settings)
    names = tuple(str(i + 1) for i in range(len(lines[0][0])))
    ends = tuple(dict.fromkeys((0, len(settings) - 1)))
    kind = SentenceList(slider, ("samples",), names, lines, _note(study), prefix=prefix, settings_on_paper=ends)
    caption = "Codes drawn from the prior, and words drawn from p(x|z). The codes are the same for every M."
    return Figure("samples", "Sentences of the model", caption, "", kind)


def _training(study: MovieSentences, run: Run) -> Figure:
    """Curves of training by setting."""
    metrics, numbers = run.metrics.to_pandas(), _network_numbers(run)
    shown = {
        "information": ("infomax bound", "nats"),
        "divergence": ("KL term", "nats"),
        "elbo": ("evidence lower bound, training", "nats"),
        "test_elbo": ("evidence lower bound, test", "nats"),
        "test_matching": ("words in place, test", "%"),
    }
    colours = dict(zip(numbers, style.layer_colours(len(numbers)), strict=True))
    panels = []
    for metric, (title, unit) in shown.items():
        series = []
        for setting, own in numbers.items():
            rows = metrics[(metrics["metric"] == metric) & metrics["network"].isin(own)]
            if len(rows):
                table = rows.pivot(index="epoch", columns="network", values="value") * (100 if unit == "%" else 1)
                low, middle, high = (table.quantile(share, axis=1).to_numpy() for share in (0, 0.5, 1))
                x = table.index.to_numpy(float)
                series.append(Series(setting, x, middle, low, high, colour=colours[setting]))
        panels.append(Panel(title, "step", unit, tuple(series)))
    caption = (
        f"Means over the steps between measurements, and measurements on test sentences; median and range over seeds. "
        f"The weight of the KL term rises over {study.warm_up:,} steps, and the distance from M counts with C = "
        f"{study.penalty:g} from step {study.penalty_from:,} on. The two gradients are clipped separately, at "
        f"{study.clip:g} for the lower bound and {study.clip_information:g} for the information; the encoder draws "
        f"{counted(study.resamples, 'code')} for each sentence."
    )
    kind = Curves(tuple(panels), note=_seeds(study), columns=3, band="range")
    return Figure("training", "During training", caption, "", kind)
