"""Nodes with two inputs as points of the plane, and their trajectories."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from understudy._numbers import number, typeset_fields
from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree

_MOST_FRAMES = 90
_MOST_POINTS = 20_000
"""Most points of a trace on the page: with many nodes, fewer times are shown."""
_ROOM = 1.12
"""Half the side of a panel, divided by the largest coordinate in it."""
_TEACHER, _END = style.BLUE, style.VERMILLION


@dataclass(frozen=True, eq=False)
class PlaneTrajectories:
    """Weights of one network at every time, and those of its teacher."""

    title: str
    teacher_weights: Num[np.ndarray, "teacher 2"]
    student_weights: Num[np.ndarray, "time student 2"]
    network: int = -1

    def __post_init__(self) -> None:
        typeset_fields(self, "title")
        agree(self, {"teacher_weights": (len(self.teacher_weights), 2)})
        agree(self, {"student_weights": (*np.shape(self.student_weights)[:2], 2)})

    @property
    def half(self) -> float:
        """Half the side of the square that contains all weights."""
        every = np.abs(self.student_weights)
        every = every[np.isfinite(every)]
        return _ROOM * (float(every.max(initial=0.0)) or 1.0)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Panels of the plane as in Zhou, Ge & Jin 2021, fig. 1: teacher nodes as lines, students as points with their
    trajectories.

    Paper shows the last time; the page is a film over all times.
    """

    planes: tuple[PlaneTrajectories, ...]
    times: Num[np.ndarray, "time"]
    time_name: str = "step"
    note: str = ""
    strokes: bool = False
    """Whether nodes are drawn as vectors from the origin."""

    def __post_init__(self) -> None:
        for plane in self.planes:
            if len(plane.student_weights) != len(self.times):
                raise ValueError(
                    f"Plane {plane.title!r} has {len(plane.student_weights)} times where Trajectories.times has "
                    f"{len(self.times)}: give each plane its weights at all of them"
                )

    def paper(self) -> Figure:
        rows, columns = style.grid(len(self.planes), 3)
        with style.paper():
            width = style.NARROW if columns == 1 else style.WIDE
            height = min(width / columns, 2.6)
            count = len(self.planes)
            figure, axes = style.panels(
                rows, columns, height=height, width=width, count=count, sharex=False, sharey=False
            )
            for i, (plane, ax) in enumerate(zip(self.planes, axes, strict=True)):
                self._draw(ax, plane)
                ax.set(title=plane.title, xlabel="$w_1$")
                if i % columns == 0:
                    ax.set_ylabel("$w_2$")
            entries: list[tuple[str, dict[str, Any]]] = [
                ("teacher", {"color": _TEACHER}),
                ("trajectory of a student", {"color": style.INK, "linewidth": 0.7}),
                ("student" if self.strokes else "its end", {"color": _END, "linestyle": "none", "marker": "o"}),
            ]
            style.key(figure, entries, self.note)
            return style.finish(figure)

    def _draw(self, ax: Axes, plane: PlaneTrajectories) -> None:
        half = plane.half
        for weight in plane.teacher_weights:
            ax.plot(*_across(weight, half).T, color=_TEACHER, linewidth=1.3, zorder=1)
        for k in range(plane.student_weights.shape[1]):
            ax.plot(*plane.student_weights[:, k].T, color=style.INK, linewidth=0.7, zorder=2)
        if self.strokes:
            ax.plot(*_from_origin(plane.student_weights[-1]).T, color=_END, linewidth=1.1, zorder=3)
        ends = plane.student_weights[-1]
        ax.plot(*ends.T, color=_END, linestyle="none", marker="o", markersize=3, markeredgewidth=0, zorder=4)
        tick = float(f"{half / _ROOM * 0.75:.1g}")
        words = [number(value, "g") for value in (-tick, 0, tick)]
        ax.set(xlim=(-half, half), ylim=(-half, half), aspect="equal")
        ax.set_xticks([-tick, 0, tick], words)
        ax.set_yticks([-tick, 0, tick], words)

    def page(self) -> pages.JSON:
        columns = style.grid(len(self.planes), 3)[1]
        times = self._shown()
        names = [_time(value) for value in self.times[times]]
        still: list[pages.JSON] = []
        moving: list[pages.JSON] = []
        for p, plane in enumerate(self.planes):
            still += self._still(p, plane, times)
            moving += self._moving(p, plane)
        layout = self._layout(columns, len(times) > 1)
        frames = [[moved for plane in self.planes for moved in self._moved(plane, t)] for t in times.tolist()]
        page: pages.JSON = {"data": still + moving, "layout": layout}
        return pages.animated(page, names, frames, f"{self.time_name} ", first=len(still))

    def _shown(self) -> np.ndarray:
        """Times shown on the page, including the first and the last."""
        students = max(1, *(plane.student_weights.shape[1] for plane in self.planes))
        most = max(2, min(_MOST_FRAMES, _MOST_POINTS // students - 1))
        return style.evenly(len(self.times), most)

    def _still(self, p: int, plane: PlaneTrajectories, times: np.ndarray) -> list[pages.JSON]:
        traces = []
        for j, weight in enumerate(plane.teacher_weights):
            along = np.linspace(-1, 1, 9)[:, None] * _across(weight, plane.half)[1]  # only points can be hovered
            line = {"color": _TEACHER, "width": 2}
            traces.append(
                pages.scatter(
                    p,
                    *along.T,
                    line=line,
                    **_named("teacher", p == j == 0),
                    customdata=pages.identity(plane.network, np.full(len(along), j), -1),
                    hovertemplate=f"<b>teacher node {j}</b>, {plane.title}<extra></extra>",
                )
            )
        paths = np.concatenate([plane.student_weights[times], np.full((1, *plane.student_weights.shape[1:]), np.nan)])
        line = {"color": style.HAIRLINE, "width": 1.2}
        named = _named("trajectory of a student", p == 0)
        return [*traces, pages.scatter(p, *paths.swapaxes(0, 1).reshape(-1, 2).T, line=line, hoverinfo="skip", **named)]

    def _moving(self, p: int, plane: PlaneTrajectories) -> list[pages.JSON]:
        """Traces that frames move, as they are without a film: at the last time."""
        students = plane.student_weights.shape[1]
        styles = [
            {
                "mode": "markers",
                "name": "student",
                "marker": {"color": _END, "size": 7},
                "showlegend": p == 0,
                "customdata": pages.identity(plane.network, -1, np.arange(students)),
                "hovertemplate": f"<b>student node %{{customdata[2]}}</b>, {plane.title}"
                "<br>w = (%{x:.4~g}, %{y:.4~g})<extra></extra>",
            }
        ]
        if self.strokes:
            line = {"color": _END, "width": 2}
            styles.insert(0, {"mode": "lines", "line": line, "hoverinfo": "skip", "showlegend": False})
        places = self._moved(plane, len(self.times) - 1)
        at = {"type": "scatter", **pages.at(p)}
        return [{**at, **look, **place} for look, place in zip(styles, places, strict=True)]

    def _moved(self, plane: PlaneTrajectories, t: int) -> list[pages.JSON]:
        now = plane.student_weights[t]
        places = [_from_origin(now), now] if self.strokes else [now]
        return [pages.points(*place.T) for place in places]

    def _layout(self, columns: int, moves: bool) -> pages.JSON:
        layout = pages.layout(
            [plane.title for plane in self.planes],
            columns,
            x={"constrain": "domain"},
            y={"constrain": "domain"},
            note=self.note,
            row_height=330,
            column_width=230,
            shared=False,
            below=100 if moves else 0,
        )
        for p, plane in enumerate(self.planes):
            square = {"range": [-plane.half, plane.half]}
            x, y = (pages.axis(layout, letter, p) for letter in "xy")
            x |= square | {"title": pages.title("w₁")}
            y |= square | {"scaleanchor": pages.axes_of(p)[0]} | ({} if p % columns else {"title": pages.title("w₂")})
        return layout


def _across(weight: np.ndarray, half: float) -> np.ndarray:
    """Both ends of the line through the origin along `weight`, within the square."""
    longest = float(np.abs(weight).max())
    tip = np.asarray(weight, dtype=float) * (half / longest if longest > 0 else 0.0)
    return np.stack([-tip, tip])


def _from_origin(ends: np.ndarray) -> np.ndarray:
    """Lines from the origin to each point, separated by gaps."""
    return np.stack([np.zeros_like(ends), ends, np.full_like(ends, np.nan)], axis=1).reshape(-1, 2)


def _named(name: str, shown: bool) -> pages.JSON:
    return {"name": name, "legendgroup": name, "showlegend": shown}


def _time(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else number(value)
