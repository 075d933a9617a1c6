"""The reference engine against a loop of its own: plain crops, torch.optim.SGD, autograd through the formula."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from support.exit_training import GRID, pictures
from understudy._errors import UserError
from understudy.data.images.epoch_batches import draw_epoch
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit.engine import Batches, ExitImages
from understudy.training.multi_exit.initial import initial_weights
from understudy.training.multi_exit.objectives import ExitObjective
from understudy.training.multi_exit.plain import PlainEngine

PICTURES = pictures()
SCALES = replace(GRID, channels=(2, 4))
IMAGES = torch.arange(80)
DISTILLED = ExitObjective.last_teacher(3, limit=0.2, factor=1.1)


def batches(seeds, epoch=1, batch=8, extra=None):
    drawn = [draw_epoch(seed, epoch, IMAGES, batch, PICTURES.border, extra, steps=6) for seed in seeds]
    index, shift, flip = (torch.stack(each) for each in zip(*drawn, strict=True))
    return Batches(index, shift, flip, batch, 0 if extra is None else batch)


def prepared(index, shift, flip):
    """Images of a batch, one after the other: black border, crop, mirror, normalise, then round to float32."""
    rows = []
    for i, (down, right), mirrored in zip(index, shift, flip, strict=True):
        image = pad(PICTURES.pixels[i].double(), (1, 1, 1, 1))[:, down : down + 8, right : right + 8] / 255
        image = image.flip(2) if mirrored else image
        rows.append(torch.stack([(image[c] - PICTURES.mean[c]) / PICTURES.std[c] for c in range(3)]))
    return torch.stack(rows).float()


def loop(seed, given, rate, tau, limit, factor):
    """Train one network with the last exit as teacher, in float64; return it with losses and temperatures."""
    network = MSDNet(SCALES)
    network.load_state_dict(initial_weights(SCALES, seed))
    network.double().train()
    optimiser = torch.optim.SGD(network.parameters(), rate, 0.9, weight_decay=1e-3, nesterov=True)
    measured = []
    for step in range(given.index.shape[1]):
        index = given.index[0, step]
        logits = network(prepared(index, given.shift[0, step], given.flip[0, step]).double())
        labels = PICTURES.labels[index][: given.labelled]
        loss = sum(cross_entropy(each[: given.labelled], labels) for each in logits) / 3
        soft = (logits[:, given.distilled :] / tau).softmax(-1)
        teacher = soft[-1].detach()
        loss = loss - tau**2 * sum((teacher * student.log()).sum(1).mean() for student in soft[:-1]) / 3
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        unadjusted = logits[-1, given.distilled :].detach().softmax(-1)
        confidence, adjusted = (float(p.amax(1).mean()) for p in (unadjusted, teacher))
        tau = tau * factor if adjusted > limit else tau
        measured.append([loss.item(), confidence, adjusted, tau])
    return network, torch.tensor(measured).T


class TestSteps:
    @pytest.mark.parametrize("extra", [None, torch.arange(60, 140)], ids=["supervised", "semi-supervised"])
    def test_are_those_of_a_plain_loop(self, extra):
        given = batches([4], extra=extra)
        engine = PlainEngine(SCALES, [4], [DISTILLED], PICTURES, decay=1e-3, dtype=torch.float64)
        progress = engine.train(given, [0.3])
        expected, measured = loop(4, given, 0.3, 1.0, 0.2, 1.1)
        assert 1 < measured[3, 0] < measured[3, -1] == measured[3, -2]
        assert torch.allclose(torch.cat(progress), measured.float(), rtol=2e-6, atol=0)
        state = engine.modules()[0].state_dict()
        for name, tensor in expected.state_dict().items():
            assert torch.allclose(state[name].double(), tensor.double(), rtol=1e-6, atol=1e-7), name

    def test_float32_is_close_to_float64(self):
        given = batches([4])
        losses = [
            PlainEngine(GRID, [4], [DISTILLED], PICTURES, dtype=dtype).train(given, [0.05]).loss
            for dtype in (torch.float32, torch.float64)
        ]
        assert torch.allclose(*losses, rtol=1e-3, atol=0)

    def test_classes_of_unlabelled_rows_do_not_matter(self):
        given = batches([4], extra=torch.arange(80, 140))
        others = torch.cat((PICTURES.labels[:80], torch.full((130,), 6)))
        unknown = ExitImages(PICTURES.pixels, others, PICTURES.mean, PICTURES.std, PICTURES.border)
        one, two = (PlainEngine(GRID, [4], [DISTILLED], each).train(given, [0.3]) for each in (PICTURES, unknown))
        assert all(map(torch.equal, one, two))

    def test_rates_and_seeds_are_per_network(self):
        engine = PlainEngine(GRID, [1, 1, 2], [DISTILLED] * 3, PICTURES)
        loss = engine.train(batches([1, 1, 2]), [0.1, 0.2, 0.1]).loss
        assert loss[0, 0] == loss[1, 0] and loss[0, 0] != loss[2, 0] and (loss[0, 1:] != loss[1, 1:]).all()

    def test_a_network_does_not_depend_on_others(self):
        alone, among = (
            PlainEngine(GRID, [2], [DISTILLED], PICTURES),
            PlainEngine(GRID, [1, 2, 3], [ExitObjective.exit_wise(3), DISTILLED, DISTILLED], PICTURES),
        )
        one, three = alone.train(batches([2]), [0.1]), among.train(batches([1, 2, 3]), [9.0, 0.1, 0.3])
        assert all(torch.equal(a[0], b[1]) for a, b in zip(one, three, strict=True))

    def test_a_network_that_diverges_stops_and_others_go_on(self):
        engine = PlainEngine(GRID, [1, 2], [DISTILLED] * 2, PICTURES)
        loss = engine.train(batches([1, 2]), [1e30, 0.1]).loss
        first = int((~loss[0].isfinite()).int().argmax())
        assert loss[0, :first].isfinite().all() and 0 < first < 5 and loss[0, first + 1 :].isnan().all()
        expected = PlainEngine(GRID, [2], [DISTILLED], PICTURES).train(batches([2]), [0.1]).loss
        assert torch.equal(loss[1:], expected)


class TestState:
    def test_a_restored_engine_continues_bit_for_bit(self):
        def make(seeds):
            return PlainEngine(GRID, seeds, [DISTILLED, ExitObjective.exit_wise(3)], PICTURES)

        first = make([1, 2])
        first.train(batches([1, 2]), [0.2, 0.1])
        state = first.state()
        before = {name: each.clone() for name, each in state.items()}
        expected = first.train(batches([1, 2], epoch=2), [0.2, 0.1])
        assert all(torch.equal(state[name], before[name]) for name in state)  # copies
        second = make([7, 8])
        second.restore(state)
        assert all(map(torch.equal, second.train(batches([1, 2], epoch=2), [0.2, 0.1]), expected))
        assert all(torch.equal(a, b) for a, b in zip(second.state().values(), first.state().values(), strict=True))

    def test_modules_are_copies_that_predict_the_same(self):
        engine = PlainEngine(GRID, [1, 2], [DISTILLED] * 2, PICTURES)
        engine.train(batches([1, 2]), [0.2, 0.1])
        images = torch.tensor([[3, 140, 9], [5, 6, 209]])
        logits, modules = engine.predict(images), engine.modules()
        assert logits.shape == (2, 3, 3, 7) and logits.dtype == torch.float32
        for module, row, expected in zip(modules, images, logits, strict=True):
            assert not module.training
            x = prepared(row, torch.ones(3, 2, dtype=torch.int64), [False] * 3)
            assert torch.allclose(module(x), expected, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                module.get_submodule("first.0").convolution.weight.zero_()
        assert torch.equal(engine.predict(images), logits)

    def test_prediction_does_not_change_training(self):
        one, two = (PlainEngine(GRID, [1], [DISTILLED], PICTURES) for _ in range(2))
        one.predict(IMAGES[None])
        assert all(map(torch.equal, one.train(batches([1]), [0.1]), two.train(batches([1]), [0.1])))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"seeds": [], "objectives": []}, "seeds must have at least 1 network, got none"),
        ({"objectives": []}, "objectives must be one for each of the 1 networks, got 0"),
        (
            {"objectives": [ExitObjective.exit_wise(2)]},
            "teachers must have a set for each of the 3 exits of the network, got 2",
        ),
        (
            {"pixels": PICTURES.pixels[:, :, :4]},
            r"images must have shape \[3, 8, 8\] for this network, got \[3, 4, 8\]",
        ),
        ({"labels": PICTURES.labels[:9]}, "labels must be one for each of 210 images, got 9"),
        ({"labels": PICTURES.labels + 1}, "labels must be classes from 0 to 6 for this network, got 7"),
        ({"labels": PICTURES.labels - 1}, "labels must be classes from 0 to 6 for this network, got -1"),
        ({"mean": (0.5,)}, "mean must have one value for each of 3 colours, got 1"),
        ({"std": (0.5, 0.0, 1.0)}, "std must be above 0 for every colour, got 0"),
        ({"border": -1}, "border must be at least 0 pixels, got -1"),
    ],
)
@pytest.mark.wrong_shapes
def test_bad_values_are_refused(given, text):
    rest = {name: given.pop(name) for name in ("seeds", "objectives") if name in given}
    made = ExitImages(
        **{name: getattr(PICTURES, name) for name in ("pixels", "labels", "mean", "std", "border")} | given
    )
    with pytest.raises(UserError, match=text):
        PlainEngine(**{"grid": GRID, "seeds": [1], "objectives": [DISTILLED], "pictures": made} | rest)
