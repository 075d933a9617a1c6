"""Write what a finished run shows: its claims, its figures, its page."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from understudy._atomic import write_bytes, write_json, write_text
from understudy.lab.recovery import first_epochs, strengths
from understudy.lab.study import Study, TrainingStudy
from understudy.lab.undecided import undecided
from understudy.report.page.document import page
from understudy.report.pool import FigurePool, endings
from understudy.report.story import Number, Story
from understudy.store import Claim, Run
from understudy.store.environment import commit

_OTHER_FILES = ("weights.safetensors", "claims.json", "config.toml")


def write_report(study: Study, run: Run) -> None:
    """Decide the claims of a run, draw its figures and write its page, from its tables alone."""
    trains = isinstance(study, TrainingStudy)
    with FigurePool() as pool:
        write_json(run.folder / "environment.json", run.environment | {"report_commit": commit()})
        run = Run(run.folder)
        story = study.story(run)
        pool.begin([figure.kind for figure in story.figures])
        claims = study.claims(run)
        write_json(run.folder / "claims.json", [claim.as_dict() for claim in claims])
        figures = [f"figures/{f.name}.{end}" for f in story.figures for end in endings(f.kind)]
        content = page(
            title=f"{study.name} — {study.summary}",
            story=Story(story.headline, story.numbers + _numbers(trains, run, claims), story.figures),
            table=who_learned_whom(run) if trains else pa.table({}),
            claims=claims,
            settings=study.options(),
            environment=run.environment,
            command=study.command(),
            files=[*(f"{name}.parquet" for name in run.tables), *_OTHER_FILES, *figures],
            undecided=undecided(study, claims),
        )
        drawn = pool.finish()
    _write_figures(
        run.folder, {f"{f.name}.{end}": d[end] for f, d in zip(story.figures, drawn, strict=True) for end in d}
    )
    write_text(run.folder / "headline.txt", story.headline + "\n")
    write_bytes(run.folder / "report.html", content)


def _write_figures(folder: Path, figures: dict[str, bytes]) -> None:
    """Write files to `figures/`, each complete or not at all."""
    (folder / "figures").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".figures.") as temporary:
        for name, data in figures.items():
            (Path(temporary) / name).write_bytes(data)
        for name in figures:
            (Path(temporary) / name).replace(folder / "figures" / name)


def _numbers(trains: bool, run: Run, claims: list[Claim]) -> tuple[Number, ...]:
    trained = [Number(_time(run.environment["seconds"]), "to train")] if trains else []
    held = Number(f"{sum(c.holds for c in claims)} of {len(claims)}", "claims hold")
    return (*trained, *([held] if claims else []))


def _time(seconds: float) -> str:
    """A duration as one number with its unit."""
    unit, name = next((u, n) for u, n in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= u or u == 1)
    return f"{seconds / unit:.{0 if unit == 1 else 1}f}\u00a0{name}"


def who_learned_whom(run: Run) -> pa.Table:
    """One row per teacher node of every network at the end: its best student, and when it was recovered."""
    layers = sorted(set(run.metrics["layer"].unique().to_pylist()) - {-1})
    rows = pa.concat_tables([_layer_rows(run, layer, layer == layers[-1]) for layer in layers])
    return rows.sort_by([(name, "ascending") for name in ("network", "layer", "teacher")])


def _layer_rows(run: Run, layer: int, top: bool) -> pa.Table:
    """The rows of one layer; only the top layer has strengths, and only the lowest layer angles."""
    epoch = int(run.epochs[-1])
    columns = {
        name: run.matched("teacher", name, layer, epoch) for name in ("student", "correlation", "sin_angle", "bias_gap")
    }
    network, teacher = np.nonzero(~np.isnan(columns["correlation"]))
    strength = strengths(run)[network, teacher] if top else np.full(len(network), np.nan)
    since = first_epochs(run, layer)[network, teacher]

    def numbers(values: np.ndarray) -> pa.Array:
        return pa.array(values.astype(np.float32), from_pandas=True)  # NaN becomes null

    return pa.table(
        {"network": network.astype(np.int32)}
        | {name: run.networks[name].take(pa.array(network)) for name in run.swept}
        | {
            "layer": np.full(len(network), layer + 1, np.int16),  # pages count layers from 1
            "teacher": teacher.astype(np.int32),
            "strength": numbers(strength),
            "student": columns["student"][network, teacher].astype(np.int32),
            **{c: numbers(columns[c][network, teacher]) for c in ("correlation", "sin_angle", "bias_gap")},
            "recovered_at": pa.array([None if np.isinf(s) else int(s) for s in since], pa.int32()),
        }
    )
