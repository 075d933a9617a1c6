"""What the study `multi-exit` computes: groups of networks in training, their tables and files, and times of exits."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from understudy._cores import cores
from understudy.data.images.labelled_split import split_classes
from understudy.data.images.normalisation import normalise
from understudy.lab.exit_times import time_exits
from understudy.lab.pieces import network_rows, table_rows, unit_table
from understudy.lab.study import PiecesPlan
from understudy.measures.matching import best_students, mean_best_correlation
from understudy.nets.multi_exit.files import save_exits
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.papers.multi_exit.channels import channel_correlations
from understudy.papers.multi_exit.deciding import Decisions, deciding_exits
from understudy.papers.multi_exit.multi_exit.study import SELECTION, ExitMember, MultiExitStudy
from understudy.training.multi_exit.engine import ExitImages
from understudy.training.multi_exit.history import TOPS, ExitHistory
from understudy.training.multi_exit.plan import ExitPlan
from understudy.training.multi_exit.population import TrainedExits, train_exits

if TYPE_CHECKING:
    from understudy.lab.study import Tables, Workplace

MATCHED = 500
"""Images for model selection on which channels are compared."""
EXAMPLES = 8
"""Example images of each deciding exit."""
MODELS = "models"
"""Folder of a run with the trained networks."""
_SETS = ("validation", "test")
_SAVE_EVERY = 5
_PIECE = 500
"""Images that are predicted at once."""
_COPIES = 4
"""Copies of a network's weights on disk: weights and momenta of the training, the best weights, and the file."""
_SPEAK = 15.0
"""Seconds from one line of progress to the next, between measurements of accuracies."""


def network_bytes(grid: Grid) -> int:
    """About the disk space that a network takes during training.

    Args:
        grid: The architecture.
    """
    with torch.device("meta"):
        return 4 * _COPIES * sum(each.numel() for each in MSDNet(grid).parameters())


def train_group(
    study: MultiExitStudy, name: str, members: tuple[ExitMember, ...], first: int, place: Workplace
) -> Tables:
    """Train networks side by side; save each, and return their tables.

    Args:
        study: The study.
        name: Name of the group.
        members: The networks.
        first: Number of the first of them.
        place: Where the state of the training is saved, and the networks.
    """
    stored = study.source().pictures()
    training = study.classes * study.per_class
    count = training + study.test
    pictures = ExitImages(stored.pixels[:count], stored.labels[:count], stored.mean, stored.std)
    plan = study.exit_plan(members)
    trained = train_exits(
        plan,
        pictures,
        training,
        folder=place.state,
        engine=study.chosen_engine,
        device=study.device,
        save_every=_SAVE_EVERY,
        on_epoch=_Speaker(name, plan, place, study.top),
        on_probe=_ChannelProbe(members, pictures, training),
    )
    numbers = np.arange(first, first + len(members), dtype=np.int32)
    with torch.inference_mode():
        decided = {
            i: _decide(trained.module(i).to(study.device), pictures, training)
            for i, each in enumerate(trained.weights)
            if each
        }
    _save_models(place, [study.file(each) for each in members], trained, stored.mean, stored.std, study.source().names)
    tables: Tables = {
        "networks": _networks(study, members, first, trained),
        "metrics": _metrics(numbers, trained),
        "nodes": _nodes(numbers, trained),
        "exits": _exits(numbers, trained),
        "budgets": _budgets(numbers, trained.history),
    }
    if decided:
        tables["decisions"] = _decisions(numbers, decided, pictures.labels[training:])
        tables["examples"] = _examples(numbers, decided, pictures.pixels[training:], pictures.labels[training:])
    return tables


class _Speaker:
    """Reports the progress of a training."""

    def __init__(self, name: str, plan: ExitPlan, place: Workplace, top: int) -> None:
        self._name, self._plan, self._place, self._k = name, plan, place, top
        self._last, self._start, self._first = -math.inf, time.monotonic(), -1

    def __call__(self, epoch: int, history: ExitHistory) -> None:
        if self._first < 0:
            self._first, self._start = epoch, time.monotonic()
        now = time.monotonic()
        if epoch not in self._plan.probes and now - self._last < _SPEAK:
            return self._place.say("")
        self._last = now
        return self._place.say(f"{self._name}: epoch {epoch} of {self._plan.epochs}{self._words(epoch, history, now)}")

    def _words(self, epoch: int, history: ExitHistory, now: float) -> str:
        words = ""
        if epoch in self._plan.probes:
            top = np.nanmean(history.validation[:, self._plan.probes.index(epoch), 0, :, TOPS.index(self._k)], axis=0)
            words += f", validation top-{self._k} {top[0]:.1%} at exit 1 and {top[-1]:.1%} at exit {len(top)}"
        if lost := len(self._plan.networks) - len(history.alive):
            words += f", {lost} of {len(self._plan.networks)} networks diverged"
        if epoch > self._first:
            left = (now - self._start) / (epoch - self._first) * (self._plan.epochs - epoch)
            words += f", about {left / 60:.1f} min left"
        return words


class _ChannelProbe:
    """Correlates the channels of early exits with those of the last one, on images for model selection."""

    def __init__(self, members: Sequence[ExitMember], pictures: ExitImages, training: int) -> None:
        self._pictures = pictures
        self._images: dict[tuple[int, int], Tensor] = {}
        self._keys = [(each.seed, each.images) for each in members]
        for seed, images in self._keys:
            labels = pictures.labels[:training]
            chosen = split_classes(labels, seed, per_class=images, selection=SELECTION).selection[:MATCHED]
            self._images[seed, images] = normalise(pictures.pixels[chosen], pictures.mean, pictures.std)

    def __call__(self, epoch: int, modules: Mapping[int, MSDNet]) -> dict[str, Tensor]:
        found = {}
        for i, network in modules.items():
            x = self._images[self._keys[i]].to(next(network.parameters()).device)
            rho = channel_correlations(network, x)
            best = best_students(rho)
            found[f"partner.{i}"], found[f"correlation.{i}"] = best.partner.int(), best.correlation
            found[f"mean.{i}"] = mean_best_correlation(rho)
            if self._keys[i] == self._keys[0]:  # of the first seed, for the heat maps: exit 1 against the last
                found[f"pairs.{i}"] = rho[0]
        return found


def _decide(network: MSDNet, pictures: ExitImages, training: int) -> Decisions:
    """Decisions on the test images."""
    device = next(network.parameters()).device
    x = pictures.pixels[training:].split(_PIECE)
    parts = [
        deciding_exits(network(normalise(each, pictures.mean, pictures.std).to(device)).float().cpu()) for each in x
    ]
    return Decisions(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _save_models(
    place: Workplace,
    files: Sequence[str],
    trained: TrainedExits,
    mean: Sequence[float],
    std: Sequence[float],
    names: Sequence[str],
) -> None:
    folder = place.run / MODELS
    folder.mkdir(exist_ok=True)
    for unfinished in folder.glob(".*"):  # left by a process that was killed while it wrote
        unfinished.unlink()
    validation = trained.history.at_best(trained.history.validation)[:, 0, :, TOPS.index(1)].tolist()
    for i, (file, weights) in enumerate(zip(files, trained.weights, strict=True)):
        if weights:
            known = {"validation": validation[i], "mean": mean, "std": std, "class_names": names}
            save_exits(trained.module(i), folder / file, **known)


def _networks(study: MultiExitStudy, members: Sequence[ExitMember], first: int, trained: TrainedExits) -> pa.Table:
    """One row per network."""
    steps = study.steps(members[0].images)
    diverged = [(epoch - 1) * steps + step if epoch else None for epoch, step in trained.history.diverged.tolist()]
    best = trained.history.best().tolist()
    return network_rows(
        first,
        [each.seed for each in members],
        diverged,
        images=[each.images for each in members],
        setting=[each.setting.label for each in members],
        loss=[each.setting.loss for each in members],
        temperature=[each.setting.temperature for each in members],
        teachers=[each.setting.teachers for each in members],
        rate=study.rate,
        steps=steps,
        selected_epoch=[trained.plan.probes[at] if at >= 0 else -1 for at in best],
        engine=trained.engine,
        model=[f"{MODELS}/{study.file(each)}" for each in members],
    )


def _metrics(numbers: np.ndarray, trained: TrainedExits) -> pa.Table:
    """Curves over epochs, and at each probe the mean best correlation of the last exit's channels with each exit's."""
    history, plan, parts = trained.history, trained.plan, []
    rates = [[plan.rate(i, epoch) for epoch in range(1, plan.epochs + 1)] for i in range(len(numbers))]
    curves = {name: getattr(history, name).numpy() for name in ("loss", "confidence", "adjusted", "temperature")}
    for name, values in (curves | {"rate": np.array(rates)}).items():
        net, epoch = np.nonzero(np.isfinite(values))
        parts.append(table_rows(numbers[net], epoch + 1, -1, metric=name, value=values[net, epoch].astype(float)))
    for at, i, means in _measures(history, "mean"):
        exits = np.arange(len(means))
        parts.append(table_rows(numbers[i], at, exits, metric="rho_mean", value=means.double().numpy()))
    return pa.concat_tables(parts)


def _nodes(numbers: np.ndarray, trained: TrainedExits) -> pa.Table:
    """Best partner of each channel of the last exit in each early exit, and pairs of channels of the first exit.

    The last exit is the teacher, and the layer the early exit that is the student, counted from 0.
    """
    history, last = trained.history, trained.plan.epochs
    parts = [_node_rows([], [], [], "teacher", [], [], [])]
    for epoch, i, values in _measures(history, "correlation"):
        exits, channels = np.indices(values.shape).reshape(2, -1)
        partner = history.measures[epoch, f"partner.{i}"].flatten().numpy()
        parts.append(_node_rows(numbers[i], epoch, exits, "teacher", channels, partner, values.flatten().numpy()))
    for epoch, i, values in _measures(history, "pairs"):
        if epoch == last:
            teacher, student = np.indices(values.shape).reshape(2, -1)
            parts.append(_node_rows(numbers[i], epoch, 0, "pair", teacher, student, values.flatten().numpy()))
    return pa.concat_tables(parts)


def _node_rows(network: Any, epoch: Any, layer: Any, role: str, teacher: Any, student: Any, rho: Any) -> pa.Table:
    pair = {"teacher": np.asarray(teacher, np.int32), "student": np.asarray(student, np.int32)}
    return table_rows(network, epoch, layer, role=role, **pair, correlation=np.asarray(rho, np.float32))


def _measures(history: ExitHistory, kind: str) -> Iterator[tuple[int, int, Tensor]]:
    """Yield the epoch, the network and what was measured of it, probe by probe."""
    for (epoch, name), values in sorted(history.measures.items(), key=lambda item: item[0]):
        start, _, i = name.partition(".")
        if start == kind:
            yield epoch, int(i), values


def _exits(numbers: np.ndarray, trained: TrainedExits) -> pa.Table:
    """One row per network, probe, set of images and exit."""
    history, probes, best = trained.history, np.array(trained.plan.probes), trained.history.best().numpy()
    parts = []
    for images in _SETS:
        values = getattr(history, images).numpy()  # [network, probe, mode, exit, top]
        net, probe, exit = (each.ravel() for each in np.indices((*values.shape[:2], values.shape[3])))
        there = np.isfinite(values[net, probe, 0, exit, 0])
        net, probe, exit = net[there], probe[there], exit[there]
        columns = {
            f"{word}top{top}": values[net, probe, mode, exit, place]
            for mode, word in enumerate(("", "ensemble_"))
            for place, top in enumerate(TOPS)
        }
        where = {"network": numbers[net], "epoch": probes[probe].astype(np.int32), "set": images, "exit": exit + 1}
        parts.append(unit_table(**where, selected=best[net] == probe, **columns))
    return pa.concat_tables(parts)


def _budgets(numbers: np.ndarray, history: ExitHistory) -> pa.Table:
    """One row per network and number of exits that a budget allows: test accuracies in both modes of prediction."""
    modes = {"budget": history.budget, "anytime": history.anytime}
    columns = {f"{mode}_top{top}": measure(top).numpy().ravel() for mode, measure in modes.items() for top in TOPS}
    net, exit = np.indices(history.budget().shape).reshape(2, -1)
    return unit_table(network=numbers[net], exit=exit + 1, **columns)


def _decisions(numbers: np.ndarray, decided: Mapping[int, Decisions], labels: Tensor) -> pa.Table:
    """One row per network and test image: the deciding exit, and the class."""
    parts = [
        unit_table(
            network=numbers[i],
            image=np.arange(len(labels), dtype=np.int32),
            exit=(each.exit.numpy() + 1).astype(np.int16),
            decided=each.label.numpy().astype(np.int16),
            label=labels.numpy().astype(np.int16),
        )
        for i, each in decided.items()
    ]
    return pa.concat_tables(parts)


def _examples(numbers: np.ndarray, decided: Mapping[int, Decisions], pixels: Tensor, labels: Tensor) -> pa.Table:
    """The first test images that each exit decides correctly: pixels [colour, row, column] as bytes."""
    rows: dict[str, list[Any]] = {name: [] for name in ("network", "exit", "image", "label", "pixels")}
    for i, each in decided.items():
        for exit in each.exit.unique().tolist():
            right = ((each.exit == exit) & (each.label == labels)).nonzero().flatten()
            for image in right[:EXAMPLES].tolist():
                values = int(numbers[i]), exit + 1, image, int(labels[image]), pixels[image].numpy().tobytes()
                for column, value in zip(rows.values(), values, strict=True):
                    column.append(value)
    kinds = (pa.int32(), pa.int16(), pa.int32(), pa.int16(), pa.binary())
    return pa.table({name: pa.array(column, kind) for (name, column), kind in zip(rows.items(), kinds, strict=True)})


def time_networks(study: MultiExitStudy, first: int) -> Tables:
    """Measure the time of each exit of the study's network, and of the network for ImageNet, on one image.

    Args:
        study: The study.
        first: Number of networks before; not used.
    """
    devices = ["cpu"] if study.device == "cpu" else ["cpu", study.device]
    wanted = [
        ("made" if study.on_made else "cifar", study.grid, study.repeats),
        ("imagenet", Grid.imagenet(), study.imagenet_repeats),
    ]
    parts = []
    before = torch.get_num_threads()
    torch.set_num_threads(cores())  # as a user's process has, not the single thread of other pieces
    try:
        for architecture, grid, repeats in wanted:
            for device in devices if repeats else ():
                measured = time_exits(MSDNet(grid), repeats=repeats, device=device)
                for mode in ("budget", "anytime"):
                    mean, std, median = zip(*getattr(measured, mode), strict=True)
                    where = {"architecture": architecture, "device": device, "mode": mode}
                    how = {"repeats": repeats, "threads": cores() if device == "cpu" else 1}
                    exit = np.arange(1, len(mean) + 1)
                    parts.append(unit_table(**where, exit=exit, mean=mean, std=std, median=median, **how))
    finally:
        torch.set_num_threads(before)
    return {"times": pa.concat_tables(parts)}


def plan_groups(study: MultiExitStudy) -> PiecesPlan:
    """Plan the groups of a study: nothing is trained but a few steps on random images, by which the time is estimated.

    Args:
        study: The study.
    """
    rows: list[dict[str, Any]] = []
    total, disk = 0.0, 0
    for members in study.members():
        steps = study.steps(members[0].images)
        engine, seconds = _time_steps(study, members)
        probes = len(study.exit_plan(members).probes)
        tested = study.classes * SELECTION + study.test
        # A forward pass takes about a third of a step.
        whole = seconds * (steps * study.epochs + probes * tested / (3 * study.batch))
        total, disk = total + whole, disk + len(members) * network_bytes(study.grid)
        losses = ", ".join(dict.fromkeys(each.setting.label for each in members))
        rows.append(
            {"images": members[0].images, "networks": len(members), "settings": losses, "engine": engine}
            | {"steps": steps * study.epochs, "ms_per_step": f"{1e3 * seconds:.3g}"}
        )
    networks = sum(row["networks"] for row in rows)
    summary = f"{networks} networks with {len(study.exits)} exits, {study.epochs} epochs, on {study.device}"
    return PiecesPlan(summary, tuple(rows), (f"disk: about {disk / 1e6:,.0f} MB",), total)


def _time_steps(study: MultiExitStudy, members: tuple[ExitMember, ...]) -> tuple[str, float]:
    """Engine that trains a group, and seconds of a step of all its networks."""
    whole = study.exit_plan(members)
    at_once = min(len(members), cores()) if study.device == "cpu" else len(members)
    classes = study.classes
    per_class = 2 + study.batch // classes  # one for model selection, and at least a batch to train on
    plan = replace(
        whole, networks=whole.networks[:at_once], per_class=per_class, selection=1, epochs=3, drops=(), probes=()
    )
    generator = torch.Generator().manual_seed(0)
    count = classes * (per_class + 1)  # one of each class is unlabelled
    shape = (count + 1, study.grid.colours, study.grid.image, study.grid.image)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    pictures = ExitImages(pixels, torch.arange(count + 1) % classes, (0.5,) * 3, (0.25,) * 3)
    at: list[float] = []
    trained = train_exits(
        plan,
        pictures,
        count,
        engine=study.chosen_engine,
        device=study.device,
        on_epoch=lambda epoch, history: at.append(time.monotonic()),
    )
    steps = classes * (per_class - 1) // study.batch
    return trained.engine, (at[1] - at[0]) / steps * len(members) / at_once
