"""Runs of studies of latent codes: made by hand from given values, or computed without a report."""

import numpy as np
import pandas as pd
import pyarrow as pa

from support.runs import run_of
from understudy.lab.computing import compute
from understudy.lab.pieces import network_rows, table_rows, unit_table
from understudy.lab.study import named_pieces
from understudy.report.terminal.progress import Silent
from understudy.store import Run
from understudy.store.folder import RunFolder


def made_codes(study, values, *, diverged=lambda member: False, drawn=None):
    """A run of a `CodeStudy` with two probes, whose networks have given final values.

    `values` are the final values of a member by metric, and `drawn` the name and the rows of the table that is drawn
    of every network; a member that `diverged` has neither, and no values at the second probe.
    """
    members, parts, tables = study.members(), [], []
    lost = [diverged(each) for each in members]
    for i, member in enumerate(members):
        for step in (study.steps // 2, study.steps)[: 1 if lost[i] else 2]:
            parts.append(table_rows([i], step, -1, metric=["training information"], value=[0.5]))
        if lost[i]:
            continue
        found = values(member)
        parts.append(
            table_rows([i] * len(found), study.steps, -1, metric=[*found], value=[*map(float, found.values())])
        )
        if drawn is not None and member.seed == study.first_seed:
            tables.append(unit_table(network=np.int32(i), **drawn[1]))
    settings = [each.setting for each in members]
    networks = network_rows(
        0,
        [each.seed for each in members],
        [study.steps if each else None for each in lost],
        setting=[each.label for each in settings],
        method=[each.method for each in settings],
        target=[np.nan if each.target is None else each.target for each in settings],
        resamples=[each.resamples for each in settings],
    )
    found = {"networks": networks, "metrics": pa.concat_tables(parts)}
    if tables:
        found[drawn[0]] = pa.concat_tables(tables)
    return run_of(found, (study.steps // 2, study.steps), {}, study.config())


def compute_run(study, out, watcher=None) -> Run:
    """Compute the pieces of a study in its folder, or those that are missing; nothing is drawn."""
    with RunFolder.open(out, study.config(), lambda: 0) as folder:
        compute(study, named_pieces(study), folder, watcher or Silent())
        return Run(folder.path)


class Interrupting:
    """A watcher that interrupts a run at the first line that has these words."""

    def __init__(self, words: str) -> None:
        self.words = words

    def start(self, *_: object) -> None: ...

    def epoch(self, progress: object) -> None: ...

    def say(self, what: str) -> None:
        if self.words in what:
            raise KeyboardInterrupt


def same_runs(one: Run, other: Run) -> bool:
    """Whether two runs have equal tables, up to the order of rows, and equal files of networks."""
    files = [{path.name: path.read_bytes() for path in (run.folder / "models").iterdir()} for run in (one, other)]
    return files[0] == files[1] and all(
        _rows(one, name).equals(_rows(other, name)) for name in {*one.tables, *other.tables}
    )


def _rows(run: Run, table: str) -> pd.DataFrame:
    found = run.table(table).to_pandas()
    return found.sort_values([*found.columns], ignore_index=True)


def pages(story) -> dict[str, object]:
    """Every figure of a story, drawn for the page."""
    return {figure.name: figure.kind.page() for figure in story.figures}
