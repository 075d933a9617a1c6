"""Distil a ResNet-20 into a ResNet-8 on CIFAR-10 in plain PyTorch, and watch which channels come across, and when.

    python examples/07_watch_a_distillation.py --data FOLDER                       # on a GPU, with the usual settings
    python examples/07_watch_a_distillation.py --data FOLDER --width 4 --epochs 2  # smaller

The same student is trained twice, on the teacher's outputs and the labels, and on the labels alone. Interrupted, the
script continues where it stopped when it is called again with the same options. FOLDER contains the published files of
CIFAR-10, in either layout.
"""

import argparse
import math
import shutil
from contextlib import nullcontext
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

import understudy as us


class Block(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu1, self.relu2, self.shortcut = nn.ReLU(), nn.ReLU(), nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(inner)) + self.shortcut(x))


def resnet(blocks: int, width: int) -> nn.Sequential:
    """A residual network for CIFAR-10 of 6 · blocks + 2 layers."""
    model = nn.Sequential()
    model.add_module("conv", nn.Conv2d(3, width, 3, 1, 1, bias=False))
    model.add_module("bn", nn.BatchNorm2d(width))
    model.add_module("relu", nn.ReLU())
    inputs = width
    for stage in range(3):
        for i in range(blocks):
            outputs = width << stage
            model.add_module(f"stage{stage + 1}-{i + 1}", Block(inputs, outputs, 2 if stage and not i else 1))
            inputs = outputs
    model.add_module("pool", nn.AdaptiveAvgPool2d(1))
    model.add_module("flat", nn.Flatten())
    model.add_module("head", nn.Linear(inputs, 10))
    return model


class Data:
    """CIFAR-10 on the device, augmented anew in every epoch."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.source = us.data.Cifar10(options.data, augment=True, train=options.images, evaluation=options.evaluation)
        self.device, self.batch = options.device, options.batch
        self.steps = options.images // options.batch
        self.labels = self.source.training_labels(0).to(self.device)
        self.test = self.source.evaluating(0, device=self.device).view(-1, 3, 32, 32)
        self.test_labels = self.source.evaluation_labels(0).to(self.device)

    def epoch(self, epoch: int):
        """Yield the batches of an epoch; they depend on its number alone, so that training can be continued."""
        images = self.source.training(0, epoch, device=self.device).view(-1, 3, 32, 32)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).to(self.device)
        for some in order[: self.steps * self.batch].view(self.steps, self.batch):
            yield images[some], self.labels[some]

    @torch.no_grad()
    def accuracy(self, model: nn.Module) -> float:
        """Share of the test images that are classified correctly."""
        model.eval()
        made = torch.cat([model(x) for x in self.test.split(1_000)])
        return float((made.argmax(1) == self.test_labels).float().mean())


def train(name: str, model: nn.Module, data: Data, options: argparse.Namespace, loss_of, teacher=None) -> nn.Module:
    """Train by SGD with momentum and a cosine schedule; watch it where there is a teacher.

    After every epoch a checkpoint is written, from which an interrupted training continues.
    """
    checkpoint, folder = options.out / f"{name}.pt", options.out / name
    model = model.to(options.device)
    optimiser = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    first = 0
    if checkpoint.is_file():
        saved = torch.load(checkpoint, map_location=options.device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        first = saved["epoch"]
    watching = nullcontext()
    if teacher is not None and not (folder / "report.html").is_file():
        if not first:
            shutil.rmtree(folder, ignore_errors=True)  # interrupted before the first checkpoint
        probes = {"every": options.every, "samples": options.samples, "layers": "*relu*"}
        watching = us.watch(teacher, model, data.test, out=folder, resume=first * data.steps, **probes)
    step, total = first * data.steps, options.epochs * data.steps
    with watching as watch:
        for epoch in range(first + 1, options.epochs + 1):
            model.train()
            for x, y in data.epoch(epoch):
                optimiser.param_groups[0]["lr"] = 0.5 * options.lr * (1 + math.cos(math.pi * step / total))
                losses = loss_of(model(x), x, y)
                optimiser.zero_grad()
                losses["loss"].backward()
                optimiser.step()
                step += 1
                if watch is not None:
                    watch.step(**losses)
            print(f"{name}: epoch {epoch} of {options.epochs}, accuracy {data.accuracy(model):.3f}", flush=True)
            state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch}
            torch.save(state, options.out / f".{name}.pt")
            (options.out / f".{name}.pt").replace(checkpoint)
    return model.eval()


def on_labels(outputs: Tensor, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The loss without distillation."""
    return {"loss": cross_entropy(outputs, y)}


def on_teacher(teacher: nn.Module, temperature: float = 4.0, weight: float = 0.9):
    """The loss of Hinton et al. 2015: the teacher's softened outputs, and the labels with a small weight."""

    def losses(outputs: Tensor, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            target = softmax(teacher(x) / temperature, 1)
        soft = temperature**2 * kl_div(log_softmax(outputs / temperature, 1), target, reduction="batchmean")
        hard = cross_entropy(outputs, y)
        return {"loss": weight * soft + (1 - weight) * hard, "soft": soft, "hard": hard}

    return losses


def channels(folder: Path, level: float):
    """Teacher channels of a run: best student channel at the end, and since which step it correlates above a level."""
    nodes = us.Run(folder).nodes.to_pandas()
    nodes = nodes[nodes["role"] == "teacher"].sort_values("step")
    found = nodes.groupby(["teacher_layer", "teacher"], observed=True, sort=False).last()
    above = nodes[nodes["correlation"] > level].groupby(["teacher_layer", "teacher"], observed=True)["step"].min()
    found["since"] = above.reindex(found.index).where(found["correlation"] > level)
    return nodes, found.sort_values(["layer"], kind="stable")


def compare(out: Path, level: float) -> None:
    """Print which channels came across and when, with and without distillation, and draw both."""
    runs = {name: channels(out / name, level) for name in ("distilled", "alone")}
    with_teacher, without = (found for _, found in runs.values())
    print(f"\nTeacher channels with a student channel that correlates above {level}, and their mean best correlation:")
    print(f"{'teacher layer':<20}{'channels':>9}{'distilled':>18}{'alone':>18}   half of these since step")
    for layer in [*with_teacher.index.unique(0), "all layers"]:
        rows_of = [found if layer == "all layers" else found.loc[layer] for found in (with_teacher, without)]
        words = f"{layer:<20}{len(rows_of[0]):>9}"
        for rows in rows_of:
            words += f"{(rows['correlation'] > level).sum():>10} ({rows['correlation'].mean():.2f}) "
        since = [rows["since"].median() for rows in rows_of]
        print(words + "   " + ", ".join("—" if math.isnan(step) else f"{step:,.0f}" for step in since))
    gain = (with_teacher["correlation"] - without["correlation"]).sort_values(ascending=False)
    print("\nChannels that came across by distillation above all:")
    for layer, channel in gain.index[:10]:
        row, other = with_teacher.loc[layer, channel], without.loc[layer, channel]
        print(
            f"  {layer} channel {channel:.0f}: by {row['student_layer']} channel {row['student']:.0f}, correlation "
            f"{row['correlation']:.2f}; without distillation {other['correlation']:.2f}"
        )
    draw(runs, out / "comparison.png")
    print(f"\nfigure: {out / 'comparison.png'}")
    for name in runs:
        facts = us.Run(out / name).environment
        print(f"{name}: overhead {100 * facts['overhead']:.1f}%, report: {out / name / 'report.html'}")


def draw(runs, path: Path) -> None:
    """Draw mean best correlations over steps, and every channel with and without distillation."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for (name, (nodes, _)), style in zip(runs.items(), ("-", "--"), strict=True):
        for stage, colour in (("relu", "0.6"), ("stage1", "C0"), ("stage2", "C1"), ("stage3", "C2")):
            some = nodes[nodes["teacher_layer"].astype(str).str.startswith(stage)]
            mean = some.groupby("step")["correlation"].mean()
            left.plot(mean.index, mean, style, color=colour, label=f"{stage.replace('relu', 'stem')}, {name}")
    left.set(xlabel="optimiser step", ylabel="mean best correlation")
    left.legend(fontsize=7, ncols=2)
    with_teacher, without = (found for _, found in runs.values())
    image = right.scatter(without["correlation"], with_teacher["correlation"], 9, with_teacher["layer"] + 1)
    ends = [min(without["correlation"].min(), with_teacher["correlation"].min()), 1]
    right.plot(ends, ends, ":", color="0.5")
    right.set(xlabel="best correlation, alone", ylabel="best correlation, distilled")
    figure.colorbar(image, label="layer of the teacher")
    figure.savefig(path, dpi=150)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the files of CIFAR-10")
    parser.add_argument("--out", type=Path, default=Path("runs/cifar10-distillation"), help="folder of both runs")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=500, help="optimiser steps between two probes")
    parser.add_argument("--samples", type=int, default=1_000, help="test images of a probe")
    parser.add_argument("--images", type=int, default=50_000, help="training images")
    parser.add_argument("--evaluation", type=int, default=10_000, help="test images")
    parser.add_argument("--level", type=float, default=0.6, help="correlation above which a channel came across")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    data = Data(options)
    torch.manual_seed(1)
    teacher = train("teacher", resnet(3, options.width), data, options, on_labels)
    for name, loss_of in (("distilled", on_teacher(teacher)), ("alone", on_labels)):
        torch.manual_seed(2)  # the same student
        train(name, resnet(1, options.width), data, options, loss_of, teacher)
    compare(options.out, options.level)


if __name__ == "__main__":
    main()
