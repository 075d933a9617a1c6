"""The layout of the fused engine: tensors have places of their own, and what is computed at once does not collide."""

import itertools

import pytest
import torch

from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit.layout import Layout

TILE = 64
"""Pixels that the kernels add to the gradient of weights at once."""
GRIDS = {
    "default": Grid(),
    "odd": Grid(classes=7, image=13, channels=(4, 6), layers=5, exits=(2, 3, 5), bottleneck=2, head=24),
    "uneven": Grid(classes=5, image=21, colours=1, channels=(5, 10, 18), layers=7, exits=(3, 7), bottleneck=1, head=20),
    "one-scale": Grid(classes=3, image=9, channels=(3,), layers=3, exits=(1, 2, 3), bottleneck=3, head=9),
}
ROWS = {"default": 64, "odd": 10, "uneven": 3, "one-scale": 100}


@pytest.fixture(params=GRIDS)
def layout(request):
    return Layout(GRIDS[request.param], ROWS[request.param])


def network(layout):
    """Tensors of the module by name, on no device."""
    with torch.device("meta"):
        state = MSDNet(layout.grid).state_dict()
    return {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}


def named(layout):
    """Tensors by name; those of the running mean and variance are numbered after all parameters."""
    sizes = [layout.parameters, layout.channels, layout.channels]
    return list(layout.tensors(*torch.arange(sum(sizes)).split(sizes)))


def outputs(each):
    return set(range(each.offset, each.offset + each.outputs))


def inputs(each):
    return set(range(each.first, each.first + each.inputs))


class TestTensors:
    def test_have_the_names_and_shapes_of_the_module(self, layout):
        expected = network(layout)
        found = named(layout)
        assert len(found) == len(expected)
        assert {name: tensor.shape for name, tensor in found} == {name: each.shape for name, each in expected.items()}

    def test_do_not_overlap_and_leave_nothing_out(self, layout):
        held = torch.cat([tensor.flatten() for _, tensor in named(layout)]).sort().values
        regions = [torch.arange(each.at, each.at + each.numbers) for each in layout.regions]
        statistics = torch.arange(layout.parameters, layout.parameters + 2 * layout.channels)
        assert torch.equal(held, torch.cat((*regions, statistics)))

    def test_writing_one_changes_the_others_nowhere(self):
        layout = Layout(GRIDS["odd"], 10)
        flat = [torch.zeros(size) for size in (layout.parameters, layout.channels, layout.channels)]
        for k, (_, tensor) in enumerate(layout.tensors(*flat)):
            tensor.fill_(k)
        for k, (name, tensor) in enumerate(layout.tensors(*flat)):
            assert (tensor == k).all(), name

    def test_batchnorm_has_the_place_of_the_channels_it_normalises(self, layout):
        held = dict(named(layout))
        for each in layout.convolutions:
            means = torch.cat([held[f"{name}.norm.running_mean"] for name, _ in each.parts]) - layout.parameters
            at = each.target.at + torch.tensor(sorted(outputs(each)))
            assert torch.equal(means, at)
            for suffix, region in (("weight", layout.scales), ("bias", layout.shifts)):
                assert torch.equal(torch.cat([held[f"{name}.norm.{suffix}"] for name, _ in each.parts]), region.at + at)

    def test_weights_lie_tap_by_tap_and_output_by_output(self, layout):
        held = dict(named(layout))
        for each in layout.convolutions:
            parts = [held[f"{name}.convolution.weight"].permute(2, 3, 0, 1) for name, _ in each.parts]
            assert torch.equal(torch.cat(parts, dim=2).flatten(), each.weights + torch.arange(each.numbers))


class TestPhases:
    def test_have_each_convolution_of_the_module_once(self, layout):
        names = [name for each in layout.convolutions for name, _ in each.parts]
        expected = [name.removesuffix(".convolution.weight") for name in network(layout) if ".convolution." in name]
        assert sorted(names) == sorted(expected)
        in_phases = [name for phase in layout.phases for each in phase for name, _ in each.parts]
        assert sorted(in_phases) == sorted(step.name for step in layout.grid.convolutions)
        for exit, head in enumerate(layout.heads):
            names = [f"exits.{exit}.convolutions.{k}" for k in range(2)]
            assert [each.parts for each in head] == [[(name, layout.grid.head)] for name in names]

    def test_read_what_the_module_reads(self, layout):
        """Every convolution reads the channels that the grid names, wherever the layout has them."""
        steps = {step.name: step for step in layout.grid.convolutions}
        written, features = {}, {"image": layout.image}
        for each in (each for phase in layout.phases for each in phase):
            first = each.offset
            for name, count in each.parts:
                step = steps[name]
                assert (each.kernel, each.stride) == (step.kernel, step.stride)
                assert (each.inputs, count) == (step.inputs, step.outputs)
                if step.source.startswith("layers"):
                    assert (each.source, each.first, each.inputs) == written[step.source]
                else:
                    assert each.source is features[step.source] and each.first == 0
                if step.target.startswith("layers"):
                    written[step.target] = each.target, first, count
                else:
                    assert features.setdefault(step.target, each.target) is each.target and first == step.offset
                first += count
            assert first == each.offset + each.outputs
        assert len({id(each) for each in features.values()}) == len(features)
        for exit, (one, two) in enumerate(layout.heads):
            name, channels = layout.grid.exit_inputs(exit)
            assert one.source is features[name] and (one.first, one.inputs) == (0, channels)
            assert two.source is one.target and (two.first, two.inputs) == (0, layout.grid.head)

    def test_read_only_what_earlier_phases_wrote(self, layout):
        done = {layout.image: set(range(layout.grid.colours))}
        heads = ([head[k] for head in layout.heads] for k in range(2))
        for phase in (*layout.phases, *heads):
            for each in phase:
                assert inputs(each) <= done.get(each.source, set()), each.parts
            for each in phase:
                before = done.setdefault(each.target, set())
                assert not before & outputs(each), each.parts  # also within the phase
                before |= outputs(each)
        assert done.pop(layout.image) and set(done) == set(layout.features)
        assert all(channels == set(range(each.channels)) for each, channels in done.items())

    def test_add_gradients_of_inputs_only_where_no_other_convolution_does(self, layout):
        """The convolutions of a phase add to the gradients of their inputs at the same time."""
        for phase in layout.phases:
            for i, one in enumerate(phase):
                assert not any(one.source is two.source and inputs(one) & inputs(two) for two in phase[:i]), one.parts

    def test_features_without_sums_over_readers_have_one_reader(self, layout):
        for features in layout.features:
            readers = [each for each in layout.convolutions if each.source is features]
            if not features.shared:
                assert readers
                assert sum(each.inputs for each in readers) == features.channels
                assert set().union(*map(inputs, readers)) == set(range(features.channels))

    def test_sizes_are_those_of_the_grid(self, layout):
        assert layout.image.size == layout.grid.image and layout.image.channels == layout.grid.colours
        for each in layout.convolutions:
            assert each.target.size == -(-each.source.size // each.stride)
        for exit in range(len(layout.heads)):
            assert layout.heads[exit][0].source.size == layout.grid.coarsest


class TestJoinedBottlenecks:
    def test_a_phase_reads_each_set_of_features_once(self, layout):
        bottlenecks = [phase for phase in layout.phases if phase[0].kernel == 1]
        assert bottlenecks
        for phase in bottlenecks:
            assert len({each.source for each in phase}) == len(phase)

    def test_of_two_neighbouring_scales_are_one_convolution(self):
        layout = Layout(GRIDS["odd"], 10)
        joined = [[name for name, _ in each.parts] for each in layout.phases[2]]
        assert joined == [["layers.0.0.same.0", "layers.0.1.finer.0"], ["layers.0.1.same.0"]]
        one = layout.phases[2][0]
        assert [count for _, count in one.parts] == [4, 4]  # no wider than the 4 channels that they read
        assert (one.inputs, one.outputs, one.target.channels) == (4, 8, 8)

    def test_are_read_each_by_its_own_convolution(self):
        layout = Layout(GRIDS["odd"], 10)
        one, others = layout.phases[2][0].target, layout.phases[3]
        assert [(each.parts[0][0], each.first) for each in others if each.source is one] == [
            ("layers.0.0.same.1", 0),
            ("layers.0.1.finer.1", 4),
        ]


class TestRows:
    def test_of_features_are_multiples_of_sixteen(self, layout):
        for each in (layout.image, *layout.features):
            assert each.channels <= each.row < each.channels + 16 and each.row % 16 == 0

    def test_of_gradients_hold_all_outputs(self, layout):
        for each in layout.convolutions:
            assert each.gradient_row >= each.outputs
            assert each.gradient_row == 8 or each.gradient_row % 16 == 0

    def test_of_copied_weights_are_padded_with_zeros(self, layout):
        index, end = layout.copy_index(), 0
        assert index.dtype == torch.int32
        for each in layout.convolutions:
            row = each.copied_row
            assert each.copied == end and row % 16 == 0 and each.inputs <= row < each.inputs + 16
            end += each.kernel**2 * each.outputs * row
            copied = index[each.copied : end].view(-1, row)
            assert torch.equal(copied[:, : each.inputs].flatten(), each.weights + torch.arange(each.numbers))
            assert (copied[:, each.inputs :] == -1).all()
        assert len(index) == end
        weights = [torch.arange(each.weights, each.weights + each.numbers) for each in layout.convolutions]
        assert torch.equal(index[index >= 0].sort().values, torch.cat(weights))


class TestGradients:
    @pytest.mark.parametrize("rows", [2, 10, 60, 64, 128])
    @pytest.mark.parametrize("name", GRIDS)
    def test_parts_count_every_pixel_once(self, name, rows):
        layout = Layout(GRIDS[name], rows)
        for each in layout.convolutions:
            read = layout.pixels(each.source if each.narrow else each.target)
            assert each.length % TILE == 0, each.parts  # a kernel goes on to the end of a tile
            assert (each.splits - 1) * each.length < read <= each.splits * each.length, each.parts

    def test_parts_have_places_of_their_own(self, layout):
        places = [(each.gradients, each.numbers * each.splits) for each in layout.regions]
        for (at, size), (following, _) in itertools.pairwise(places):
            assert at + size == following
        assert places[0][0] == 0 and sum(places[-1]) <= layout.gradients < sum(places[-1]) + 16
        for each, region in zip(layout.convolutions, layout.regions, strict=False):
            assert (each.weights, each.gradients, each.splits) == (region.at, region.gradients, region.splits)
            assert each.numbers == region.numbers

    @pytest.mark.parametrize("block", [1024, 100])
    def test_the_table_of_updates_has_every_parameter_once(self, layout, block):
        table = layout.update_table(block)
        assert table.dtype == torch.int32 and table.is_contiguous()
        assert table[:, 1].min() >= 1 and table[:, 1].max() <= block
        places = [torch.arange(first, first + count) for first, count, *_ in table.tolist()]
        regions = [torch.arange(each.at, each.at + each.numbers) for each in layout.regions]
        assert torch.equal(torch.cat(places), torch.cat(regions))

    def test_the_table_of_updates_knows_where_gradients_are(self, layout):
        for first, count, at, parts, stride in layout.update_table(100).tolist():
            region = next(each for each in layout.regions if each.at <= first < each.at + each.numbers)
            assert first + count <= region.at + region.numbers
            assert (at - region.gradients, parts, stride) == (first - region.at, region.splits, region.numbers)
