"""Style of all figures: fonts, sizes, lines and colours; and figures as files."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from understudy import _numbers as numbers

NARROW, WIDE, HIGHEST = 3.3, 6.8, 8.3
"""Widths of a figure in inches: one column of a paper, or both; and the height of all panels on a page."""
SMALL, NORMAL = 7.0, 8.0
"""Font sizes in points: ticks and notes, titles and labels."""

INK, SOFT, CONTEXT, HAIRLINE = "#222222", "#6b6b6b", "#b3b3b3", "#8a8a8a"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
CATEGORIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
"""Okabe and Ito's colours, without yellow, which is invisible on white, and black, which is invisible on dark."""

_MULTIPLES = ((0.5, "#F0C648"), (1.0, ORANGE), (2.0, SKY), (5.0, GREEN), (10.0, BLUE), (100.0, "#003A5C"))
_STRENGTH = (0.2, 0.92)
_LETTER, _HANDLE = 0.058, 0.34
"""Inches that a letter of the key takes, and the line before an entry with the space after it."""
_STILL = 1e-4
"""Share of a figure's width or height by which panels may still move when the layout is final."""

_TICKS: dict[str, Any] = {
    "labelsize": SMALL,
    "color": SOFT,
    "labelcolor": INK,
    "major.width": 0.5,
    "minor.width": 0.4,
    "major.size": 2.5,
    "minor.size": 1.5,
    "major.pad": 2.0,
}
_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": NORMAL,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "axes.titlesize": NORMAL,
    "axes.titlepad": 4.0,
    "axes.labelsize": NORMAL,
    "axes.labelpad": 3.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.formatter.use_mathtext": True,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in _TICKS.items()},
    "lines.linewidth": 1.1,
    "lines.solid_capstyle": "round",
    "lines.markersize": 3.0,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.handlelength": 1.5,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.3,
    "legend.borderaxespad": 0.2,
    "legend.borderpad": 0.0,
    "figure.dpi": 100.0,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "savefig.dpi": 300.0,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "understudy",
}
_NOT_STYLE = ("backend", "interactive", "toolbar", "timezone", "webagg", "tk.", "macosx", "keymap", "datapath")


@contextmanager
def paper() -> Iterator[None]:
    """Apply the style within the block, independent of the user's matplotlib settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", matplotlib.MatplotlibDeprecationWarning)
        settings: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(_NOT_STYLE)} | _RC
        context = matplotlib.rc_context(settings)
        context.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", matplotlib.MatplotlibDeprecationWarning)
            context.__exit__(None, None, None)


def multiple_colour(multiple: float) -> str:
    """Colour of an over-realization: orange for 1×, then sky, green and blue for 2×, 5× and 10×.

    It is the same in every figure, from light to dark, and interpolated in the logarithm between these values.
    """
    at = [math.log(m) for m, _ in _MULTIPLES]
    channels = np.array([to_rgb(c) for _, c in _MULTIPLES])
    where = math.log(multiple) if multiple > 0 else at[0]
    red, green, blue = (float(np.interp(where, at, channels[:, c])) for c in range(3))
    return to_hex((red, green, blue))


def ramp(count: int) -> list[str]:
    """Ordered colours from viridis, dark for the strongest or first, light for the weakest or last."""
    positions = np.linspace(*_STRENGTH, count) if count > 1 else np.array([_STRENGTH[0]])
    return [to_hex(c) for c in matplotlib.colormaps["viridis"](positions)]


def layer_colours(count: int) -> list[str]:
    """Colours of layers, dark for the lowest; the lightest of the ramp, in which text cannot be read, is left out."""
    return ramp(count + 1)[:count]


def categories(count: int) -> list[str]:
    """Colours for categories without an order: Okabe and Ito's first, then lighter and darker shades of them."""
    shades = (0.0, 0.45, -0.4, 0.25, -0.2, 0.6)
    colours = []
    for i in range(count):
        base = np.array(to_rgb(CATEGORIES[i % len(CATEGORIES)]))
        shade = shades[(i // len(CATEGORIES)) % len(shades)]
        red, green, blue = (base + (1 - base) * shade if shade >= 0 else base * (1 + shade)).tolist()
        colours.append(to_hex((red, green, blue)))
    return colours


def number(value: float) -> str:
    """Format a value with two digits: `0.25`, `3.2×10⁻⁷`."""
    if not math.isfinite(value):
        return "–"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return numbers.number(value, ".2f")
    return numbers.number(value, ".1e")


def grid(count: int, most: int) -> tuple[int, int]:
    """Rows and columns for `count` panels with at most `most` in a row."""
    rows = max(1, math.ceil(count / most))
    return rows, math.ceil(count / rows)


def evenly(count: int, most: int) -> Num[np.ndarray, "some"]:
    """Choose at most `most` of `count` indices evenly, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def panels(
    rows: int, columns: int, *, height: float, width: float | None = None, count: int | None = None, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Create a figure of `rows × columns` panels, `height` inches per row, and keep the first `count` of them."""
    width = width or (NARROW if columns == 1 else WIDE)
    figure = Figure(figsize=(width, rows * height + 0.45), layout="constrained")
    FigureCanvasAgg(figure)
    shared = {"sharex": True, "sharey": True, **shared}
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    kept = len(axes) if count is None else count
    for i, spare in enumerate(axes[kept:], start=kept):
        axes[i - columns].tick_params(labelbottom=True)
        spare.remove()
    return figure, axes[:kept]


def name_axes(figure: Figure, x: str, y: str) -> None:
    """Name the axes of all panels together."""
    figure.supylabel(y, fontsize=NORMAL)
    figure.supxlabel(x, fontsize=NORMAL)


def heat_map(ax: Axes, values: np.ndarray, **how: Any) -> AxesImage:
    """Draw numbers from −1 to 1, red to blue."""
    return ax.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest", **how)


def colour_bar(figure: Figure, image: AxesImage, axes: Sequence[Axes], label: str, **how: Any) -> None:
    """Draw the scale of heat maps beside them."""
    bar = figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], fraction=0.03, pad=0.01, **how)
    bar.outline.set_visible(False)
    bar.set_label(label, size=NORMAL)


Key = Sequence[tuple[str, Mapping[str, Any]]]
"""Entries of a key: label and line properties of each."""


def key(figure: Figure, entries: Key, note: str) -> None:
    """Explain lines above the panels, then write a note such as the number of seeds."""
    handles = [Line2D([], [], **{"color": SOFT, **line}, label=label) for label, line in entries]
    if note:
        handles.append(Line2D([], [], linestyle="none", label=note))
    if not handles:
        return
    widths = [_HANDLE + _LETTER * max(map(len, str(handle.get_label()).split("\n"))) for handle in handles]
    fits = (n for n in range(len(handles), 1, -1) if _key_width(widths, n) <= figure.get_figwidth())
    room = {} if entries else {"handlelength": 0.0, "handletextpad": 0.0}
    legend = figure.legend(handles=handles, loc="outside upper left", ncols=next(fits, 1), **room)
    if note:
        legend.get_texts()[-1].set_color(SOFT)


def _key_width(widths: Sequence[float], columns: int) -> float:
    """Inches that a key takes: entries are spread evenly over columns, each as wide as its widest entry."""
    return float(sum(column.max() for column in np.array_split(np.array(widths), columns)))


def spread(wanted: Num[np.ndarray, "label"], gap: float) -> Num[np.ndarray, "label"]:
    """Positions of labels that are at least `gap` apart and as close as possible to the wanted ones."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(order))
    result = np.empty(len(order))
    # After subtracting rank × gap the positions only have to be in order.
    result[order] = isotonic_regression(wanted[order] - steps).x + steps if len(order) else steps
    return result


def finish(figure: Figure) -> Figure:
    """Fix the layout of a figure, so that all saved files are the same."""
    before, engine = np.zeros(0), figure.get_layout_engine()
    for _ in range(4):  # each pass sees the ticks of the pass before; after four nothing moves
        if engine is not None:
            engine.execute(figure)
        now = np.array([axes.get_position(original=True).bounds for axes in figure.axes]).ravel()
        if now.shape == before.shape and np.allclose(now, before, rtol=0, atol=_STILL):
            break
        before = now
    with paper():  # so that None means none; a name would leave a placeholder, for which each file is drawn twice
        figure.set_layout_engine(None)
    return figure


def save(figure: Figure, stem: Path | str) -> tuple[Path, Path]:
    """Write `stem.pdf` and `stem.svg`; the same figure gives the same bytes."""
    stem = Path(stem)
    paths = stem.with_name(stem.name + ".pdf"), stem.with_name(stem.name + ".svg")
    for path, data in zip(paths, files(figure).values(), strict=True):
        path.write_bytes(data)
    return paths


def files(figure: Figure) -> dict[str, bytes]:
    """Render a figure as `pdf` and `svg`; the same figure gives the same bytes."""
    about = {"Creator": "understudy"}
    return {
        "pdf": render(figure, "pdf", about | {"Producer": "matplotlib", "CreationDate": None}),
        "svg": render(figure, "svg", about | {"Date": None}),
    }


def render(figure: Figure, form: str, about: dict[str, Any]) -> bytes:
    """Render a figure in one format, with metadata."""
    file = io.BytesIO()
    with paper():
        figure.savefig(file, format=form, metadata=about)
    return file.getvalue()
