"""Network files: bit-exact round trips, state dicts of other programs, and errors for everything else."""

import itertools
import json
import os
import pickle
import struct
import tempfile
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from support.network_files import load, refusal
from understudy import nets
from understudy._errors import UserError
from understudy.nets import Layer, Population

STATE = "torch.save(model.state_dict(), path)"


def make(sizes: tuple[int, ...], count: int = 1, *, slope: float = 0.0, bias: bool = True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(sizes) + count)
    layers = tuple(
        Layer(
            torch.randn(count, out, into, generator=generator, dtype=dtype),
            torch.randn(count, out, generator=generator, dtype=dtype) if bias else None,
        )
        for into, out in itertools.pairwise(sizes)
    )
    return Population(layers, torch.arange(7, 7 + count), slope)


def state(*sizes: int, **extra: Tensor) -> dict[str, Tensor]:
    """State dict of `nn.Sequential(Linear, ReLU, Linear, …)`."""
    found = {}
    for i, (into, out) in enumerate(itertools.pairwise(sizes)):
        found |= {f"{2 * i}.weight": torch.randn(out, into), f"{2 * i}.bias": torch.randn(out)}
    return found | extra


def same(a: Population, b: Population) -> bool:
    tensors = [[t for layer in p.layers for t in layer if t is not None] for p in (a, b)]
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(a.seeds, b.seeds)
        and all(torch.equal(s, t) for s, t in zip(*tensors, strict=True))
        and all(t.is_contiguous() for t in tensors[1])
    )


populations = st.builds(
    make,
    st.lists(st.integers(1, 6), min_size=3, max_size=6).map(tuple),
    st.integers(1, 4),
    slope=st.sampled_from([0.0, 0.01, 1 / 3, -1.0, 1.0]) | st.floats(-2, 2),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)


class TestRoundTrip:
    @settings(max_examples=40, deadline=None)
    @given(populations)
    def test_population_bit_for_bit(self, population):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "networks.safetensors")
            nets.save(population, path)
            assert same(population, load(path))
            assert os.listdir(folder) == ["networks.safetensors"]

    @settings(max_examples=20, deadline=None)
    @given(populations, st.data())
    def test_one_of_a_population(self, population, data):
        which = data.draw(st.integers(0, len(population) - 1))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "network")
            nets.save(population, path, which=which)
            assert same(population[which], load(path))
            with safetensors.safe_open(path, "pt") as source:
                assert source.get_tensor("layers.0.weight").ndim == 2

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=3, max_size=6),
        st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
        st.booleans(),
        st.booleans(),
    )
    def test_state_dict_of_any_float(self, sizes, dtype, bias, legacy):
        parts = [nn.Linear(a, b, bias=bias, dtype=dtype) for a, b in itertools.pairwise(sizes)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "net.pt")
            torch.save(nn.Sequential(*parts).state_dict(), path, _use_new_zipfile_serialization=not legacy)
            loaded = load(path)
        assert loaded.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert loaded.shape.bias == bias
        for part, layer in zip(parts, loaded.layers, strict=True):
            assert torch.equal(layer.weight[0], part.weight.to(loaded.dtype))

    def test_layers_that_are_views_of_one_buffer(self, tmp_path):
        buffer = torch.randn(2, 3, 3)
        population = Population((Layer(buffer, None), Layer(buffer.transpose(1, 2), None)), torch.arange(2))
        nets.save(population, tmp_path / "n.safetensors")
        assert same(population, load(tmp_path / "n.safetensors"))

    def test_parameters_that_require_gradients(self, tmp_path):
        weight = torch.randn(1, 3, 3, requires_grad=True)
        nets.save(Population((Layer(weight, None),), torch.arange(1)), tmp_path / "n.safetensors")
        assert not load(tmp_path / "n.safetensors").layers[0].weight.requires_grad

    def test_loaded_networks_do_not_depend_on_the_file(self, tmp_path):
        population = make((2, 3, 1))
        nets.save(population, tmp_path / "n.safetensors")
        loaded = load(tmp_path / "n.safetensors")
        loaded.layers[0].weight.zero_()
        (tmp_path / "n.safetensors").write_bytes(b"")
        assert torch.equal(loaded.layers[1].weight, population.layers[1].weight)

    def test_saving_again_replaces(self, tmp_path):
        for sizes in ((2, 3, 1), (4, 4)):
            nets.save(make(sizes), tmp_path / "n.safetensors")
        assert load(tmp_path / "n.safetensors").sizes == (4, 4)

    def test_what_is_stated_must_agree_with_the_file(self, tmp_path):
        nets.save(make((2, 3, 1), slope=0.25), tmp_path / "n.safetensors")
        assert load(tmp_path / "n.safetensors").slope == load(tmp_path / "n.safetensors", activation=0.25).slope == 0.25
        refusal(tmp_path / "n.safetensors", "activation relu was given", "slope 0.25", activation="relu")
        refusal(tmp_path / "n.safetensors", "norm_order before was given", "no BatchNorm", norm_order="before")
        refusal(tmp_path / "n.safetensors", "padding was given, but the network has no convolution", padding=1)
        refusal(tmp_path / "n.safetensors", "records the order of its layers", order=["layers.0", "layers.1"])


class TestOtherPrograms:
    def test_outputs_equal_those_of_the_module(self, tmp_path):
        module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        torch.save(module.state_dict(), tmp_path / "net.pt")
        x = torch.randn(32, 5)
        assert torch.allclose(load(tmp_path / "net.pt")(x)[0], module(x), atol=1e-6)

    def test_leaky_slope_is_an_option(self, tmp_path):
        module = nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 3))
        torch.save(module.state_dict(), tmp_path / "net.pt")
        x = torch.randn(32, 5)
        assert torch.allclose(load(tmp_path / "net.pt", activation="leaky:0.2")(x)[0], module(x), atol=1e-6)

    @pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
    @pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
    def test_checkpoints_and_wrappers(self, tmp_path, key, prefix):
        inner = state(4, 3, 2)
        wrapped = OrderedDict((prefix + name, tensor) for name, tensor in inner.items())
        torch.save({"epoch": 3, key: wrapped, "optimizer": {"state": {}, "lr": 0.1}}, tmp_path / "net.ckpt")
        loaded = load(tmp_path / "net.ckpt")
        assert torch.equal(loaded.layers[1].weight[0], inner["2.weight"]) and loaded.slope == 0.0
        assert loaded.seeds.tolist() == [0]

    def test_one_linear_layer(self, tmp_path):
        torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "net.pt")
        assert load(tmp_path / "net.pt").sizes == (3, 2)

    def test_layers_are_sorted_by_number_not_by_text(self, tmp_path):
        sizes = range(2, 15)
        tensors = {f"fc{i}.weight": torch.randn(n + 1, n) for i, n in enumerate(sizes)}
        safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
        torch.save(dict(sorted(tensors.items())), tmp_path / "net.pt")
        for name in ("net.safetensors", "net.pt"):
            assert load(tmp_path / name).sizes == tuple(range(2, 16))

    def test_the_order_of_the_file_is_not_proof(self, tmp_path):
        torch.save({"hidden.weight": torch.eye(3) * 2, "first.weight": torch.eye(3)}, tmp_path / "net.pt")
        words = ("'hidden.weight' (3, 3), 'first.weight' (3, 3)", "more than one order", "--order hidden,first")
        refusal(tmp_path / "net.pt", *words, "order=['hidden', 'first']")
        assert load(tmp_path / "net.pt", order=["first", "hidden"]).layers[1].weight[0, 0, 0] == 2
        assert load(tmp_path / "net.pt", order=["hidden.weight", "first.weight"]).layers[0].weight[0, 0, 0] == 2

    def test_safetensors_without_numbers_are_ordered_by_their_sizes(self, tmp_path):
        tensors = {
            "head.weight": torch.randn(2, 4),
            "body.1.weight": torch.randn(4, 4),
            "body.0.weight": torch.randn(4, 7),
        }
        safetensors.torch.save_file(tensors, tmp_path / "net.safetensors")
        assert load(tmp_path / "net.safetensors").sizes == (7, 4, 4, 2)

    def test_missing_biases_become_zeros(self, tmp_path):
        torch.save(
            {"0.weight": torch.randn(3, 2), "2.weight": torch.ones(1, 3), "2.bias": torch.ones(1)}, tmp_path / "n"
        )
        loaded = load(tmp_path / "n")
        assert loaded.layers[0].bias.tolist() == [[0, 0, 0]] and loaded.layers[1].bias.tolist() == [[1]]

    def test_the_widest_precision_wins(self, tmp_path):
        torch.save({"0.weight": torch.randn(3, 2).half(), "1.weight": torch.randn(1, 3).double()}, tmp_path / "n")
        assert {layer.weight.dtype for layer in load(tmp_path / "n").layers} == {torch.float64}


class TestNotAFile:
    def test_missing(self, tmp_path):
        refusal(tmp_path / "absent.pt", "no such file", "safetensors", "torch.save", "check the path")

    def test_directory(self, tmp_path):
        (tmp_path / "folder").mkdir()
        refusal(tmp_path / "folder", "directory", "safetensors", "name a file in it")

    def test_not_regular(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        refusal(tmp_path / "pipe", "not a regular file")

    def test_empty(self, tmp_path):
        (tmp_path / "net.safetensors").touch()
        refusal(tmp_path / "net.safetensors", "empty", "0 bytes", "again")

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
    def test_not_readable(self, tmp_path):
        torch.save(state(2, 1), tmp_path / "net.pt")
        (tmp_path / "net.pt").chmod(0)
        refusal(tmp_path / "net.pt", "no permission to read", "permissions")


class TestNeitherFormat:
    @pytest.mark.parametrize("text", ["layer, weight\n0, 1.5\n", "x", "{}", "weights"])
    def test_text(self, tmp_path, text):
        (tmp_path / "net.csv").write_text(text)
        refusal(tmp_path / "net.csv", "neither safetensors nor written by torch.save", STATE)

    def test_other_zip(self, tmp_path):
        np.savez(tmp_path / "net.npz", x=np.zeros((2, 2)))
        refusal(tmp_path / "net.npz", "not written by torch.save", STATE)

    def test_safetensors_of_noise(self, tmp_path):
        (tmp_path / "net.safetensors").write_bytes(bytes(range(256)))
        refusal(tmp_path / "net.safetensors", "truncated or damaged", "again")

    def test_safetensors_of_unknown_dtype(self, tmp_path):
        header = json.dumps({"0.weight": {"dtype": "F7", "shape": [1, 1], "data_offsets": [0, 4]}}).encode()
        (tmp_path / "n.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        refusal(tmp_path / "n.safetensors", "truncated or damaged")


def write_safetensors(path: Path) -> None:
    nets.save(make((3, 4, 2), 2), path)


def write_zip(path: Path) -> None:
    torch.save(state(3, 4, 2), path)


def write_legacy(path: Path) -> None:
    torch.save(state(3, 4, 2), path, _use_new_zipfile_serialization=False)


WRITERS = {
    "net.safetensors": write_safetensors,
    "net.zip.pt": write_zip,
    "net.legacy.pt": write_legacy,
    "net": write_zip,
}


class TestTruncated:
    @settings(max_examples=120, deadline=None)
    @given(st.sampled_from(sorted(WRITERS)), st.floats(0, 1))
    def test_cut_anywhere(self, name, share):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            WRITERS[name](path)
            whole = path.read_bytes()
            kept = round(share * len(whole))
            path.write_bytes(whole[:kept])
            if kept == len(whole):
                assert load(path).sizes == (3, 4, 2)
            else:
                refusal(path)

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(sorted(WRITERS)), st.data())
    def test_changed_anywhere(self, name, data):
        """A changed byte gives other numbers or a UserError, never another exception."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            WRITERS[name](path)
            whole = bytearray(path.read_bytes())
            # Headers, at both ends of the file, are the most sensitive bytes.
            near = data.draw(st.integers(0, min(600, len(whole) - 1)))
            whole[near if data.draw(st.booleans()) else -1 - near] = data.draw(st.integers(0, 255))
            path.write_bytes(whole)
            try:
                load(path)
            except UserError as error:
                assert name in str(error)

    @pytest.mark.parametrize("name", ["net.safetensors", "net.zip.pt", "net.legacy.pt"])
    def test_the_message_names_the_damage(self, tmp_path, name):
        WRITERS[name](tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) - 20])
        refusal(tmp_path / name, "truncated", "damaged", "again")


class Mischief:
    """Object that creates a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


class TestCode:
    def code(self, path: Path) -> None:
        refusal(path, "contains Python code or objects other than tensors", "nothing was executed", STATE)

    @pytest.mark.parametrize("zipped", [True, False])
    def test_nothing_runs(self, tmp_path, zipped):
        target = tmp_path / "created"
        torch.save(state(2, 1) | {"extra": Mischief(target)}, tmp_path / "n.pt", _use_new_zipfile_serialization=zipped)
        self.code(tmp_path / "n.pt")
        assert not target.exists()
        torch.load(tmp_path / "n.pt", weights_only=False)
        assert target.exists(), "the file was harmless, so the test proves nothing"

    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_plain_pickles(self, tmp_path, protocol):
        target = tmp_path / "created"
        (tmp_path / "net.pkl").write_bytes(pickle.dumps(Mischief(target), protocol=protocol))
        self.code(tmp_path / "net.pkl")
        assert not target.exists()

    def test_code_that_torch_calls_itself(self, tmp_path):
        """Load a pickle in a zip archive that torch did not write."""
        target = tmp_path / "created"
        with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
            archive.writestr("net/data.pkl", pickle.dumps(Mischief(target), protocol=2))
            archive.writestr("net/version", "3\n")
        refusal(tmp_path / "net.pt", STATE)
        assert not target.exists()

    def test_whole_module(self, tmp_path):
        torch.save(nn.Sequential(nn.Linear(2, 1)), tmp_path / "model.pt")
        self.code(tmp_path / "model.pt")

    def test_torchscript(self, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(nn.Linear(2, 1), torch.zeros(1, 2)), tmp_path / "model.pt")
        refusal(tmp_path / "model.pt", "TorchScript", STATE)


class TestNotANetwork:
    @pytest.fixture(params=["net.safetensors", "net.pt"])
    def write(self, request, tmp_path):
        def put(tensors: dict[str, Tensor]) -> Path:
            path = tmp_path / request.param
            (safetensors.torch.save_file if path.suffix == ".safetensors" else torch.save)(tensors, path)
            return path

        return put

    def test_no_weights(self, write):
        refusal(write({"bias": torch.zeros(3)}), "no weights", "'*.weight'")
        refusal(write({}), "no weights", "0 tensors")

    @pytest.mark.parametrize("shape", [(8, 3, 5), (8, 3, 5, 5, 5), ()])
    def test_weights_of_other_layers(self, write, shape):
        refusal(write({"conv.weight": torch.zeros(shape)}), "'conv.weight'", str(shape), "2-D", "(out, in)", "--model")
        refusal(write({"even.weight": torch.zeros(8)}), "'even.weight' (8,)", "LayerNorm", "--model")

    def test_without_nodes(self, write):
        refusal(write({"0.weight": torch.zeros(0, 3)}), "'0.weight'", "(0, 3)", "non-empty")

    def test_layers_that_do_not_chain(self, write):
        path = write({"fc1.weight": torch.zeros(5, 4), "fc2.weight": torch.zeros(2, 6)})
        refusal(path, "'fc1.weight' (5, 4)", "'fc2.weight' (2, 6)", "has 5 nodes", "takes 6", "must be equal")

    def test_bias_that_does_not_fit(self, write):
        path = write({"0.weight": torch.zeros(5, 4), "0.bias": torch.zeros(4)})
        refusal(path, "'0.bias'", "must have shape (5,)", "'0.weight' (5, 4)", "got (4,)")

    def test_bias_without_weight(self, write):
        refusal(write(state(2, 1) | {"shift.bias": torch.zeros(1)}), "'shift.bias'", "no weight")

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64])
    def test_wrong_dtype(self, write, dtype):
        allowed = "float16, bfloat16, float32, float64"
        refusal(write({"0.weight": torch.zeros(2, 2, dtype=dtype)}), "'0.weight'", str(dtype)[6:], allowed)
        path = write({"0.weight": torch.zeros(2, 2), "0.bias": torch.zeros(2, dtype=dtype)})
        refusal(path, "'0.bias'", str(dtype)[6:], allowed)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_not_finite(self, write, bad):
        tensors = state(3, 4, 2)
        tensors["2.weight"].view(-1)[:3] = bad
        refusal(write(tensors), "'2.weight'", "3 of 8", "NaN or infinite", "must be finite")

    def test_unknown_tensors(self, write):
        prelu = state(3, 4, 2) | {"1.alpha": torch.zeros(4)}
        refusal(write(prelu), "'1.alpha' (4,)", "belongs to no fully connected layer", "'*.weight', '*.bias'")
        refusal(write(state(3, 2, seeds=torch.arange(1))), "'seeds' (1,)", "belongs to no fully connected layer")


class TestNotAStateDict:
    @pytest.mark.parametrize(
        ("found", "kind"), [([torch.zeros(2, 2)], "list"), (torch.zeros(2, 2), "Tensor"), (3, "int")]
    )
    def test_other_objects(self, tmp_path, found, kind):
        torch.save(found, tmp_path / "n.pt")
        refusal(tmp_path / "n.pt", f"the file is a {kind}", "state dict is needed", STATE)

    @pytest.mark.parametrize("found", [{"epoch": 3}, {0: torch.zeros(2, 2)}, {"mine": {"0.weight": torch.zeros(2, 2)}}])
    def test_other_dicts(self, tmp_path, found):
        torch.save(found, tmp_path / "n.pt")
        refusal(
            tmp_path / "n.pt",
            f"entry {next(iter(found))!r}",
            "state dict of named tensors",
            "state_dict, model_state_dict, model",
            STATE,
        )

    def test_sparse_and_absent_weights(self, tmp_path):
        for weight in (torch.eye(2).to_sparse(), torch.zeros(2, 2, device="meta")):
            torch.save({"0.weight": weight}, tmp_path / "n.pt")
            refusal(tmp_path / "n.pt", "'0.weight'", "sparse or absent", "float32")


class TestOurOwnFormat:
    def put(self, path: Path, tensors: dict[str, Tensor], **stated: object) -> Path:
        text = json.dumps({"version": 1, "slope": 0.0} | stated)
        safetensors.torch.save_file(tensors, path, {"understudy": text})
        return path

    def test_newer_version(self, tmp_path):
        path = self.put(tmp_path / "n.safetensors", {"layers.0.weight": torch.zeros(1, 2, 2)}, version=2)
        refusal(path, "format version 2", "reads version 1", "upgrade")

    @pytest.mark.parametrize("slope", [float("nan"), float("inf")])
    def test_bad_slope(self, tmp_path, slope):
        path = self.put(tmp_path / "n.safetensors", {"layers.0.weight": torch.zeros(1, 2, 2)}, slope=slope)
        refusal(path, str(slope), "finite")

    @pytest.mark.parametrize("slope", ["steep", None, [1]])
    def test_damaged_metadata(self, tmp_path, slope):
        path = self.put(tmp_path / "n.safetensors", {"layers.0.weight": torch.zeros(1, 2, 2)}, slope=slope)
        refusal(path, "metadata", "damaged", "save the networks again")

    def test_the_same_networks_give_the_same_bytes(self, tmp_path):
        files = [tmp_path / f"{i}.safetensors" for i in range(8)]
        for file in files:
            nets.save(make((3, 4, 2), 2), file)
        assert len({file.read_bytes() for file in files}) == 1

    @pytest.mark.parametrize("seeds", [torch.arange(2), torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64)])
    def test_bad_seeds(self, tmp_path, seeds):
        path = self.put(tmp_path / "n.safetensors", {"layers.0.weight": torch.zeros(3, 2, 2), "seeds": seeds})
        refusal(path, "'seeds'", str(tuple(seeds.shape)), "int64 (3,)")

    @pytest.mark.parametrize("other", [(2, 2, 2), (2, 2)])
    def test_different_numbers_of_networks(self, tmp_path, other):
        tensors = {"layers.0.weight": torch.zeros(3, 2, 2), "layers.1.weight": torch.zeros(other)}
        refusal(self.put(tmp_path / "n.safetensors", tensors), "'layers.0.weight' (3, 2, 2)", str(other), "networks")

    def test_ambiguous_order_of_layers(self, tmp_path):
        path = tmp_path / "n.safetensors"
        safetensors.torch.save_file({"top.weight": torch.eye(3), "low.weight": torch.eye(3)}, path)
        refusal(path, "'low.weight' (3, 3)", "'top.weight' (3, 3)", "more than one order", "--order low,top")


class TestSaving:
    def refusal(self, path: Path, *words: str, population: Population | None = None, which: int | None = None) -> None:
        with pytest.raises(UserError) as caught:
            nets.save(make((2, 1), 3) if population is None else population, path, which=which)
        for word in (path.name, *words):
            assert word in str(caught.value)

    @pytest.mark.parametrize("which", [-1, 3])
    def test_which(self, tmp_path, which):
        self.refusal(tmp_path / "n.safetensors", f"network {which}", "0 to 2", which=which)
        assert not list(tmp_path.iterdir())

    def test_no_networks(self, tmp_path):
        self.refusal(tmp_path / "n.safetensors", "0 networks", population=make((2, 1))[[]])

    def test_directory(self, tmp_path):
        self.refusal(tmp_path, "directory", "name a file in it")

    def test_no_directory(self, tmp_path):
        self.refusal(tmp_path / "absent" / "n.safetensors", "does not exist", "create it")

    def test_a_failed_write_leaves_the_old_file_alone(self, tmp_path, monkeypatch):
        path = tmp_path / "n.safetensors"
        nets.save(make((2, 1)), path)
        before = path.read_bytes()

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        self.refusal(path, "could not be written", "No space left on device", "room")
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
