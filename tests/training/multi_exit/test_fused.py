"""The engine for GPUs against the reference engine; where TRITON_INTERPRET=1, on the CPU by Triton's interpreter."""

import os
from importlib.util import find_spec

import pytest
import torch

from understudy._errors import UserError
from understudy.nets.multi_exit.grid import Grid
from understudy.training.multi_exit.engine import Batches, ExitImages, MultiExitEngine
from understudy.training.multi_exit.initial import initial_weights
from understudy.training.multi_exit.objectives import ExitObjective
from understudy.training.multi_exit.plain import PlainEngine

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_gpu = pytest.mark.skipif(not (INTERPRETED or torch.cuda.is_available()), reason="needs a CUDA GPU")
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")

TINY = Grid(classes=7, image=9, channels=(4, 6), layers=3, exits=(2, 3), bottleneck=2, head=24)
ODD = Grid(classes=7, image=13, channels=(4, 6), layers=5, exits=(2, 3, 5), bottleneck=2, head=24)
UNEVEN = Grid(classes=5, image=21, colours=1, channels=(5, 10, 18), layers=7, exits=(3, 7), bottleneck=1, head=20)
WIDE = Grid(classes=10, image=16, channels=(8, 40), layers=4, exits=(1, 2, 4), bottleneck=4, head=136)
CASES = {"tiny": (TINY, 6), "odd": (ODD, 10), "odd-large": (ODD, 64), "uneven": (UNEVEN, 10), "wide": (WIDE, 64)}
IMAGES, BORDER = 40, 2
SEEDS, RATES = (1, 2, 3), (1.0, 2.0, 0.5)


def pictures(grid):
    random = torch.Generator().manual_seed(0)
    shape = (IMAGES, grid.colours, grid.image, grid.image)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    moments = (0.5, 0.4, 0.6)[: grid.colours], (0.25, 0.2, 0.3)[: grid.colours]
    return ExitImages(pixels, torch.arange(IMAGES) % grid.classes, *moments, border=BORDER)


def batches(nets, steps, rows, labelled=None, seed=0):
    """Batches of which all rows are labelled and distilled, or the first ones labelled and the others distilled."""
    random = torch.Generator().manual_seed(seed)
    index, flip = (torch.randint(0, high, (nets, steps, rows), generator=random) for high in (IMAGES, 2))
    shift = torch.randint(0, 2 * BORDER + 1, (nets, steps, rows, 2), generator=random)
    return Batches(index, shift, flip.bool(), labelled or rows, labelled or 0)


def objectives(grid):
    exits = len(grid.exits)
    return [
        ExitObjective.exit_wise(exits),
        ExitObjective.last_teacher(exits, limit=0.02, factor=1.2),
        ExitObjective.later_teachers(exits, temperature=2.0, limit=None),
    ]


def plain(grid, dtype, **options):
    return PlainEngine(grid, SEEDS, objectives(grid), pictures(grid), device=DEVICE, dtype=dtype, **options)


def fused(grid, seeds=SEEDS, chosen=None, **options):
    from understudy.training.multi_exit.fused import FusedEngine

    given = {"device": DEVICE, "precision": "float32"} | options
    return FusedEngine(grid, seeds, chosen or objectives(grid), pictures(grid), **given)


def tensors(engine):
    """Weights and running statistics of each network by name, in float64 on the CPU."""
    states = [module.state_dict().items() for module in engine.modules()]
    return [{name: each.cpu().double() for name, each in state if each.is_floating_point()} for state in states]


def errors(found, expected, start):
    """Distance of each tensor from the expected one, relative to how far the step moved it."""
    return {
        name: float((found[name] - each).norm() / (each - start[name]).norm().clamp_min(1e-12))
        for name, each in expected.items()
    }


def equal(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@needs_gpu
class TestOneStep:
    @pytest.mark.parametrize("labelled", [1, 0.5], ids=["supervised", "semi-supervised"])
    @pytest.mark.parametrize("case", CASES)
    def test_in_float32_is_that_of_the_reference(self, case, labelled):
        """Where rounding changes the sign before a ReLU, the update of a tensor differs, also between references."""
        grid, rows = CASES[case]
        given = batches(3, 1, rows, int(labelled * rows) if labelled < 1 else None)
        options = {"momentum": 0.8, "decay": 1e-2}
        exact, rounded = (plain(grid, dtype, **options) for dtype in (torch.float64, torch.float32))
        engine = fused(grid, **options)
        expected, _, found = (each.train(given, RATES) for each in (exact, rounded, engine))
        for name, values, wanted in zip(found._fields, found, expected, strict=True):
            assert torch.allclose(values, wanted, rtol=1e-5, atol=0), name
        assert torch.allclose(found.temperature[:, 0], torch.tensor([1.0, 1.2, 2.0]))
        for net, seed in enumerate(SEEDS):
            start = {name: each.double() for name, each in initial_weights(grid, seed).items()}
            ours, usual = (errors(tensors(each)[net], tensors(exact)[net], start) for each in (engine, rounded))
            assert torch.tensor(list(ours.values())).median() < 1e-5
            for name, off in ours.items():
                assert off < 1e-2 + 10 * usual[name], (seed, name)

    @pytest.mark.skipif(INTERPRETED, reason="needs a CUDA GPU: Triton's interpreter multiplies bfloat16 as integers")
    @pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
    @pytest.mark.parametrize("case", ["tiny", "odd", "wide"])
    def test_in_lower_precision_is_close_to_that_of_the_reference(self, case, precision):
        """A tensor that no gradient reached, or another one, would be off by 100% of its update or more."""
        grid, rows = CASES[case]
        engine, exact, given = fused(grid, precision=precision), plain(grid, torch.float64), batches(3, 1, rows)
        found, expected = (each.train(given, RATES) for each in (engine, exact))
        assert torch.allclose(found.loss, expected.loss, rtol=0.01, atol=0)
        for net, seed in enumerate(SEEDS):
            start = {name: each.double() for name, each in initial_weights(grid, seed).items()}
            off = errors(tensors(engine)[net], tensors(exact)[net], start)
            assert torch.tensor(list(off.values())).median() < 0.5


@needs_gpu
class TestSteps:
    def test_have_the_losses_of_the_reference(self):
        given, rates = batches(3, 4, 6), (0.1, 0.2, 0.05)
        found, expected = (each.train(given, rates) for each in (fused(TINY), plain(TINY, torch.float64)))
        for name, values, wanted in zip(found._fields, found, expected, strict=True):
            assert torch.allclose(values, wanted, rtol=1e-3, atol=0), name
        assert (found.temperature[1].diff() > 0).all() and (found.temperature[[0, 2]].diff() == 0).all()

    def test_after_a_longer_epoch_are_those_of_a_new_engine(self):
        """Both a prediction and an epoch may have fewer steps than the epoch before."""
        long, short, images = batches(1, 3, 6), batches(1, 1, 6, seed=1), torch.tensor([[3, 39]])
        one, two = (fused(TINY, (4,), objectives(TINY)[1:2]) for _ in range(2))
        one.train(long, [0.1])
        state = one.state()
        logits, progress = one.predict(images), one.train(short, [0.1])
        two.restore(state)
        assert all(map(torch.equal, two.train(short, [0.1]), progress))
        assert equal(two.state(), one.state())
        two.restore(state)
        assert torch.equal(two.predict(images), logits)


@needs_gpu
class TestPrediction:
    def test_is_that_of_the_module_in_evaluation_mode(self):
        engine, made = fused(TINY), pictures(TINY)
        engine.train(batches(3, 1, 6), RATES)
        images = torch.randint(0, IMAGES, (3, 8), generator=torch.Generator().manual_seed(2))
        before, logits, modules = engine.state(), engine.predict(images), engine.modules()
        assert logits.shape == (3, 2, 8, 7) and logits.dtype == torch.float32 and logits.device.type == "cpu"
        mean, std = (torch.tensor(each).double().view(3, 1, 1) for each in (made.mean, made.std))
        for module, row, found in zip(modules, images, logits, strict=True):
            assert not module.training
            expected = module.cpu().double()((made.pixels[row] / 255 - mean) / std)
            assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                module.get_submodule("first.0").convolution.weight.zero_()  # a copy
        assert equal(engine.state(), before)

    def test_is_possible_before_the_first_step(self):
        engine, images = fused(TINY, (4,), objectives(TINY)[:1]), torch.arange(3)[None]
        assert isinstance(engine, MultiExitEngine)
        expected = PlainEngine(TINY, (4,), objectives(TINY)[:1], pictures(TINY)).predict(images)
        assert torch.allclose(engine.predict(images), expected, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_a_restored_engine_continues_bit_for_bit():
    first, second = fused(TINY), fused(TINY, (7, 8, 9))
    first.train(batches(3, 1, 6), (0.1, 0.2, 0.05))
    state = first.state()
    before = {name: each.clone() for name, each in state.items()}
    following = batches(3, 2, 6, seed=1)
    expected = first.train(following, (0.1, 0.2, 0.05))
    assert equal(state, before)  # copies
    second.restore(state)
    assert all(map(torch.equal, second.train(following, (0.1, 0.2, 0.05)), expected))
    assert equal(second.state(), first.state())


@needs_gpu
class TestOtherNetworks:
    def test_do_not_change_a_network(self):
        """Bit for bit, among as many others."""
        given, others, chosen = batches(3, 2, 6), batches(3, 2, 6, seed=1), objectives(TINY)
        for each, other in zip(others[:3], given[:3], strict=True):
            each[1] = other[1]
        one, two = fused(TINY), fused(TINY, (7, 2, 9), [chosen[2], chosen[1], chosen[1]])
        progress = one.train(given, (0.1, 0.2, 0.05)), two.train(others, (0.3, 0.2, 9.0))
        assert all(torch.equal(a[1], b[1]) for a, b in zip(*progress, strict=True))
        assert not any(torch.equal(a[0], b[0]) for a, b in zip(*progress, strict=True) if (a[0] != 1).any())
        states = [{name: each[1] for name, each in engine.state().items()} for engine in (one, two)]
        assert equal(*states)

    def test_change_a_network_by_rounding_where_it_would_be_alone(self):
        """Statistics agree bit for bit; products of the classifiers may be split otherwise for fewer networks."""
        given = batches(3, 1, 6)
        among, alone = fused(TINY), fused(TINY, SEEDS[1:2], objectives(TINY)[1:2])
        progress = among.train(given, RATES), alone.train(Batches(*(each[1:2] for each in given[:3]), 6), RATES[1:2])
        for values, wanted in zip(*progress, strict=True):
            assert torch.allclose(values[1], wanted[0], rtol=1e-6, atol=0)
        one, two = tensors(among)[1], tensors(alone)[0]
        start = {name: each.double() for name, each in initial_weights(TINY, SEEDS[1]).items()}
        for name, off in errors(two, one, start).items():
            assert off == 0 if "running" in name else off < 1e-4, name


class TestRefused:
    """Nothing of this needs a GPU."""

    def test_an_unknown_precision(self):
        with pytest.raises(UserError, match="precision must be one of bfloat16, tf32, float32, got half"):
            fused(TINY, precision="half")

    def test_the_stem_for_imagenet(self):
        from understudy.training.multi_exit.fused import supports

        grid = Grid(classes=7, image=64, channels=(4, 6), layers=3, exits=(2, 3), head=24, stem="imagenet")
        assert supports(TINY) and not supports(grid)
        with pytest.raises(UserError, match="networks with the ImageNet stem are trained by the plain engine only"):
            fused(grid)
