"""Networks of a run are selected by their parameters, and metrics are read as labelled arrays."""

import numpy as np
import pyarrow as pa
import pytest

from support.runs import made_run
from understudy._atomic import write_json, write_text
from understudy._errors import UserError
from understudy.store import Run
from understudy.store.config import to_toml
from understudy.store.tables import write_table
from understudy.store.units import read_units
from understudy.store.weights import write_weights

KINDS, SEEDS, EPOCHS = ("fc", "cnn"), (1, 2, 3), (0, 5, 10)


def value(kind, seed, epoch, layer):
    return 100 * KINDS.index(kind) + 10 * seed + epoch / 10 + (layer + 1) / 1000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two kinds of three seeds each, in a mixed order; network 4 diverged, and kind cnn has one layer only."""
    folder = tmp_path_factory.mktemp("run")
    order = [("fc", 2), ("cnn", 1), ("fc", 1), ("cnn", 3), ("fc", 3), ("cnn", 2)]
    rows = [
        (n, epoch, layer, "rho", value(kind, seed, epoch, layer))
        for n, (kind, seed) in enumerate(order)
        for epoch in EPOCHS
        for layer in (-1, 0, *((1,) if kind == "fc" else ()))
    ]
    rows += [(n, 10, -1, "late", float(n)) for n in range(6)]
    nodes = [
        (n, epoch, 0, "teacher", node, 0, value(kind, seed, epoch, 0) + node)
        for n, (kind, seed) in enumerate(order)
        for epoch in EPOCHS
        for node in range(2)
    ]
    write_text(folder / "config.toml", to_toml({"study": "made", "format": 3, "options": {}}))
    networks = {"network": range(6), "kind": [k for k, _ in order], "seed": [s for _, s in order]}
    diverged = pa.array([None] * 4 + [7, None], pa.int64())
    write_table(folder / "networks.parquet", pa.table(networks | {"diverged_at": diverged}))
    write_table(folder / "metrics.parquet", table(rows, "network epoch layer metric value"))
    write_table(folder / "nodes.parquet", table(nodes, "network epoch layer role teacher student correlation"))
    write_weights(folder / "weights.safetensors", {})
    write_json(folder / "environment.json", {"tables": ["networks", "metrics", "nodes"]})
    return Run(folder)


def table(rows, names):
    return pa.table(dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True)))


def test_an_array_has_the_value_of_every_network_at_its_place(run):
    found = run.array("rho", "kind seed layer epoch")
    assert found.dims == ("kind", "seed", "layer", "epoch")
    assert found["kind"].to_numpy().tolist() == ["fc", "cnn"]
    for kind in KINDS:
        for seed in SEEDS:
            for epoch in EPOCHS:
                for layer in (0, 1):
                    got = float(found.sel(kind=kind, seed=seed, epoch=epoch, layer=layer))
                    exists = (kind, seed) != ("fc", 3) and (kind, layer) != ("cnn", 1)
                    assert got == value(kind, seed, epoch, layer) if exists else np.isnan(got)


def test_the_order_of_dimensions_is_that_asked_for(run):
    one, other = run.array("rho", "kind seed epoch"), run.array("rho", "epoch seed kind")
    assert other.dims == ("epoch", "seed", "kind")
    np.testing.assert_array_equal(one, other.transpose("kind", "seed", "epoch"))


def test_an_array_carries_the_number_of_each_network_and_none_of_those_that_diverged(run):
    network = run.array("rho", "kind seed epoch")["network"]
    assert int(network.sel(kind="cnn", seed=3)) == 3
    assert int(network.sel(kind="fc", seed=3)) == -1


def test_networks_that_diverged_keep_what_they_recorded_if_asked_for(run):
    kept = run.array("rho", "kind seed epoch", diverged=True)
    assert kept["network"].sel(kind="fc", seed=3) == 4
    assert kept.sel(kind="fc", seed=3, epoch=5).item() == value("fc", 3, 5, -1)


def test_without_epochs_the_last_recorded_value_is_taken(run):
    last = run.array("rho", "kind seed")
    np.testing.assert_array_equal(last, run.array("rho", "kind seed epoch").isel(epoch=-1))


def test_epochs_are_those_at_which_the_metric_was_recorded(run):
    assert run.array("late").dims == ("network", "epoch")
    assert run.array("late")["epoch"].to_numpy().tolist() == [10]


def test_one_layer_or_epoch_is_read_alone(run):
    whole = run.array("rho", "kind seed layer epoch")
    np.testing.assert_array_equal(run.array("rho", "kind seed epoch", layer=1), whole.sel(layer=1))
    np.testing.assert_array_equal(run.array("rho", "kind seed layer epoch", epoch=5), whole.sel(epoch=[5]))


def test_without_a_layer_the_lowest_recorded_one_is_read():
    upper = made_run([{"seed": 1}], (0, 5), {("late", 2): [[0.3, 0.4]], ("late", 1): [[0.1, 0.2]]})
    assert upper.array("late", "seed epoch").to_numpy().tolist() == [[0.1, 0.2]]


def test_values_of_nodes_are_read_by_their_role(run):
    found = run.array("correlation", "kind seed epoch teacher")
    assert float(found.sel(kind="cnn", seed=2, epoch=5, teacher=1)) == value("cnn", 2, 5, 0) + 1
    last = run.array("correlation", "kind seed teacher")
    np.testing.assert_array_equal(last, found.isel(epoch=-1))


def test_networks_are_selected_by_one_value_or_several(run):
    assert run.select(kind="cnn").index.tolist() == [1, 3, 5]
    assert run.select(kind="cnn", seed=[1, 2]).index.tolist() == [1, 5]
    assert run.select(kind="cnn").select(seed=3).index.tolist() == [3]
    assert len(run.select(kind="none")) == 0
    assert run.select(kind="fc").values("seed") == [1, 2, 3]
    assert run.select().values("kind") == ["fc", "cnn"]


def test_the_start_and_the_end_of_a_metric_are_those_of_each_network(run):
    some = run.select(kind="fc")
    assert some.start("rho").tolist()[:2] == [value("fc", 2, 0, -1), value("fc", 1, 0, -1)]
    assert some.end("rho").tolist()[:2] == [value("fc", 2, 10, -1), value("fc", 1, 10, -1)]
    assert np.isnan(some.end("rho")[2])
    assert some.alive.tolist() == [True, True, False]


def test_networks_that_would_share_a_place_are_refused_with_what_tells_them_apart(run):
    with pytest.raises(UserError, match="several networks have the same kind; name seed among"):
        run.array("rho", "kind epoch")


def test_unknown_names_are_refused_with_those_that_exist(run):
    with pytest.raises(UserError, match="no metric rhö; it has late, rho"):
        run.array("rhö")
    with pytest.raises(UserError, match="networks have no column polarity; they have network, kind, seed"):
        run.select(polarity=1)
    with pytest.raises(UserError, match="has no table sets; it has networks, metrics, nodes"):
        run.table("sets")


def test_units_of_an_older_run_are_read_from_its_networks_and_metrics(run):
    found = read_units(run, "sets", kind="cnn")
    assert found["seed"].to_pylist() == [1, 3, 2]
    assert found["late"].to_pylist() == [1.0, 3.0, 5.0]
    assert "network" not in found.column_names


def test_curves_of_older_units_are_read_whole():
    losses = [[1.0, 2.0, np.nan], [np.nan] * 3, [3.0, 4.0, 5.0]]
    run = made_run([{"seed": 1}, {"seed": 2}, {"seed": 3}], range(3), {"loss": losses})
    assert read_units(run, "pairs", curves=("loss",))["loss"].to_pylist() == [[1.0, 2.0], [], [3.0, 4.0, 5.0]]


def test_a_metric_that_only_other_networks_record_is_nan():
    run = made_run([{"kind": "fc"}, {"kind": "cnn"}], metrics={"rank": [[1.0], [np.nan]]})
    assert np.isnan(run.select(kind="cnn").end("rank")).all()
