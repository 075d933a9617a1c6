"""What the pieces of a study make, read as a run is, without a folder, figures or a page."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Made:
    def __init__(self, study):
        pieces = [make() for make in study.pieces().values()]
        self.networks, self.metrics = (
            pa.concat_tables([piece[name] for piece in pieces], promote_options="default")
            for name in ("networks", "metrics")
        )
        self.epochs = np.unique(self.metrics["epoch"].to_numpy())

    def column(self, name):
        return self.networks[name].to_numpy()

    def series(self, metric):
        rows = self.metrics.filter(pc.field("metric") == metric)
        dense = np.full((self.networks.num_rows, len(self.epochs)), np.nan)
        at = np.searchsorted(self.epochs, rows["epoch"].to_numpy())
        dense[rows["network"].to_numpy(), at] = rows["value"].to_numpy()
        return dense
