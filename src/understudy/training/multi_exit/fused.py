"""The engine for GPUs: all networks of a population side by side, in kernels that fuse convolution, BatchNorm and ReLU.

A step is one CUDA graph, in which

- convolutions that read the same features are one convolution, and every kernel computes all networks;
- concatenations are written in place, and BatchNorm and ReLU are applied by whoever reads a convolution's outputs;
- convolutions that do not depend on each other run at the same time;
- one kernel updates all parameters.

Features are stored in bfloat16 by default; weights, momenta, statistics and sums are float32. `plain` is the reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from understudy._errors import UserError
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit import kernels
from understudy.training.multi_exit.engine import Batches, EpochMeasurements, ExitImages
from understudy.training.multi_exit.initial import initial_weights
from understudy.training.multi_exit.layout import Features, JoinedConvolution, Layout
from understudy.training.multi_exit.objectives import ExitObjective

_EPS, _NORM_MOMENTUM = 1e-5, 0.1
_STREAMS = 6
_UPDATED = 1024
"""Parameters that one block updates."""
_ROWS = 64
_PRECISIONS = {
    "bfloat16": (torch.bfloat16, "tf32"),
    "tf32": (torch.float32, "tf32"),
    "float32": (torch.float32, "ieee"),
}


def supports(grid: Grid) -> bool:
    """Whether the fused engine computes this architecture: every one but those with the stem for ImageNet.

    Args:
        grid: The architecture.
    """
    return grid.stem == "plain"


class FusedEngine:
    """A population of networks in training on a GPU; see `MultiExitEngine`.

    Args:
        grid: The architecture.
        seeds: Seed of each network.
        objectives: Objective of each network.
        pictures: The images.
        momentum: Momentum of Nesterov SGD.
        decay: Weight decay.
        device: A GPU.
        precision: "bfloat16": features in bfloat16; "tf32": features in float32, products in TF32; "float32": all in
            float32.

    Raises:
        UserError: An architecture or precision that it does not know.
    """

    def __init__(
        self,
        grid: Grid,
        seeds: Sequence[int],
        objectives: Sequence[ExitObjective],
        pictures: ExitImages,
        *,
        momentum: float = 0.9,
        decay: float = 1e-4,
        device: str | torch.device = "cuda",
        precision: str = "bfloat16",
    ) -> None:
        if not supports(grid):
            raise UserError("networks with the ImageNet stem are trained by the plain engine only", "engine")
        if precision not in _PRECISIONS:
            raise UserError(f"must be one of {', '.join(_PRECISIONS)}, got {precision}", "precision")
        self.grid, self.nets, self.device = grid, len(seeds), torch.device(device)
        self._momentum, self._decay = momentum, decay
        self._dtype, self._dot = _PRECISIONS[precision]
        self._layout = Layout(grid, _ROWS)
        tensors: dict[str, Any] = {"device": self.device, "dtype": torch.float32}
        self._weights = torch.zeros(self.nets, self._layout.parameters, **tensors)
        self._momenta = torch.zeros_like(self._weights)
        self._mean = torch.zeros(self.nets, self._layout.channels, **tensors)
        self._variance = torch.ones_like(self._mean)
        self._temperature = torch.tensor([each.temperature for each in objectives], **tensors)
        self._rates = torch.zeros(self.nets, **tensors)
        for net, seed in enumerate(seeds):
            drawn = initial_weights(grid, seed)
            for name, view in self._tensors(net):
                view.copy_(drawn[name])
        self._objectives = _Objectives(objectives, self.device)
        self._pixels = pictures.pixels.to(self.device).contiguous()
        self._labels = pictures.labels.to(self.device)
        self._colours = torch.tensor([pictures.mean, [1 / s for s in pictures.std]], **tensors)
        self._border = pictures.border
        self._workspaces: dict[int, _BatchWorkspace] = {}

    def train(self, batches: Batches, rates: Sequence[float]) -> EpochMeasurements:
        """Take one step per batch; see `MultiExitEngine.train`.

        Args:
            batches: The batches of each network.
            rates: Learning rate of each network.
        """
        self._rates.copy_(torch.tensor(rates, dtype=torch.float32))
        work = self._workspace(batches.index.shape[2])
        return work.train(batches)

    def predict(self, images: Int[Tensor, "net image"]) -> Float[Tensor, "net exit image class"]:
        """Logits in evaluation mode; see `MultiExitEngine.predict`.

        Args:
            images: Which images each network is given.
        """
        rows = min(self._workspaces, default=_ROWS)
        return self._workspace(rows).predict(images)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        return {name: tensor.cpu().clone() for name, tensor in self._state().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned.

        Args:
            state: Tensors by name.
        """
        for name, tensor in self._state().items():
            tensor.copy_(state[name])

    def modules(self) -> list[MSDNet]:
        """Copies of the networks in evaluation mode."""
        made = []
        for net in range(self.nets):
            with torch.device(self.device):
                module = MSDNet(self.grid)
            held = module.state_dict()
            for name, view in self._tensors(net):
                held[name].copy_(view)
            made.append(module.eval())
        return made

    def _state(self) -> dict[str, Tensor]:
        return {
            "weights": self._weights,
            "momenta": self._momenta,
            "running_mean": self._mean,
            "running_variance": self._variance,
            "temperature": self._temperature,
        }

    def _tensors(self, net: int) -> Iterable[tuple[str, Tensor]]:
        return self._layout.tensors(self._weights[net], self._mean[net], self._variance[net])

    def _workspace(self, rows: int) -> _BatchWorkspace:
        if rows not in self._workspaces:
            self._workspaces[rows] = _BatchWorkspace(self, rows)
        return self._workspaces[rows]


class _Objectives:
    """The objectives of all networks as tensors."""

    def __init__(self, objectives: Sequence[ExitObjective], device: torch.device) -> None:
        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=device)

        self.shares = torch.stack([each.shares for each in objectives]).float().to(device)
        self.learns = self.shares.sum(2)  # 1 where an exit has teachers
        known = torch.zeros(len(objectives), objectives[0].exits)
        for net, each in enumerate(objectives):
            known[net, list(each.all_teachers)] = 1 / len(each.all_teachers)
        self.teachers = known.to(device)
        annealed = [each.limit if each.distils and each.limit is not None else float("inf") for each in objectives]
        self.limit, self.factor = tensor(annealed), tensor([each.factor for each in objectives])

    def confidence(self, probabilities: Float[Tensor, "net exit class row"]) -> Float[Tensor, "net"]:
        """Mean over rows of the largest class probability of the teachers' mean."""
        return torch.einsum("et,etkr->ekr", self.teachers, probabilities).amax(1).mean(1)


class _BatchWorkspace:
    """Memory and CUDA graphs for batches of one size."""

    def __init__(self, engine: FusedEngine, rows: int) -> None:
        self.engine, self.rows, self.nets = engine, rows, engine.nets
        self.layout = layout = Layout(engine.grid, rows)
        device, dtype = engine.device, engine._dtype
        self.interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        sizes = {each: (self.nets, layout.pixels(each), each.row) for each in layout.features}
        if (most := max(p * row for _, p, row in sizes.values())) >= 2**31:
            raise UserError(f"batches of {rows} images need features of {most:,} numbers, more than 2³¹", "batch")
        self.image = torch.zeros(self.nets, layout.pixels(layout.image), layout.image.row, device=device, dtype=dtype)
        # The last features of all exits lie side by side: they are pooled and classified together.
        last = [head[1].target for head in layout.heads]
        pooled = torch.zeros(2, len(last), *sizes[last[0]], device=device, dtype=dtype)
        self.last, self.last_gradient = pooled
        self.values = {each: torch.zeros(size, device=device, dtype=dtype) for each, size in sizes.items()}
        self.gradient = {each: torch.zeros(size, device=device, dtype=dtype) for each, size in sizes.items()}
        for exit, each in enumerate(last):
            self.values[each], self.gradient[each] = self.last[exit], self.last_gradient[exit]
        self.values[layout.image] = self.image
        self.before_norm = {
            each: torch.zeros(self.nets, layout.pixels(each.target), each.gradient_row, device=device, dtype=dtype)
            for each in layout.convolutions
            if each.kernel == 3
        }
        self.added = [self.gradient[each] for each in layout.features if each.shared and each not in last]
        shape = (6, self.nets, layout.channels)
        self.norm = torch.zeros(shape, device=device)
        self.scale, self.shift, self.average, self.rstd, self.slope, self.offset = self.norm
        self.gradients = torch.zeros(self.nets, layout.gradients, device=device)
        self.copy_index = layout.copy_index().to(device)
        self.copy = torch.zeros(self.nets, len(self.copy_index), device=device, dtype=dtype)
        self.table = layout.update_table(_UPDATED).to(device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.sums: dict[tuple[str, int], Tensor] = {}
        self.streams = [] if self.interpreted else [torch.cuda.Stream(device) for _ in range(_STREAMS)]
        self.graphs: dict[tuple[object, ...], tuple[Any, dict[str, Tensor]]] = {}

    # --- epochs

    def train(self, batches: Batches) -> EpochMeasurements:
        """Steps of an epoch."""
        nets, steps, _ = batches.index.shape
        given = self._batch_tensors(batches.index, batches.shift, batches.flip)
        out = {name: torch.zeros(nets, steps) for name in EpochMeasurements._fields}
        key = ("train", steps, batches.labelled, batches.distilled)
        held = self._run(
            key, steps, given, out, lambda held: self._train_step(held, batches.labelled, batches.distilled)
        )
        return EpochMeasurements(**{name: held[name].cpu() for name in EpochMeasurements._fields})

    def predict(self, images: Int[Tensor, "net image"]) -> Float[Tensor, "net exit image class"]:
        """Logits of images, batch by batch."""
        nets, count = images.shape
        steps = -(-count // self.rows)
        index = torch.zeros(nets, steps * self.rows, dtype=torch.int64)
        index[:, :count] = images.cpu()
        index = index.view(nets, steps, self.rows)
        shift = torch.full((*index.shape, 2), self.engine._border)
        given = self._batch_tensors(index, shift, torch.zeros_like(index))
        exits, classes = len(self.layout.heads), self.engine.grid.classes
        out = {"logits": torch.zeros(nets, steps, exits, classes, self.rows)}
        held = self._run(("predict", steps), steps, given, out, self._predict_step)
        logits = held["logits"].permute(0, 2, 1, 4, 3).reshape(nets, exits, steps * self.rows, classes)
        return logits[:, :, :count].cpu()

    def _batch_tensors(self, index: Tensor, shift: Tensor, flip: Tensor) -> dict[str, Tensor]:
        return {"index": index.int(), "shift": shift.int(), "flip": flip.to(torch.uint8)}

    def _run(
        self,
        key: tuple[object, ...],
        steps: int,
        given: dict[str, Tensor],
        out: dict[str, Tensor],
        step: Callable[[dict[str, Tensor]], None],
    ) -> dict[str, Tensor]:
        """Take steps, by replays of a graph that is captured at the first call."""
        device = self.engine.device
        if key not in self.graphs:
            held = {name: tensor.to(device).contiguous() for name, tensor in (given | out).items()}
            self.step.zero_()  # an epoch before may have had more steps
            graph = None if self.interpreted else self._capture(held, step)
            self.graphs[key] = graph, held
        graph, held = self.graphs[key]
        for name, tensor in given.items():
            held[name].copy_(tensor)
        self.step.zero_()
        for _ in range(steps):
            if graph is None:
                step(held)
            else:
                graph.replay()
        return held

    def _capture(self, held: dict[str, Tensor], step: Callable[[dict[str, Tensor]], None]) -> Any:
        before = self.engine.state()
        torch.cuda.synchronize(self.engine.device)
        side = torch.cuda.Stream(self.engine.device)
        with torch.cuda.stream(side):
            step(held)  # compiles the kernels, and allocates what they share
        torch.cuda.synchronize(self.engine.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            step(held)
        torch.cuda.synchronize(self.engine.device)
        self.engine.restore(before)
        return graph

    # --- steps

    def _train_step(self, held: dict[str, Tensor], labelled: int, distilled: int) -> None:
        self._prepare(held)
        self._forward(training=True)
        self._differentiate(held, labelled, distilled)
        self._backward()
        engine = self.engine
        kernels.update[len(self.table), self.nets](
            engine._weights, engine._momenta, self.gradients, self.table, engine._rates,
            self.layout.parameters, self.layout.gradients, engine._momentum, engine._decay, BLOCK=_UPDATED,
        )  # fmt: skip
        self.step += 1

    def _predict_step(self, held: dict[str, Tensor]) -> None:
        self._prepare(held)
        scale, shift = self._norm_parameters()
        torch.mul(scale, (self.engine._variance + _EPS).rsqrt(), out=self.scale)
        torch.sub(shift, self.engine._mean * self.scale, out=self.shift)
        self._forward(training=False)
        logits = self._logits(self._pool())
        held["logits"].index_copy_(1, self.step, logits.unsqueeze(1))
        self.step += 1

    def _prepare(self, held: dict[str, Tensor]) -> None:
        """Write the images of the current step."""
        grid, block = self.engine.grid, 1024
        blocks, layout = -(-grid.colours * grid.image**2 // block), self.layout
        steps = held["index"].shape[1]
        kernels.prepare[blocks, self.rows, self.nets](
            self.engine._pixels, held["index"], held["shift"], held["flip"], self.step, self.image,
            self.engine._colours[0], self.engine._colours[1], self.rows, steps, grid.colours, grid.image, grid.image,
            layout.image.row, self.engine._border, BP=block,
        )  # fmt: skip

    def _forward(self, *, training: bool) -> None:
        weights, count = self.engine._weights, len(self.copy_index)
        kernels.copy_weights[-(-count // _UPDATED), self.nets](
            weights, self.copy_index, self.copy, count, weights.stride(0), self.copy.stride(0), BLOCK=_UPDATED
        )
        for phase in self.layout.phases:
            self._at_once([partial(self._convolve, each, training) for each in phase])
        for k in range(2):
            self._at_once([partial(self._convolve, head[k], training) for head in self.layout.heads])

    def _norm_parameters(self) -> tuple[Tensor, Tensor]:
        scales, shifts = self.layout.scales, self.layout.shifts
        weights = self.engine._weights
        return weights[:, scales.at :][:, : scales.numbers], weights[:, shifts.at :][:, : shifts.numbers]

    def _classifiers(self, flat: Tensor, *, gradients: bool = False) -> tuple[Tensor, Tensor]:
        """Weights (net, exit, class, channel) and biases (net, exit, class) of the classifiers, or their gradients."""
        exits, grid = len(self.layout.heads), self.engine.grid
        regions = self.layout.classifiers, self.layout.biases
        linear, bias = (flat[:, each.gradients if gradients else each.at :][:, : each.numbers] for each in regions)
        return linear.view(self.nets, exits, grid.classes, grid.head), bias.view(self.nets, exits, grid.classes)

    def _pool(self) -> Float[Tensor, "net exit row channel"]:
        """Mean over places of the features of all exits."""
        width = self.engine.grid.head
        places = [head[1].target.at for head in self.layout.heads]
        scale, shift = (
            torch.stack([each[:, at : at + width] for at in places]).unsqueeze(2) for each in (self.scale, self.shift)
        )
        values = torch.relu(self.last[..., :width].float() * scale + shift)
        return values.unflatten(2, (self.rows, -1)).mean(3).transpose(0, 1)

    def _logits(self, pooled: Float[Tensor, "net exit row channel"]) -> Float[Tensor, "net exit class row"]:
        linear, bias = self._classifiers(self.engine._weights)
        return torch.matmul(linear, pooled.transpose(2, 3)) + bias.unsqueeze(-1)

    def _differentiate(self, held: dict[str, Tensor], labelled: int, distilled: int) -> None:
        """Loss and temperature of a step, and the gradients behind the last features of the exits."""
        objectives, temperature = self.engine._objectives, self.engine._temperature
        pooled = self._pool()
        logits = self._logits(pooled)
        exits, rows = logits.shape[1], self.rows
        index = held["index"].index_select(1, self.step).squeeze(1)[:, :labelled].long()
        target = one_hot(self.engine._labels[index], logits.shape[2]).transpose(1, 2).float().unsqueeze(1)
        logs = torch.log_softmax(logits[..., :labelled], 2)
        gradient = torch.zeros_like(logits)
        gradient[..., :labelled] = (logs.exp() - target) / (exits * labelled)
        loss = -(logs * target).sum((1, 2, 3)) / (exits * labelled)
        heat = temperature.view(-1, 1, 1, 1)
        soft = torch.log_softmax(logits[..., distilled:] / heat, 2)
        probabilities = soft.exp()
        teachers = torch.einsum("emt,etkr->emkr", objectives.shares, probabilities)
        weight = objectives.learns[:, :, None, None] / (exits * (rows - distilled))
        gradient[..., distilled:] += heat * weight * (probabilities - teachers)
        loss = loss - (heat**2 * weight * teachers * soft).sum((1, 2, 3))
        adjusted = objectives.confidence(probabilities)
        values = {
            "loss": loss,
            "confidence": objectives.confidence(torch.softmax(logits[..., distilled:], 2)),
            "adjusted": adjusted,
        }
        factor = torch.where(adjusted > objectives.limit, objectives.factor, torch.ones_like(adjusted))
        temperature.mul_(factor)
        values["temperature"] = temperature
        for name, value in values.items():
            held[name].index_copy_(1, self.step, value.unsqueeze(1))
        linear, _ = self._classifiers(self.engine._weights)
        d_linear, d_bias = self._classifiers(self.gradients, gradients=True)
        d_linear.copy_(torch.matmul(gradient, pooled))
        d_bias.copy_(gradient.sum(3))
        places = self.last.shape[2] // rows
        behind = torch.matmul(gradient.transpose(2, 3), linear).transpose(0, 1) / places
        width = self.engine.grid.head
        self.last_gradient.unflatten(2, (rows, places))[..., :width] = behind.unsqueeze(3)

    def _backward(self) -> None:
        layout = self.layout
        for gradient in self.added:
            gradient.zero_()
        weights = _Fork(self)
        for k in (1, 0):
            heads = [head[k] for head in reversed(layout.heads)]
            self._at_once([partial(self._before_norm, [each]) for each in heads])
            self._at_once([partial(self._apply, each) for each in heads])
            for each in heads:
                weights.start(partial(self._weight_gradient, each))
            if k == 1:
                self._at_once([partial(self._input_gradient, each) for each in heads])
            else:  # exits may read the same features, whose gradients are added in a fixed order
                for each in heads:
                    self._input_gradient(each)
        for phase in reversed(layout.phases):
            blocks: dict[Features, list[JoinedConvolution]] = {}
            for each in phase:
                blocks.setdefault(each.target, []).append(each)
            self._at_once([partial(self._before_norm, block) for block in blocks.values()])
            if phase[0].kernel == 3:
                self._at_once([partial(self._apply, each) for each in phase])
            for each in phase:
                weights.start(partial(self._weight_gradient, each))
            if phase[0].source is not layout.image:
                self._at_once([partial(self._input_gradient, each) for each in phase])
        weights.join()

    # --- launches

    def _convolve(self, each: JoinedConvolution, training: bool) -> None:
        y, z = self.values[each.source][..., each.first :], self.values[each.target][..., each.offset :]
        scale, shift = (self._of(part, each.source, each.first) for part in (self.scale, self.shift))
        pixels, outputs = self.layout.pixels(each.source), self.layout.pixels(each.target)
        w = self.copy[:, each.copied :]
        rows = y.stride(1), each.copied_row, z.stride(1)
        strides = *rows, y.stride(0), self.layout.channels, w.stride(0), z.stride(0)
        bm, bp = min(128 if each.kernel == 1 else 64, _power(each.outputs)), 128 if outputs > 2048 else 64
        blocks = -(-outputs // bp)
        sums = self._sums(("forward", id(each)), blocks, each.outputs)
        tiles = {"BM": bm, "BP": bp, "BK": 32 if bp == 128 else 64, **self._options, "num_warps": 8 if bm == 128 else 4}
        if each.kernel == 1:
            kernels.pointwise[blocks, -(-each.outputs // bm), self.nets](
                y, scale, shift, w, z, sums, each.inputs, each.outputs, pixels, *strides, **tiles
            )
        else:
            kernels.convolve[blocks, -(-each.outputs // bm), self.nets](
                y, scale, shift, w, z, sums, each.inputs, each.outputs, outputs, *strides,
                **self._sizes(each), IDENTITY=each.source is self.layout.image, **tiles,
            )  # fmt: skip
        if training:
            gamma, beta = self._norm_parameters()
            at = each.channel
            kernels.normalise[-(-each.outputs // 16), self.nets](
                sums, gamma[:, at:], beta[:, at:], *(part[:, at:] for part in self.norm[:4]),
                self.engine._mean[:, at:], self.engine._variance[:, at:], each.outputs, blocks, outputs,
                self.layout.parameters, self.layout.channels, _EPS, _NORM_MOMENTUM, BB=128, BM=16,
            )  # fmt: skip

    def _before_norm(self, block: list[JoinedConvolution]) -> None:
        """Prepare BatchNorm's gradient for neighbouring outputs, unless whoever wrote their gradient added it up."""
        target, offset = block[0].target, min(each.offset for each in block)
        if not target.shared:
            return
        count, pixels = sum(each.outputs for each in block), self.layout.pixels(target)
        y, g = self.values[target][..., offset:], self.gradient[target][..., offset:]
        stats = [part[:, target.at + offset :] for part in self.norm[:4]]
        bm = min(64, _power(count))
        bp, tiles = 4096 // bm, 4
        blocks = -(-pixels // (bp * tiles))
        sums = self._sums(("backward", id(block[0])), blocks, count)
        kernels.gradient_sums[blocks, -(-count // bm), self.nets](
            g, y, *stats, sums, count, pixels, y.stride(1), y.stride(0), self.layout.channels, BM=bm, BP=bp, TILES=tiles
        )
        self._finish(sums, target.at + offset, count, blocks, pixels)

    def _apply(self, each: JoinedConvolution) -> None:
        """Compute the gradient of a 3×3 convolution's outputs before BatchNorm; 1×1 ones do that on the way."""
        y, g = self.values[each.target][..., each.offset :], self.gradient[each.target][..., each.offset :]
        scale, shift, _, _, slope, offset = (part[:, each.channel :] for part in self.norm)
        d, pixels = self.before_norm[each], self.layout.pixels(each.target)
        bm = min(64, _power(each.outputs))
        bp = 4096 // bm
        kernels.apply_gradient[-(-pixels // bp), -(-each.outputs // bm), self.nets](
            g, y, scale, shift, slope, offset, d, each.outputs, pixels, y.stride(1), d.stride(1), y.stride(0),
            self.layout.channels, d.stride(0), BM=bm, BP=bp,
        )  # fmt: skip

    def _finish(self, sums: Tensor, at: int, count: int, blocks: int, pixels: int) -> None:
        scale, _, mean, rstd, slope, offset = (part[:, at:] for part in self.norm)
        d_gamma, d_beta = (
            self.gradients[:, each.gradients + at :] for each in (self.layout.scales, self.layout.shifts)
        )
        kernels.finish_gradient[-(-count // 16), self.nets](
            sums, scale, mean, rstd, slope, offset, d_gamma, d_beta, count, blocks, pixels,
            self.layout.channels, self.layout.gradients, BB=128, BM=16,
        )  # fmt: skip

    def _input_gradient(self, each: JoinedConvolution) -> None:
        gx, w = self.gradient[each.source][..., each.first :], self.copy[:, each.copied :]
        pixels, channels, w_row, w_net = (
            self.layout.pixels(each.source),
            self.layout.channels,
            each.copied_row,
            w.stride(0),
        )
        bp = 128
        if each.kernel == 1:
            z, g = (part[each.target][..., each.offset :] for part in (self.values, self.gradient))
            scale, shift, _, _, slope, offset = (part[:, each.channel :] for part in self.norm)
            bm = _power(each.outputs) if each.outputs <= 128 else 64
            kernels.pointwise_back[-(-pixels // bp), 1, self.nets](
                g, z, scale, shift, slope, offset, w, gx, each.outputs, each.inputs, pixels, z.stride(1), w_row,
                gx.stride(1), z.stride(0), channels, w_net, gx.stride(0),
                ONE=each.outputs <= bm, BM=bm, BP=bp, BC=32, **self._options, num_warps=8 if bm == 128 else 4,
            )  # fmt: skip
            return
        at = each.source.at + each.first
        d, z, stats = self.before_norm[each], self.values[each.source][..., each.first :], self.norm[:4, :, at:]
        bc = min(64, _power(each.inputs))
        blocks = -(-pixels // bp) if each.stride == 1 else 4 * -(-self.rows * (-(-each.source.size // 2)) ** 2 // bp)
        sums = self._sums(("inputs", id(each)), blocks, each.inputs)
        kernels.convolve_back[blocks, -(-each.inputs // bc), self.nets](
            d, w, gx, z, *stats, sums, each.outputs, each.inputs, pixels, d.stride(1), w_row, gx.stride(1),
            d.stride(0), w_net, gx.stride(0), channels,
            **self._sizes(each), ADD=each.source.shared, BC=bc, BP=bp, BK=16 if each.narrow else 64,
            **self._options, num_warps=4,
        )  # fmt: skip
        if not each.source.shared:
            self._finish(sums, at, each.inputs, blocks, pixels)

    def _weight_gradient(self, each: JoinedConvolution) -> None:
        y = self.values[each.source][..., each.first :]
        scale, shift = (self._of(part, each.source, each.first) for part in (self.scale, self.shift))
        pixels, outputs = self.layout.pixels(each.source), self.layout.pixels(each.target)
        out = self.gradients[:, each.gradients :]
        channels, gradients = self.layout.channels, self.layout.gradients
        bm, bc = min(64, _power(each.outputs)), min(64, _power(each.inputs))
        blocks = -(-each.outputs // bm) * -(-each.inputs // bc)
        options = {"BC": bc, "BP": 64, **self._options, "num_warps": 4}
        if each.kernel == 1:
            z, g = (part[each.target][..., each.offset :] for part in (self.values, self.gradient))
            stats = [part[:, each.channel :] for part in (self.scale, self.shift, self.slope, self.offset)]
            kernels.pointwise_weights[blocks, each.splits, self.nets](
                g, z, *stats, y, scale, shift, out, each.outputs, each.inputs, pixels, each.length, z.stride(1),
                y.stride(1), z.stride(0), channels, y.stride(0), channels, gradients, BM=bm, **options,
            )  # fmt: skip
            return
        d, identity = self.before_norm[each], each.source is self.layout.image
        strides = d.stride(0), y.stride(0), channels, gradients
        if each.narrow:
            kernels.narrow_weights[-(-each.inputs // bc), each.splits, self.nets](
                d, y, scale, shift, out, each.outputs, each.inputs, pixels, each.length, y.stride(1), *strides,
                **self._sizes(each), IDENTITY=identity, ROW=each.gradient_row, TAPS=16, **options,
            )  # fmt: skip
        else:
            kernels.wide_weights[9 * blocks, each.splits, self.nets](
                d, y, scale, shift, out, each.outputs, each.inputs, outputs, each.length, d.stride(1), y.stride(1),
                *strides, **self._sizes(each), IDENTITY=identity, BM=bm, **options,
            )  # fmt: skip

    @staticmethod
    def _sizes(each: JoinedConvolution) -> dict[str, int]:
        return {"SIZE": each.source.size, "SMALL": each.target.size, "STRIDE": each.stride}

    def _of(self, part: Tensor, features: Features, first: int) -> Tensor:
        """BatchNorm's numbers of features from a channel on; images have none, and any will do."""
        return part if features is self.layout.image else part[:, features.at + first :]

    @property
    def _options(self) -> dict[str, Any]:
        """How products are computed, and how many tiles are loaded ahead: only few of four bytes fit."""
        return {"PRECISION": self.engine._dot, "num_stages": 3 if self.engine._dtype == torch.bfloat16 else 1}

    def _sums(self, key: tuple[str, int], blocks: int, channels: int) -> Tensor:
        if key not in self.sums:
            self.sums[key] = torch.zeros(self.nets * blocks * 2 * channels, device=self.engine.device)
        return self.sums[key]

    def _at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run tasks that do not depend on each other."""
        first, *others = tasks
        fork = _Fork(self)
        for task in others:
            fork.start(task)
        first()
        fork.join()


class _Fork:
    """Tasks that run beside the current stream, one stream after the other, until they are joined."""

    def __init__(self, work: _BatchWorkspace) -> None:
        self.work, self.events, self.next = work, list[Any](), 0

    def start(self, task: Callable[[], None]) -> None:
        """Run a task after what the current stream has been given so far."""
        streams = self.work.streams
        if not streams:
            return task()
        stream = streams[self.next % len(streams)]
        self.next += 1
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            task()
            self.events.append(stream.record_event())
        return None

    def join(self) -> None:
        """Let the current stream wait for all tasks."""
        for event in self.events:
            torch.cuda.current_stream().wait_event(event)
        self.events.clear()


def _power(count: int) -> int:
    """The smallest power of two that is at least `count` and 16, as block sizes must be."""
    return max(16, 1 << (count - 1).bit_length())
