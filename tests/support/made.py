"""The tables that the pieces of a study compute, read as a run without a folder, figures or a page."""

import numpy as np
import pyarrow as pa

from support.runs import run_of
from understudy.lab.study import named_pieces


def run_of_pieces(pieces, config=None):
    """A run of tables by name, as pieces return them."""
    pieces = [dict(piece) for piece in pieces]
    kept = [weights for piece in pieces if (weights := piece.pop("weights", None))]
    names = dict.fromkeys(name for piece in pieces for name in piece)
    tables = {
        name: pa.concat_tables([piece[name] for piece in pieces if name in piece], promote_options="default")
        for name in names
    }
    epochs = np.unique(tables["metrics"]["epoch"].to_numpy()) if "metrics" in tables else ()
    weights = {who: [each[who] for each in kept] for who in (kept[0] if kept else ())}
    return run_of(tables, epochs, weights, config)


def computed_run(study):
    """The run of a computed study."""
    return run_of_pieces([compute() for compute in named_pieces(study).values()], study.config())
