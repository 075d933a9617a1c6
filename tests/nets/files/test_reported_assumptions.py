"""State dicts that sizes and names describe only in part: ε, places of BatchNorm, orders, several networks in a file.

Each is compared with the module that wrote it: read right, refused, or read wrong with the false assumption reported.
"""

import pytest
import safetensors.torch
import torch
from torch import nn

import understudy as us
from support.network_files import refusal
from understudy import nets
from understudy.nets import Stated

pytestmark = pytest.mark.usefixtures("one_thread")
SEED = torch.Generator().manual_seed(0)


class Named(nn.Module):
    """Layers with names, applied in a given order with a ReLU after each layer but the last."""

    def __init__(self, parts, calls):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.calls = calls

    def forward(self, x):
        for call in self.calls:
            x = x.relu() if call == "relu" else self.get_submodule(call)(x)
        return x


def drawn(module):
    """Draw all tensors of a module, so that each of them changes its function."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            values = torch.randn(tensor.shape, generator=SEED)
            tensor.copy_(0.01 + 0.1 * values.abs() if name.endswith("running_var") else values)
    return module.eval()


def save(state, path):
    state = state.state_dict() if isinstance(state, nn.Module) else state
    (safetensors.torch.save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


def agrees(population, module, *size):
    x = torch.randn(5, *size, generator=SEED)
    with torch.no_grad():
        wanted = module(x)
    return bool((population(x.flatten(1))[0] - wanted).abs().max() <= 1e-4 * wanted.abs().max())


class TestEpsilon:
    @pytest.mark.parametrize("eps", [1e-3, 1e-5, 1e-7, 0.0])
    @pytest.mark.parametrize("affine", [True, False])
    def test_the_stated_epsilon_is_that_of_the_module(self, tmp_path, eps, affine):
        parts = nn.Linear(4, 6), nn.BatchNorm1d(6, eps=eps, affine=affine), nn.ReLU(), nn.Linear(6, 3)
        module = drawn(nn.Sequential(*parts))
        path = save(module, tmp_path / "net.pt")
        found = nets.read(path, Stated(norm_order="before", activation="relu", norm_eps=eps))
        assert found.words == [] and agrees(found.population, module, 4)

    def test_the_usual_epsilon_is_assumed_aloud(self, tmp_path):
        module = drawn(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-2), nn.ReLU(), nn.Linear(6, 3)))
        found = nets.read(save(module, tmp_path / "net.pt"), Stated(norm_order="before", activation="relu"))
        assert found.words == ["BatchNorm ε 10⁻⁵"] and found.arguments == ["norm_eps"]
        assert not agrees(found.population, module, 4)

    def test_what_cannot_be_divided_by_is_refused(self, tmp_path):
        module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        module[1].running_var.zero_()
        refusal(save(module, tmp_path / "net.pt"), "divides by 0", "norm_eps", norm_order="before", norm_eps=0)

    def test_without_batch_norm_or_where_it_is_recorded_it_is_refused(self, tmp_path):
        path = save(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), tmp_path / "net.pt")
        refusal(path, "norm_eps was given, but the network has no BatchNorm", "--norm-eps student=", norm_eps=1e-3)
        normed = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        us.save(us.from_module(normed.eval()), tmp_path / "ours")
        refusal(tmp_path / "ours", "norm_eps was given, but the file records ε of its BatchNorm", norm_eps=1e-3)


class TestPlacesOfBatchNorm:
    def module(self, calls):
        parts = {"fc1": nn.Linear(8, 8), "fc2": nn.Linear(8, 4), "bn1": nn.BatchNorm1d(8)}
        return drawn(Named(parts, calls))

    @pytest.mark.parametrize("name", ["net.pt", "net.safetensors"])
    @pytest.mark.parametrize("order", [None, ["fc1", "fc2"]])
    def test_a_place_that_its_number_suggests_is_assumed_aloud(self, tmp_path, order, name):
        stated = Stated(order=order, norm_order="before", norm_eps=1e-5, activation="relu")
        place = "BatchNorm bn1 after fc1"
        module = self.module(["fc1", "bn1", "relu", "fc2"])
        found = nets.read(save(module, tmp_path / name), stated)
        assert place in found.words and agrees(found.population, module, 8)
        before = self.module(["bn1", "fc1", "relu", "fc2"])
        found = nets.read(save(before, tmp_path / name), stated)
        assert place in found.words and not agrees(found.population, before, 8)
        assert "order" in found.arguments

    def test_a_place_that_is_stated_or_that_sizes_decide_is_not_assumed(self, tmp_path):
        module = self.module(["fc1", "bn1", "relu", "fc2"])
        stated = {"norm_order": "before", "norm_eps": 1e-5, "activation": "relu"}
        found = nets.read(save(module, tmp_path / "net.pt"), Stated(order=["fc1", "bn1", "fc2"], **stated))
        assert found.words == [] and agrees(found.population, module, 8)
        parts = {"fc1": nn.Linear(3, 8), "fc2": nn.Linear(8, 4), "bn1": nn.BatchNorm1d(8)}
        module = drawn(Named(parts, ["fc1", "bn1", "relu", "fc2"]))
        found = nets.read(save(module, tmp_path / "net.pt"), Stated(**stated))
        assert found.words == [] and agrees(found.population, module, 3)
        module = drawn(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)))
        found = nets.read(save(module, tmp_path / "net.pt"), Stated(**stated))
        assert found.words == ["no skips", "no branches or repeated layers"] and agrees(found.population, module, 8)

    def test_a_place_that_nothing_decides_is_refused(self, tmp_path):
        parts = {"fc1": nn.Linear(8, 8), "fc2": nn.Linear(8, 4), "norm": nn.BatchNorm1d(8)}
        path = save(nn.ModuleDict(parts), tmp_path / "net.pt")
        refusal(path, "fit together in more than one order", "--order", norm_order="before")
        refusal(path, "more than one order", "--order", norm_order="before", order=["fc1", "fc2"])

    def test_many_places_are_one_assumption(self, tmp_path):
        parts = {f"fc{i}": nn.Linear(5, 5) for i in range(1, 6)} | {f"bn{i}": nn.BatchNorm1d(5) for i in range(1, 5)}
        found = nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt"), Stated(norm_order="after"))
        assert "BatchNorm bn1 after fc1, …, bn4 after fc4" in found.words
        assert "\n" not in str(found)
        del parts["fc4"], parts["fc5"], parts["bn3"], parts["bn4"]
        found = nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt"), Stated(norm_order="after"))
        assert "BatchNorm bn1 after fc1 and bn2 after fc2" in found.words


class TestOrder:
    BY_NUMBER = "layers in the order of their numbers"

    def test_numbers_in_names_are_assumed_aloud_where_sizes_allow_other_orders(self, tmp_path):
        parts = {f"fc{i}": nn.Linear(8, 8) for i in (1, 2, 3)}
        module = drawn(Named(parts, ["fc3", "relu", "fc2", "relu", "fc1"]))
        path = save(module, tmp_path / "net.pt")
        found = nets.read(path, Stated(activation="relu"))
        assert self.BY_NUMBER in found.words and found.arguments == ["order"]
        assert not agrees(found.population, module, 8)
        found = nets.read(path, Stated(activation="relu", order=["fc3", "fc2", "fc1"]))
        assert found.words == [] and agrees(found.population, module, 8)

    def test_a_swap_of_two_layers_between_others_is_enough(self, tmp_path):
        parts = {"fc1": nn.Linear(3, 8), "fc2": nn.Linear(8, 8), "fc3": nn.Linear(8, 8), "head": nn.Linear(8, 2)}
        assert self.BY_NUMBER in nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt")).words
        parts |= {"fc3": nn.Linear(8, 5), "head": nn.Linear(5, 2)}
        assert self.BY_NUMBER not in nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt")).words

    def test_convolutions_likewise(self, tmp_path):
        parts = {"conv1": nn.Conv2d(2, 2, 3), "conv2": nn.Conv2d(2, 2, 3), "fc": nn.Linear(2 * 5 * 5, 3)}
        stated = Stated(image=9, padding=0, stride=1, pool="none")
        assert self.BY_NUMBER in nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt"), stated).words

    @pytest.mark.parametrize(
        "module",
        [
            nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))),
            nn.ModuleDict({"net": nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))}),
            nn.ModuleDict({"blocks": nn.Sequential(*(nn.ModuleDict({"fc": nn.Linear(4, 4)}) for _ in range(3)))}),
            nn.ModuleDict({"features": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "head": nn.Linear(4, 2)}),
        ],
    )
    def test_indices_of_a_container_leave_nothing_open(self, tmp_path, module):
        assert self.BY_NUMBER not in nets.read(save(module, tmp_path / "net.pt")).words


class TestConvolutions:
    def read(self, module, tmp_path, **stated):
        stated |= {"image": 7, "stride": 1, "activation": "relu"}
        return nets.read(save(drawn(module), tmp_path / "net.pt"), Stated(**stated))

    def test_an_image_may_be_one_number(self, tmp_path):
        module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2))
        found = self.read(module, tmp_path, padding=0, pool="none")
        assert found.population.image == (7, 7) and agrees(found.population, module, 2, 7, 7)
        us.save(found.population, tmp_path / "ours")
        assert us.load(tmp_path / "ours", image=7).image == (7, 7)

    @pytest.mark.parametrize(
        ("convolution", "words"),
        [
            (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), "zero padding"),
            (nn.Conv2d(2, 3, 3, padding=2, dilation=2), "no dilation or groups"),
        ],
    )
    def test_details_that_only_the_module_states(self, tmp_path, convolution, words):
        module = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(147, 2))
        found = self.read(module, tmp_path, padding=1, pool="none")
        assert words in found.words and found.arguments == ["model"]
        assert not agrees(found.population, module, 2, 7, 7)

    def test_flattening_with_channels_last(self, tmp_path):
        class Last(nn.Sequential):
            def forward(self, x):
                return self[1](self[0](x).relu().movedim(1, -1).flatten(1))

        found = self.read(module := Last(nn.Conv2d(2, 3, 3), nn.Linear(75, 2)), tmp_path, padding=0, pool="none")
        assert "channels-first flattening" in found.words and not agrees(found.population, module, 2, 7, 7)
        pooled = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        assert "channels-first flattening" not in self.read(pooled, tmp_path, padding=0, pool="global").words

    def test_averages_of_padded_maps(self, tmp_path):
        pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), pool, nn.Flatten(), nn.Linear(27, 2))
        found = self.read(module, tmp_path, padding=0, pool="average:3/2+1")
        assert "padding counted in averages" in found.words and not agrees(found.population, module, 2, 7, 7)
        module[2] = nn.AvgPool2d(3, 2, 1)
        assert agrees(found.population, module, 2, 7, 7)

    def test_batch_norm_after_a_padded_average(self, tmp_path):
        parts = nn.Conv2d(2, 3, 3), nn.ReLU(), nn.AvgPool2d(3, 2, 1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 2)
        module = nn.Sequential(*parts)
        found = self.read(module, tmp_path, padding=0, pool="average:3/2+1", norm_order="after", norm_eps=1e-5)
        assert "BatchNorm before pooling" in found.words and not agrees(found.population, module, 2, 7, 7)
        before = nn.Sequential(*(parts[i] for i in (0, 1, 3, 2, 4, 5))).eval()
        assert agrees(found.population, before, 2, 7, 7)

    def test_pooled_sizes_that_are_rounded_up(self, tmp_path):
        pool = nn.MaxPool2d(2, ceil_mode=True)
        parts = nn.Conv2d(2, 3, 3), nn.ReLU(), pool, nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        module = nn.Sequential(*parts, nn.Flatten(), nn.Linear(3, 2))
        found = self.read(module, tmp_path, padding=[0, 1], pool=["max:2", "global"])
        assert "pooled sizes rounded down" in found.words and not agrees(found.population, module, 2, 7, 7)

    def test_the_largest_of_absolute_values(self, tmp_path):
        class Inside(nn.Sequential):
            def forward(self, x):
                return self[1](nn.functional.max_pool2d(self[0](x), 5).abs().flatten(1))

        module = drawn(Inside(nn.Conv2d(2, 3, 3), nn.Linear(3, 2)))
        stated = Stated(image=7, stride=1, padding=0, pool="max:5", activation="abs")
        found = nets.read(save(module, tmp_path / "net.pt"), stated)
        assert "max pooling after the activation" in found.words and not agrees(found.population, module, 2, 7, 7)


def stack(*sizes):
    return drawn(nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2])))


def prefixed(**modules):
    return {f"{prefix}.{name}": each for prefix, part in modules.items() for name, each in part.state_dict().items()}


class TestCheckpoints:
    def test_the_network_that_was_read_is_named(self, tmp_path):
        model, ema = stack(4, 6, 3), stack(4, 6, 3)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        held = {"epoch": 3, "model": model.state_dict(), "ema": {"module": ema.state_dict(), "decay": 0.9}}
        path = save(held | {"optimizer": optimizer.state_dict()}, tmp_path / "net.ckpt")
        found = nets.read(path, Stated(activation="relu"))
        assert found.words == ["weights under 'model' of model, ema.module"] and found.arguments == ["key"]
        assert agrees(found.population, model, 4)
        for key, module in (("model", model), ("ema", ema), ("ema.module", ema)):
            found = nets.read(path, Stated(activation="relu", key=key))
            assert found.words == [] and agrees(found.population, module, 4), key
        refusal(path, "no key or prefix 'emma'", "model, ema.module", key="emma")

    def test_a_checkpoint_of_one_network_assumes_nothing(self, tmp_path):
        model = stack(4, 6, 3)
        path = save({"model": model.state_dict(), "epoch": 3, "rng": torch.zeros(3)}, tmp_path / "net.ckpt")
        assert nets.read(path, Stated(activation="relu")).words == []

    def test_an_unusual_key_is_pointed_out(self, tmp_path):
        model = stack(4, 6, 3)
        path = save({"mine": model.state_dict(), "epoch": 3}, tmp_path / "net.ckpt")
        refusal(path, "--key mine (in Python key='mine')")
        assert agrees(us.load(path, key="mine", activation="relu"), model, 4)

    @pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"state_dict": state, "epoch": 1}])
    @pytest.mark.parametrize("before", ["", "module.", "model."])
    @pytest.mark.parametrize("sizes", [(4, 7, 3), (3, 7, 2)])
    def test_prefixes_of_several_networks(self, tmp_path, wrap, before, sizes):
        student, teacher = stack(4, 6, 3), stack(*sizes)  # in the second case the teacher would fit on the student
        state = {f"{before}{name}": each for name, each in prefixed(student=student, teacher=teacher).items()}
        path = save(wrap(state), tmp_path / "net.ckpt")
        prefix = before if before == "model." else ""
        refusal(path, f"several networks, {prefix}student, {prefix}teacher", f"--key {prefix}student", f"key='{prefix}")
        for key, module in (("student", student), ("teacher", teacher)):
            found = nets.read(path, Stated(key=f"{prefix}{key}", activation="relu"))
            assert found.words == [] and agrees(found.population, module, module[0].in_features)

    def test_state_dicts_in_one_entry(self, tmp_path):
        student, teacher = stack(4, 6, 3), stack(4, 7, 3)
        held = {"student": student.state_dict(), "teacher": teacher.state_dict()}
        path = save({"model": held, "epoch": 3}, tmp_path / "net.ckpt")
        refusal(path, "entry 'student' is a OrderedDict", "--key model.student")
        refusal(path, "entry 'student' is a OrderedDict", "--key model.student", key="model")
        for key in ("teacher", "model.teacher"):
            assert agrees(us.load(path, key=key, activation="relu"), teacher, 4)

    def test_prefixes_in_safetensors(self, tmp_path):
        student, teacher = stack(4, 6, 3), stack(4, 7, 3)
        path = save(prefixed(student=student, teacher=teacher), tmp_path / "net.safetensors")
        refusal(path, "several networks, student, teacher", "--key student")
        assert agrees(us.load(path, key="teacher", activation="relu"), teacher, 4)
        refusal(path, "no key or prefix 'techer'", "did you mean teacher", key="techer")

    def test_a_copy_beside_the_network(self, tmp_path):
        model, ema = stack(4, 6, 3), stack(4, 6, 3)
        path = save(model.state_dict() | prefixed(ema=ema), tmp_path / "net.pt")
        refusal(path, "several networks, ema", "--key ema")

    def test_parts_of_one_network_are_no_networks(self, tmp_path):
        parts = {"encoder": stack(5, 4, 2), "decoder": stack(2, 3, 6)}
        found = nets.read(save(nn.ModuleDict(parts), tmp_path / "net.pt"))
        assert found.population.sizes == (5, 4, 2, 3, 6)

    def test_files_that_record_their_networks_have_no_keys(self, tmp_path):
        us.save(us.from_module(stack(4, 6, 3)), tmp_path / "ours")
        refusal(tmp_path / "ours", "key was given, but the file records its networks without one", key="model")
        torch.export.save(torch.export.export(stack(4, 6, 3), (torch.randn(5, 4),)), tmp_path / "net.pt2")
        refusal(tmp_path / "net.pt2", "key was given, but the file records its networks without one", key="model")

    def test_with_a_model_the_network_must_be_chosen(self, tmp_path):
        made = "nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))"
        (tmp_path / "net.py").write_text(f"from torch import nn\n\ndef net():\n    return {made}\n")
        model, ema = stack(4, 6, 3), stack(4, 6, 3)
        path = save({"model": model.state_dict(), "ema": ema.state_dict()}, tmp_path / "net.ckpt")
        refusal(path, "several networks, model, ema", "--key model", model=f"{tmp_path / 'net.py'}:net")
        assert agrees(us.load(path, key="ema", model=f"{tmp_path / 'net.py'}:net"), ema, 4)

    def test_shifts_of_batch_norm(self, tmp_path):
        norms = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)) for _ in range(2)]
        norms[1][1].bias.data.fill_(5)
        path = save({"model": norms[0].state_dict(), "ema": norms[1].state_dict()}, tmp_path / "net.ckpt")
        refusal(path, "several networks, model, ema", load=nets.bn_biases)
        assert nets.bn_biases(path, key="ema")[0][1].tolist() == [5, 5, 5]
