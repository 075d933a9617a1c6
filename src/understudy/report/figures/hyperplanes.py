"""Boundaries of nodes with two inputs, as they move during training."""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from PIL import Image

from understudy._numbers import number
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_FRAMES = 90
_PIXELS = 440


@dataclass(frozen=True, eq=False)
class Hyperplanes:
    """Boundary of each node of a network with two inputs: teacher solid, students dashed, at four epochs.

    Tian 2020, fig. 3, and Tian 2019, fig. 2. A student's line fades as its fan-out norm ‖v‖, printed under the panel,
    goes to zero; the short stroke on a line points to the side where the node is active.
    """

    epochs: Num[np.ndarray, "time"]
    teacher_weights: Num[np.ndarray, "teacher 2"]
    teacher_biases: Num[np.ndarray, "teacher"]
    student_weights: Num[np.ndarray, "time student 2"]
    student_biases: Num[np.ndarray, "time student"]
    fan_out: Num[np.ndarray, "time student"]
    loss: Num[np.ndarray, "time"]
    half_width: float = 0.6
    moments: tuple[int, ...] | None = None
    """Indices of the epochs shown on paper; by default four, spread over the run."""
    network: int = -1

    def __post_init__(self) -> None:
        times, students = np.shape(self.student_biases)
        teachers = len(self.teacher_biases)
        agree(self, {"epochs": (times,), "loss": (times,), "teacher_weights": (teachers, 2)})
        agree(self, {"student_weights": (times, students, 2), "fan_out": (times, students)})

    def _moments(self) -> list[int]:
        if self.moments is not None:
            return [m % len(self.epochs) for m in self.moments]
        return style.evenly(len(self.epochs), 4).tolist()

    def paper(self) -> Figure:
        moments = self._moments()
        rows, columns = style.grid(len(moments), 4)
        with style.paper():
            width = style.NARROW if columns < 3 else style.WIDE
            lines = -(-self.fan_out.shape[1] // 3)
            height = width / columns + 0.12 * lines + 0.06
            figure, axes = style.panels(rows, columns, height=height, width=width, count=len(moments))
            for i, (t, ax) in enumerate(zip(moments, axes, strict=True)):
                self._draw(ax, t)
                ax.set_anchor("N")
                ax.set_title(f"epoch {number(self.epochs[t], 'g')}")
                if i + columns >= len(moments):
                    ax.set_xlabel("$x_1$")
                if i % columns == 0:
                    ax.set_ylabel("$x_2$")
                self._norms(ax, t)
            entries = [("teacher", {"color": style.INK}), ("student", {"linestyle": "--"})]
            style.key(figure, entries, "‖v‖ of each student under its panel")
            return style.finish(figure)

    def film(self, path: Path | IO[bytes]) -> None:
        """Write an animated GIF of the moving boundaries; the same figure gives the same bytes."""
        times = style.evenly(len(self.epochs), _MOST_FRAMES)
        frames: list[Image.Image] = []
        palette = _palette([style.INK, style.SOFT, *style.categories(self.fan_out.shape[1])])
        with style.paper():
            for t in times.tolist():
                figure = Figure(figsize=(style.NARROW, style.NARROW))
                canvas = FigureCanvasAgg(figure)
                figure.set_dpi(_PIXELS / style.NARROW)
                ax = figure.add_axes((0.13, 0.11, 0.83, 0.79))
                self._draw(ax, t, least=0.15)
                loss = f"    loss {style.number(self.loss[t])}" if np.isfinite(self.loss[t]) else ""
                ax.set_title(f"epoch {number(self.epochs[t], 'g')}{loss}", loc="left")
                canvas.draw()  # type: ignore[no-untyped-call]
                pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
                picture = Image.fromarray(pixels[..., :3].copy())
                frames.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))
        pauses = [70] * (len(frames) - 1) + [2500]
        frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0)

    def page(self) -> pages.JSON:
        colours = style.categories(self.fan_out.shape[1])
        times = style.evenly(len(self.epochs), _MOST_FRAMES)
        teachers: list[pages.JSON] = []
        for j in range(len(self.teacher_biases)):
            ends = self._segment(self.teacher_weights[j], float(self.teacher_biases[j]))
            hover = f"<b>teacher node {j}</b>: boundary<extra></extra>"
            line = {"color": style.HAIRLINE, "width": 3}
            teachers.append(self._line(ends, f"teacher {j}", line, hover, (self.network, j, -1)))
        moments = []
        for t in times:
            students = []
            for k, colour in enumerate(colours):
                ends = self._segment(self.student_weights[t, k], float(self.student_biases[t, k]))
                norm = style.number(self.fan_out[t, k])
                hover = f"<b>student node {k}</b>: boundary at epoch {self.epochs[t]:g}, ‖v‖ = {norm}<extra></extra>"
                line = {"color": colour, "width": 2, "dash": "dash"}
                trace = self._line(ends, f"student {k}, ‖v‖ = {norm}", line, hover, (self.network, -1, k))
                students.append({**trace, "opacity": self._opacity(t, k, 0.2)})
            moments.append(students)
        half = float(self.half_width)
        layout = pages.layout(
            [""],
            1,
            x={"range": [-half, half]},
            y={"range": [-half, half], "scaleanchor": "x"},
            y_title="x₂",
            note=f"network {self.network}" if self.network >= 0 else "",
            row_height=420,
            legend=True,
            below=80 if len(times) > 1 else 0,
        )
        layout["legend"] = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
        layout["margin"].update(t=16)
        layout["height"] = 420 + 16 + layout["margin"]["b"]
        layout["xaxis"]["constrain"] = layout["yaxis"]["constrain"] = "domain"
        layout["xaxis"]["constraintoward"], layout["yaxis"]["constraintoward"] = "left", "top"
        layout["xaxis"]["title"] = pages.title("x₁")
        layout["meta"]["minWidth"] = 520
        page: pages.JSON = {"data": teachers + moments[-1], "layout": layout}
        moved = ("x", "y", "name", "opacity", "hovertemplate")
        frames = [[{key: trace[key] for key in moved} for trace in students] for students in moments]
        return pages.animated(page, [f"{e:g}" for e in self.epochs[times]], frames, "epoch ", first=len(teachers))

    def _draw(self, ax: Axes, t: int, least: float = 0.3) -> None:
        half = self.half_width
        for j, weight in enumerate(self.teacher_weights):
            ends = self._segment(weight, float(self.teacher_biases[j]))
            ax.plot(*ends.T, color=style.INK, linewidth=1.3)
            self._stroke(ax, ends, weight, style.INK, 1.0)
        for k, colour in enumerate(style.categories(self.fan_out.shape[1])):
            ends = self._segment(self.student_weights[t, k], float(self.student_biases[t, k]))
            alpha = self._opacity(t, k, least)
            ax.plot(*ends.T, color=colour, linestyle=(0, (4, 2)), linewidth=1.3, alpha=alpha)
            self._stroke(ax, ends, self.student_weights[t, k], colour, alpha)
        ticks = [-round(half * 2 / 3, 3), 0, round(half * 2 / 3, 3)]
        ax.set(xlim=(-half, half), ylim=(-half, half), aspect="equal", xticks=ticks, yticks=ticks)
        words = [number(tick, "g") for tick in ticks]
        ax.set_xticklabels(words)
        ax.set_yticklabels(words)

    def _norms(self, ax: Axes, t: int) -> None:
        colours = style.categories(self.fan_out.shape[1])
        handles = [
            Line2D([], [], color=c, linestyle=(0, (4, 2)), label=f"{self.fan_out[t, k]:.2f}")
            for k, c in enumerate(colours)
        ]
        ax.legend(
            handles=handles,
            loc="upper center",
            bbox_to_anchor=(0.46, 0),
            bbox_transform=ax.transAxes + ScaledTranslation(0, -27 / 72, ax.figure.dpi_scale_trans),
            ncols=3,
            columnspacing=0.7,
            handlelength=1.3,
            handletextpad=0.3,
            labelspacing=0.2,
            borderpad=0.3,
        )

    def _segment(self, weight: np.ndarray, bias: float) -> np.ndarray:
        """Both ends of the line w·x + b = 0 in the square; NaN if it does not cross the square."""
        half, found = self.half_width, []
        a, b = float(weight[0]), float(weight[1])
        for edge in (-half, half):
            if b != 0 and abs(y := -(bias + a * edge) / b) <= half:
                found.append((edge, y))
            if a != 0 and abs(x := -(bias + b * edge) / a) <= half:
                found.append((x, edge))
        if len(found) < 2:
            return np.full((2, 2), np.nan)
        points = np.array(found)
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
        first, second = np.unravel_index(apart.argmax(), apart.shape)
        return points[[first, second]]

    def _opacity(self, t: int, k: int, least: float) -> float:
        """Opacity of a student: the smaller its share of the largest fan-out, the fainter."""
        norm, top = self.fan_out[t, k], np.nanmax(self.fan_out[t], initial=0.0)
        share = norm / top if top > 0 and np.isfinite(norm) else 0.0
        return float(round(least + (1 - least) * min(1.0, 2 * share), 3))

    def _stroke(self, ax: Axes, ends: np.ndarray, weight: np.ndarray, colour: str, alpha: float) -> None:
        size = float(np.linalg.norm(weight))
        if np.isfinite(ends).all() and size > 0:
            middle = ends.mean(axis=0)
            tip = middle + np.asarray(weight) / size * 0.09 * self.half_width
            ax.plot(*np.stack([middle, tip]).T, color=colour, linewidth=1.0, alpha=alpha)

    def _line(
        self, ends: np.ndarray, name: str, line: pages.JSON, hover: str, whose: tuple[int, int, int]
    ) -> pages.JSON:
        # Several points along the line, because only points can be hovered.
        along = ends[0] + np.linspace(0, 1, 9)[:, None] * (ends[1] - ends[0])
        return pages.scatter(0, *along.T, name=name, line=line, customdata=[list(whose)] * 9, hovertemplate=hover)


def _palette(colours: list[str]) -> Image.Image:
    """Palette of a whole film, so that no colour flickers: each colour in steps from white.

    No step is so close to white that the background, which is matched approximately, could be mapped to it.
    """
    steps = np.linspace(1, 0.1, max(2, 255 // len(colours)))[:, None, None]
    blends = 1 - steps * (1 - np.array([to_rgb(c) for c in colours]))
    levels = np.concatenate([np.ones((1, 3)), blends.reshape(-1, 3)])[:256]
    image = Image.new("P", (1, 1))
    image.putpalette((levels * 255).round().astype(np.uint8).tobytes())
    return image
