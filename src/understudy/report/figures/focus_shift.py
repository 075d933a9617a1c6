"""Students that first approach a strong teacher node and then turn to a weaker one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Num
from matplotlib.figure import Figure

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures._shapes import agree


@dataclass(frozen=True, eq=False)
class FocusShift:
    """Correlation of each student to each teacher node against epoch: rows are networks, columns teacher nodes.

    Tian 2019, fig. 6. A student has the same colour in its whole row; students that did not shift are grey.
    """

    epochs: Num[np.ndarray, "time"]
    correlation: Num[np.ndarray, "net teacher student time"]
    network: Int[np.ndarray, "net"]
    seed: Int[np.ndarray, "net"]
    shifted: Bool[np.ndarray, "net student"]
    """Whether each student left a stronger teacher node for a weaker one."""

    def __post_init__(self) -> None:
        nets, teachers, students = np.shape(self.correlation)[:3]
        agree(
            self,
            {
                "correlation": (nets, teachers, students, len(self.epochs)),
                "network": (nets,),
                "seed": (nets,),
                "shifted": (nets, students),
            },
        )

    def _students(self, net: int) -> list[tuple[int, str | None]]:
        """Students in the order in which they are drawn, with the colours of those that shifted, which come last."""
        shifted = np.flatnonzero(self.shifted[net]).tolist()
        colours = dict(zip(shifted, style.categories(len(shifted)), strict=True))
        return [(s, None) for s in np.flatnonzero(~self.shifted[net]).tolist()] + list(colours.items())

    def paper(self) -> Figure:
        nets, teachers, students, _ = self.correlation.shape
        marker = "o" if len(self.epochs) == 1 else None
        with style.paper():
            figure, axes = style.panels(nets, teachers, height=1.15)
            for i, ax in enumerate(axes):
                net, teacher = divmod(i, teachers)
                for s, colour in self._students(net):
                    line: dict[str, Any] = {"color": colour or style.CONTEXT, "linewidth": 1.15 if colour else 0.4}
                    ax.plot(self.epochs, self.correlation[net, teacher, s], **line, marker=marker)
                if net == 0:
                    ax.set_title(f"teacher-{teacher + 1}")
                if teacher == 0:
                    ax.set_ylabel(f"seed {self.seed[net]}")
                ax.set(ylim=(-0.4, 1.02), yticks=[-0.4, 0, 0.4, 0.8])
                if len(self.epochs) > 1:
                    ax.set_xlim(self.epochs[0], self.epochs[-1])
            style.name_axes(figure, "epoch", "correlation")
            entries: style.Key = [
                (
                    "left a stronger teacher node, ends on a weaker one (one colour per student)",
                    {"color": style.CATEGORIES[0]},
                ),
                ("other students", {"color": style.CONTEXT, "linewidth": 0.6}),
            ]
            style.key(figure, entries if teachers > 1 else [], f"{students} students per network")
            return style.finish(figure)

    def page(self) -> pages.JSON:
        nets, teachers = self.correlation.shape[:2]
        data: list[pages.JSON] = []
        for panel in range(nets * teachers):
            net, teacher = divmod(panel, teachers)
            for s, colour in self._students(net):
                hover = (
                    f"<b>student node {s}</b> of network {self.network[net]} (seed {self.seed[net]})<br>"
                    f"epoch %{{x}}: correlation %{{y:.3f}} with teacher node {teacher}<extra></extra>"
                )
                data.append(
                    pages.scatter(
                        panel,
                        self.epochs,
                        self.correlation[net, teacher, s],
                        "lines" if len(self.epochs) > 1 else "markers",
                        line={"color": colour or style.HAIRLINE, "width": 2 if colour else 0.6},
                        marker={"color": colour or style.HAIRLINE},
                        customdata=pages.identity(np.full(len(self.epochs), self.network[net]), teacher, s),
                        hovertemplate=hover,
                        showlegend=False,
                    )
                )
        layout = pages.layout(
            [f"teacher node {t}" if net == 0 else "" for net in range(nets) for t in range(teachers)],
            teachers,
            y={"range": [-0.4, 1.03], "dtick": 0.4},
            x_title="epoch",
            note="coloured: left a stronger teacher node and ends on a weaker one; grey: the other students",
            x_left=True,
            row_height=150,
            legend=False,
        )
        for net in range(nets):
            pages.axis(layout, "y", net * teachers)["title"] = pages.title(f"correlation, seed {self.seed[net]}")
        return {"data": data, "layout": layout}
