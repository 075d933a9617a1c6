"""What a finished run says: its claims, its figures, its page."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from understudy._atomic import write_bytes, write_json, write_text
from understudy.lab.study import Study
from understudy.report.page.document import page
from understudy.report.pool import FigurePool, endings
from understudy.report.story import Number, Story
from understudy.store import Claim, Run
from understudy.store.environment import commit

_TABLES = ("networks.parquet", "metrics.parquet", "nodes.parquet", "weights.safetensors", "claims.json", "config.toml")


def write_report(study: Study, run: Run) -> None:
    """Write `claims.json`, `figures/` and `report.html` beside the tables."""
    with FigurePool() as artists:
        write_json(run.folder / "environment.json", run.environment | {"told_at": commit()})
        run = Run(run.folder)
        story = study.story(run)
        artists.begin([figure.kind for figure in story.figures])
        claims = study.claims(run)
        write_json(run.folder / "claims.json", [claim.as_dict() for claim in claims])
        content = page(
            title=f"{study.name} — {study.summary}",
            story=Story(story.headline, story.numbers + _numbers(study, run, claims), story.figures),
            table=who_learned_whom(run) if study.trains else pa.table({}),
            claims=claims,
            settings=study.options(),
            environment=run.environment,
            command=study.command(),
            files=[*_TABLES, *(f"figures/{f.name}.{end}" for f in story.figures for end in endings(f.kind))],
        )
        drawn = artists.finish()
    _put(run.folder, {f"{f.name}.{end}": d[end] for f, d in zip(story.figures, drawn, strict=True) for end in d})
    write_text(run.folder / "headline.txt", story.headline + "\n")
    write_bytes(run.folder / "report.html", content)


def _put(folder: Path, figures: dict[str, bytes]) -> None:
    """Into `figures/`; written elsewhere first, so that none is there by half."""
    (folder / "figures").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".figures.") as elsewhere:
        for name, data in figures.items():
            (Path(elsewhere) / name).write_bytes(data)
        for name in figures:
            (Path(elsewhere) / name).replace(folder / "figures" / name)


def _numbers(study: Study, run: Run, claims: list[Claim]) -> tuple[Number, ...]:
    trained = [Number(_time(run.environment["seconds"]), "to train")] if study.trains else []
    held = Number(f"{sum(c.holds for c in claims)} of {len(claims)}", "claims hold")
    return (*trained, *([held] if claims else []))


def _time(seconds: float) -> str:
    """One number with its unit."""
    unit, name = next((u, n) for u, n in ((3600, "h"), (60, "min"), (1, "s")) if seconds >= u or u == 1)
    return f"{seconds / unit:.{0 if unit == 1 else 1}f}\u00a0{name}"


def who_learned_whom(run: Run) -> pa.Table:
    """A row for every teacher node of every network as training ended, with its best student and since when."""
    layers = sorted(set(run.metrics["layer"].unique().to_pylist()) - {-1})
    rows = pa.concat_tables([_of_layer(run, layer, layer == layers[-1]) for layer in layers])
    return rows.sort_by([(name, "ascending") for name in ("network", "layer", "teacher")])


def _of_layer(run: Run, layer: int, top: bool) -> pa.Table:
    """The nodes of one layer; only those of the highest have a strength, and only those of the lowest an angle."""
    from understudy.lab.recovery import first_epochs, strengths

    epoch = int(run.epochs[-1])
    columns = {
        name: run.matched("teacher", name, layer, epoch) for name in ("student", "correlation", "sin_angle", "bias_gap")
    }
    network, teacher = np.nonzero(~np.isnan(columns["correlation"]))
    strength = strengths(run)[network, teacher] if top else np.full(len(network), np.nan)
    since = first_epochs(run, layer)[network, teacher]

    def numbers(values: np.ndarray) -> pa.Array:
        return pa.array(values.astype(np.float32), from_pandas=True)  # what is not there is null

    return pa.table(
        {"network": network.astype(np.int32)}
        | {name: run.networks[name].take(pa.array(network)) for name in run.swept}
        | {
            "layer": np.full(len(network), layer, np.int16),
            "teacher": teacher.astype(np.int32),
            "strength": numbers(strength),
            "student": columns["student"][network, teacher].astype(np.int32),
            **{c: numbers(columns[c][network, teacher]) for c in ("correlation", "sin_angle", "bias_gap")},
            "recovered_at": pa.array([None if np.isinf(s) else int(s) for s in since], pa.int32()),
        }
    )
