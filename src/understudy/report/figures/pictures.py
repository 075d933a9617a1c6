"""Rows of small pictures, such as images that a network classifies."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import matplotlib.image
import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure

from understudy._numbers import typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages

_GAP = 2
"""Pixels between pictures."""
_ENLARGED = 1.6
"""Pixels of a screen per pixel of a picture."""
_LOWEST = 180
"""Pixels of a screen that a sheet takes at least."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Rows of pictures of one size, each row with its label."""

    labels: tuple[str, ...]
    rows: tuple[tuple[UInt8[np.ndarray, "colour height width"], ...], ...]
    """Pictures of each row, with three colours."""

    def __post_init__(self) -> None:
        typeset_fields(self, "labels")
        if len(self.labels) != len(self.rows):
            raise ValueError(f"Pictures must have one label per row ({len(self.rows)}), got {len(self.labels)}")
        if len({picture.shape for row in self.rows for picture in row}) != 1:
            raise ValueError("Pictures must have at least one picture, and all of one shape")

    def paper(self) -> Figure:
        image = self._sheet()
        width = style.NARROW
        with style.paper():
            height = min(style.HIGHEST, (width - 0.6) * image.shape[0] / image.shape[1] + 0.1)
            figure, (ax,) = style.panels(1, 1, height=height, width=width)
            ax.imshow(image, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks(self._middles(), self.labels)
            ax.tick_params(length=0)
            ax.spines[:].set_visible(False)
            return style.finish(figure)

    def page(self) -> pages.JSON:
        image = self._sheet()
        coded = io.BytesIO()
        matplotlib.image.imsave(coded, image, format="png")
        source = f"data:image/png;base64,{base64.b64encode(coded.getvalue()).decode()}"
        hidden = {"showticklabels": False, "ticks": "", "showline": False}
        named = {"tickvals": self._middles(), "ticktext": list(self.labels), "ticks": "", "showline": False}
        layout = pages.layout(
            [""],
            1,
            x={**hidden, "range": [-0.5, image.shape[1] - 0.5], "constrain": "domain"},
            y={**named, "range": [image.shape[0] - 0.5, -0.5], "constrain": "domain", "scaleanchor": "x"},
            row_height=max(_LOWEST, round(_ENLARGED * image.shape[0])),
            column_width=round(_ENLARGED * image.shape[1]),
            shared=False,
            legend=False,
        )
        return {"data": [{"type": "image", "source": source, "hoverinfo": "skip", **pages.at(0)}], "layout": layout}

    def _sheet(self) -> UInt8[np.ndarray, "height width 4"]:
        """All pictures on one transparent sheet."""
        colours, high, wide = next(picture for row in self.rows for picture in row).shape
        columns = max(len(row) for row in self.rows)
        shape = len(self.rows) * (high + _GAP) - _GAP, columns * (wide + _GAP) - _GAP, 4
        sheet = np.zeros(shape, np.uint8)
        for i, row in enumerate(self.rows):
            for j, picture in enumerate(row):
                top, left = i * (high + _GAP), j * (wide + _GAP)
                sheet[top : top + high, left : left + wide, :colours] = picture.transpose(1, 2, 0)
                sheet[top : top + high, left : left + wide, 3] = 255
        return sheet

    def _middles(self) -> list[float]:
        """Middle of each row on the sheet, in pixels."""
        high = next(picture for row in self.rows for picture in row).shape[1]
        return [i * (high + _GAP) + (high - 1) / 2 for i in range(len(self.rows))]
