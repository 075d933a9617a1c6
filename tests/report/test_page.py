"""The page in a browser: it draws, sorts, filters, marks networks, changes its theme, and logs no errors."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure as PaperFigure

from understudy.report.page import data as page_data
from understudy.report.page import document as page_module
from understudy.report.story import Figure, Number, Story, split_headline
from understudy.store.claims import Claim

NODES = 20
SEEDS = 48
POLARITIES = (0.0, 0.5, 1.0, 1.5)
MULTIPLES = (1, 2, 5, 10)
NETWORKS = SEEDS * len(POLARITIES) * len(MULTIPLES)
EPOCHS = np.arange(0, 101, 4)
COLOURS = ("#56B4E9", "#009E73", "#0072B2", "#000000")


@dataclass(frozen=True)
class Given:
    """A kind of figure with given plotly JSON."""

    drawn: dict[str, Any]

    def paper(self) -> PaperFigure:
        return PaperFigure()

    def page(self) -> dict[str, Any]:
        return self.drawn


def networks() -> dict[str, np.ndarray]:
    number = np.arange(NETWORKS)
    return {
        "network": number,
        "polarity": np.array(POLARITIES)[number // SEEDS % 4],
        "multiple": np.array(MULTIPLES)[number // SEEDS // 4],
        "seed": number % SEEDS + 1,
    }


def matched_nodes() -> pa.Table:
    rng = np.random.default_rng(7)
    nets = {name: np.repeat(values, NODES) for name, values in networks().items()}
    teacher = np.tile(np.arange(NODES), NETWORKS)
    strength = (teacher + 1.0) ** -nets["polarity"]
    gain = strength * nets["multiple"] ** 0.7
    correlation = 1 - np.exp(-3 * gain) * rng.uniform(0.2, 0.9, len(teacher))
    recovered = correlation > 0.95
    when = np.clip((30 / gain**0.6 * rng.uniform(0.5, 1.5, len(teacher))).astype(int), 1, 100)
    return pa.table(
        {
            **{name: pa.array(values) for name, values in nets.items()},
            "layer": pa.array(np.zeros(len(teacher), np.int8)),
            "teacher": pa.array(teacher),
            "strength": pa.array(strength),
            "student": pa.array(rng.integers(0, 20 * nets["multiple"])),
            "correlation": pa.array(correlation),
            "sin_angle": pa.array(np.sqrt(1 - correlation**2)),
            "bias_gap": pa.array(rng.exponential(0.02, len(teacher))),
            "recovered_at": pa.array([int(t) if r else None for t, r in zip(when, recovered, strict=True)]),
        }
    )


def typed(array: np.ndarray) -> dict[str, Any]:
    return page_data.typed_array(array)


def averages() -> dict[str, Any]:
    """Mean curves, one panel per polarity, and the curve of every network."""
    nets, rng = networks(), np.random.default_rng(1)
    rate = 0.02 * nets["multiple"] ** 0.6 * (1.8 - nets["polarity"]) * rng.uniform(0.6, 1.5, NETWORKS)
    curves = 1 - np.exp(-rate[:, None] * EPOCHS[None])
    data, layout = [], {"height": 380, "showlegend": False, "annotations": [], "meta": {"minWidth": 720}}
    for panel, polarity in enumerate(POLARITIES):
        axis = "" if panel == 0 else str(panel + 1)
        domain = [panel * 0.255, panel * 0.255 + 0.235]
        layout[f"xaxis{axis}"] = {"domain": domain, "title": {"text": "epoch"}, "anchor": f"y{axis}", "dtick": 25}
        layout[f"yaxis{axis}"] = {"range": [0, 1.02], "anchor": f"x{axis}", "showticklabels": panel == 0}
        layout["annotations"].append(
            {
                "text": f"p = {polarity:g}",
                "x": domain[0],
                "xanchor": "left",
                "y": 1.1,
                "xref": "paper",
                "yref": "paper",
                "showarrow": False,
            }
        )
        for multiple, colour in zip(MULTIPLES, COLOURS, strict=True):
            chosen = curves[(nets["polarity"] == polarity) & (nets["multiple"] == multiple)]
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": f"{multiple}×",
                    "x": typed(EPOCHS),
                    "y": typed(chosen.mean(0)),
                    "xaxis": f"x{axis}",
                    "yaxis": f"y{axis}",
                    "line": {"color": colour, "width": 2},
                }
            )
    axes = ["" if p == 0 else str(p + 1) for p in nets["network"] // SEEDS % 4]
    own = {
        "id": typed(nets["network"]),
        "xaxis": [f"x{a}" for a in axes],
        "yaxis": [f"y{a}" for a in axes],
        "x": typed(EPOCHS),
        "y": typed(curves),
    }
    return {"data": data, "layout": layout, "networks": own}


def points() -> dict[str, Any]:
    table = matched_nodes().slice(0, 3000)
    column = {name: table[name].to_numpy() for name in ("network", "teacher", "student", "strength", "correlation")}
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": column["strength"],
        "y": column["correlation"],
        "customdata": np.stack([column["network"], column["teacher"], column["student"]], 1),
        "marker": {"size": 5, "color": "#0072B2", "opacity": 0.5},
        "hovertemplate": "network %{customdata[0]}, node %{customdata[1]}: %{y:.3f}<extra></extra>",
    }
    layout = {"xaxis": {"title": {"text": "strength"}, "type": "log"}, "yaxis": {"title": {"text": "best correlation"}}}
    return {"data": [trace], "layout": layout}


def film() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    ids = np.stack([np.arange(12), np.full(12, -1), np.full(12, -1)], 1)
    place = rng.normal(size=(12, 2))

    def frame(t: float) -> dict[str, Any]:
        return {"x": place[:, 0] * (1 - t), "y": place[:, 1] * (1 - t), "customdata": ids}

    data = [{"type": "scatter", "mode": "markers", "marker": {"color": "black", "size": 9}, **frame(0)}]
    frames = [{"name": str(epoch), "data": [frame(epoch / 100)]} for epoch in range(0, 101, 10)]
    axis = {"range": [-3, 3]}
    return {"data": data, "layout": {"xaxis": dict(axis), "yaxis": dict(axis)}, "frames": frames}


def inputs(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    figures = (
        Figure(
            "recovery",
            "Over-realized students recover more",
            "Mean share of teacher nodes recovered, by epoch.",
            "S0 fig 7, S1 fig 5",
            Given(averages()),
        ),
        Figure(
            "strength",
            "Strong nodes are learned first",
            "Each point is a teacher node and its best student.",
            "S0 fig 5",
            Given(points()),
        ),
        Figure(
            "motion",
            "Students gather at the teacher",
            "Distance of each student to its node, epoch by epoch.",
            "S1 fig 2",
            Given(film()),
        ),
    )
    given: dict[str, Any] = {
        "title": "Recovery against over-realization",
        "story": Story(
            "With 5 times the nodes every teacher neuron was recovered by epoch 21; with as many nodes as the teacher, "
            "16 of 20 never were.",
            (
                Number("768", "networks"),
                Number("82.4 %", "teacher nodes recovered"),
                Number("3.1e-5", "median evaluation loss"),
                Number("41 s", "training time"),
                Number("2 of 3", "claims held"),
            ),
            figures,
        ),
        "table": matched_nodes(),
        "claims": [
            Claim(
                id="S0-F7",
                statement="Students with 5 times the nodes recover every teacher node.",
                paper="≥ 0.95",
                measured="0.981 ± 0.012",
                n=48,
                holds=True,
                part="5×, p = 1",
                values=tuple(rng.normal(0.981, 0.012, 48)),
                low=0.95,
            ),
            Claim(
                id="S0-T1",
                statement="Losses at the end lie within the tolerance.",
                paper="1.0",
                measured="1.03 ± 0.2",
                n=768,
                holds=True,
                part="",
                values=tuple(rng.normal(1.03, 0.2, 768)),
                low=0.2,
                high=1.8,
            ),
            Claim(
                id="S1-C2",
                statement="The correlation of weak nodes stays low.",
                paper="0.4 to 0.5",
                measured="0.61 ± 0.04",
                n=12,
                holds=False,
                part="",
                values=tuple(rng.normal(0.61, 0.04, 12)),
                low=0.4,
                high=0.5,
            ),
        ],
        "settings": {
            "study": "recovery",
            "epochs": 100,
            "teacher": {"sizes": [100, 20, 50], "separated": True},
            "lr": 0.01,
            "batch": 16,
        },
        "environment": {"python": "3.12.3", "torch": "2.11.0", "cores": 8, "commit": "d112c1e"},
        "command": "understudy run recovery --epochs 100 --seeds 48",
        "files": ["config.toml", "networks.parquet", "figures/recovery.pdf", "figures/recovery.svg"],
    }
    return given | changes


def write_page(path: Path, **parts: Any) -> None:
    path.write_bytes(page_module.page(**parts))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, **inputs())
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("needs chromium and chromedriver on the path")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for word in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "disable-dev-shm-usage",
        "window-size=1280,900",
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    yield driver
    driver.quit()


class Opened:
    """The page in the browser, with the actions of the tests."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.get(path.as_uri())

    def js(self, code: str, *args: Any) -> Any:
        return self.driver.execute_script(code, *args)

    def until(self, code: str, *args: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20).until(lambda _: self.js(f"return {code}", *args), code)

    def draw_all(self, figures: int = 3) -> None:
        self.js("document.documentElement.style.scrollBehavior = 'auto'")
        for number in range(1, figures + 1):
            self.js("arguments[0].scrollIntoView()", self.find(f"#figure-{number}"))
            self.until(f"document.querySelector('#figure-{number}').dataset.drawn === 'yes'")

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", self.find(selector))
        self.find(selector).click()

    def choose(self, label: str, text: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.find(f'#filters select[name="{label}"]')).select_by_visible_text(text)

    def column(self, name: str) -> list[str]:
        return self.js(
            """const heads = [...document.querySelectorAll("#scroller th")].map((th) => th.textContent);
            const at = heads.indexOf(arguments[0]) + 1;
            const cells = document.querySelectorAll(`#scroller tr[data-at] td:nth-child(${at})`);
            return [...cells].map((td) => td.textContent)""",
            name,
        )

    @property
    def count(self) -> str:
        return self.find("#count").text

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[Any]:
        return [entry for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Opened]:
    page = Opened(browser, written)
    yield page
    assert page.complaints() == []


HEAD = "#scroller th:nth-child({})"


def test_opens_fast_and_small(opened: Opened, written: Path) -> None:
    timing = "performance.getEntriesByType('navigation')[0]"
    opened.until(f"{timing}.loadEventEnd > 0")
    loaded = opened.js(f"return {timing}.domContentLoadedEventEnd")
    print(f"\nread after {loaded:.0f} ms, {written.stat().st_size / 1e6:.2f} MB")
    assert loaded < 5000
    assert written.stat().st_size < 8e6
    assert opened.js("return performance.getEntriesByType('resource').length") == 0


def test_draws_every_figure(opened: Opened) -> None:
    opened.draw_all()
    assert len(opened.driver.find_elements("css selector", ".figure .main-svg")) >= 3
    assert opened.find("#figure-1 .source").text == "after Tian 2020, fig. 7; Tian 2019, fig. 5 · PDF · SVG"
    assert opened.js("return document.querySelector('#figure-2 .plot').data[0].customdata.length") == 3000


def test_an_animation_keeps_the_marked_network(opened: Opened) -> None:
    opened.draw_all()
    plot = "document.querySelector('#figure-3 .plot')"
    assert opened.js(f"return {plot}.layout.sliders[0].steps.length") == 11
    opened.js(f"{plot}.emit('plotly_click', {{points: [{{customdata: [4, -1, -1]}}]}})")
    opened.until(f"{plot}.data[0].selectedpoints?.join() === '4'")
    opened.js("window.Plotly.animate(arguments[0], ['100'], {mode: 'immediate'})", opened.find("#figure-3 .plot"))
    opened.until(f"Math.abs({plot}.data[0].x[0]) < 1e-6")
    opened.until(f"{plot}.data[0].selectedpoints?.join() === '4'")


def test_a_film_has_a_button_that_plays_it_from_the_beginning(opened: Opened) -> None:
    opened.draw_all()
    plot = "document.querySelector('#figure-3 .plot')"
    play, stop = opened.js(f"return {plot}.layout.updatemenus[0].buttons.map((button) => button.args[0])")
    assert (play, stop) == (None, [None])
    assert not opened.js(f"return {plot}.layout.sliders[0].active")
    opened.js("window.Plotly.animate(arguments[0], null, arguments[1])", opened.find("#figure-3 .plot"),
              {"fromcurrent": True, "frame": {"duration": 1}, "transition": {"duration": 0}})  # fmt: skip
    opened.until(f"Math.abs({plot}.data[0].x[0]) < 1e-6")


@pytest.mark.parametrize(
    "headline",
    [
        inputs()["story"].headline,
        "On the digits of MNIST, from 100 inputs, the expected risk is 0.000804 (0 to 0.00193) at δ = 0 and 0.353 "
        "(0.341 to 0.366) at δ = 90, and higher at each δ than at the one before; the widest " + "M" * 200 + ".",
    ],
)
def test_a_figure_is_visible_on_a_laptop(browser: Any, tmp_path: Path, headline: str) -> None:
    story = replace(inputs()["story"], headline=headline)
    write_page(tmp_path / "report.html", **inputs(story=story))
    page = Opened(browser, tmp_path / "report.html")
    browser.set_window_size(1366, 768 + browser.get_window_size()["height"] - page.js("return innerHeight"))
    title = page.js("const s = getComputedStyle(document.querySelector('h1')); return parseFloat(s.lineHeight)")
    assert page.js("return document.querySelector('h1').getBoundingClientRect().height") <= 2 * title + 1
    assert page.js("return document.querySelector('.plot').getBoundingClientRect().top") < 768 - 200


def test_a_heat_map_of_the_marked_network_is_framed(browser: Any, tmp_path: Path) -> None:
    maps = [
        {"type": "heatmap", "z": [[0, 1]], "meta": {"network": n}, "xaxis": f"x{n}", "yaxis": f"y{n}"} for n in (2, 3)
    ]
    layout = {f"{letter}axis{n}": {"showline": False} for letter in "xy" for n in (2, 3)}
    figure = Figure("maps", "Maps", "Each of one network.", "", Given({"data": maps, "layout": layout}))
    story = replace(inputs()["story"], figures=(figure,))
    write_page(tmp_path / "report.html", **inputs(story=story))
    page = Opened(browser, tmp_path / "report.html")
    page.draw_all(1)
    plot = "document.querySelector('#figure-1 .plot')"
    click = f"{plot}.emit('plotly_click', {{points: [{{data: {plot}.data[1], x: 'a'}}]}})"
    page.js(click)
    page.until(f"{plot}.layout.xaxis3.mirror === true && {plot}.layout.xaxis2.mirror === false")
    page.js(click)
    page.until(f"{plot}.layout.xaxis3.mirror === false && {plot}.layout.xaxis3.showline === false")


def test_empty_columns_are_left_out(tmp_path: Path) -> None:
    table = matched_nodes()
    empty = pa.nulls(table.num_rows, pa.float32())
    content = page_module.page(**inputs(table=table.append_column("empty_one", empty))).decode()
    assert '"name":"correlation"' in content and "empty_one" not in content


def test_a_page_says_what_would_decide_claims(tmp_path: Path) -> None:
    words = "T1 needs 32 seeds and 100 epochs: run understudy run two-layer."
    assert words in page_module.page(**inputs(claims=[], undecided=words)).decode()


def test_sorts_numbers_as_numbers(opened: Opened) -> None:
    opened.click(HEAD.format(1) + " button")
    assert opened.find(HEAD.format(1)).get_attribute("aria-sort") == "ascending"
    assert opened.column("network")[0] == "0"
    opened.find(HEAD.format(1) + " button").send_keys("\ue007")
    assert opened.find(HEAD.format(1)).get_attribute("aria-sort") == "descending"
    assert opened.column("network")[0] == str(NETWORKS - 1)
    opened.click(HEAD.format(9) + " button")
    correlations = [float(text) for text in opened.column("correlation")]
    assert correlations == sorted(correlations)
    opened.click(HEAD.format(12) + " button")
    assert opened.column("recovered at")[0] == str(min(filter(None, matched_nodes()["recovered_at"].to_pylist())))
    opened.js("document.querySelector('#scroller').scrollTop = 1e9")
    opened.until("document.querySelector('#scroller tr[data-at=\"15359\"]') !== null")
    assert opened.column("recovered at")[-1] == "never"


def test_keeps_few_rows_in_the_document(opened: Opened) -> None:
    assert opened.js("return document.querySelectorAll('#scroller tr').length") < 80
    height = opened.js("return document.querySelector('#scroller').scrollHeight")
    assert abs(height - 15360 * 32) < 100


def test_searches_and_filters(opened: Opened) -> None:
    table = matched_nodes()
    assert opened.count == "15,360 of 15,360 rows"
    opened.find("#search").send_keys("seed=3 correlation<0.9")
    wanted = ((table["seed"].to_numpy() == 3) & (table["correlation"].to_numpy() < 0.9)).sum()
    assert opened.count == f"{wanted:,} of 15,360 rows"
    assert set(opened.column("seed")) == {"3"}
    opened.click("#reset")
    opened.choose("multiple", "5")
    opened.choose("polarity", "1.5")
    assert opened.count == "960 of 15,360 rows"
    never = sum(
        m == 5 and p == 1.5 and t is None
        for m, p, t in zip(*(table[name].to_pylist() for name in ("multiple", "polarity", "recovered_at")), strict=True)
    )
    opened.choose("recovered", "never")
    assert opened.count == f"{never:,} of 15,360 rows"
    opened.find("#search").send_keys("zebra")
    assert opened.count == "0 of 15,360 rows"
    assert opened.js("return document.querySelectorAll('#filters select[name=layer]').length") == 0, "only one layer"


def test_filters_by_strength(opened: Opened) -> None:
    options = opened.js("return [...document.querySelectorAll('select[name=strength] option')].map((o) => o.text)")
    opened.choose("strength", options[-1])
    strength = np.sort(matched_nodes()["strength"].to_numpy())
    edge = strength[len(strength) // 4]
    assert options[-1] == f"weakest quarter: {strength[0]:.4f} to {edge:.4f}"
    assert opened.count == f"{(strength < edge).sum():,} of 15,360 rows"
    assert all(float(text) < edge for text in opened.column("strength"))


def test_downloads_the_selected_rows(opened: Opened, tmp_path: Path) -> None:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    opened.find("#search").send_keys("network=17")
    opened.click("#csv")
    path = tmp_path / "matched-nodes.csv"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(opened.driver, 20).until(lambda _: path.exists() and path.stat().st_size)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("network,polarity,multiple,seed,layer,teacher")
    assert len(lines) == 1 + NODES
    assert lines[1].startswith("17,0,1,18,0,0,1,")


def test_a_row_marks_its_network_everywhere(opened: Opened) -> None:
    opened.draw_all()
    opened.find("#search").send_keys("network=17 teacher=4")
    opened.click('#scroller tr[data-at="0"] td')
    assert opened.find("#chip span").text == "network 17 · p=0 · 1× · seed 18 · teacher node 4"
    overlays = "document.querySelector('#figure-{} .plot').data.filter((t) => t.meta?.overlay).length"
    opened.until(overlays.format(1) + " === 2")
    opened.until(overlays.format(2) + " === 1")
    selected = opened.js("return Array.from(document.querySelector('#figure-2 .plot').data[0].selectedpoints)")
    assert selected == list(range(17 * NODES, 18 * NODES))
    opened.keys("\ue00c")
    assert not opened.find("#chip").is_displayed()
    opened.until(overlays.format(1) + " === 0")
    opened.until("document.querySelector('#figure-2 .plot').data[0].selectedpoints === undefined")


def test_a_point_scrolls_the_table_to_its_network(opened: Opened) -> None:
    opened.draw_all()
    opened.js("document.querySelector('#figure-2 .plot').emit('plotly_click', {points: [{customdata: [120, 7, 3]}]})")
    assert opened.find("#chip span").text.startswith("network 120 · ")
    row = 120 * NODES + 7
    opened.until(f"document.querySelector('#row-{row}.chosen') !== null")
    opened.click("#only")
    assert opened.count == f"{NODES} of 15,360 rows"
    opened.click("#chip button")
    assert opened.count == "15,360 of 15,360 rows"


def test_a_real_click_on_a_point(opened: Opened) -> None:
    opened.draw_all()
    from selenium.webdriver import ActionChains

    opened.js("document.querySelector('#figure-3').scrollIntoView({block: 'center', behavior: 'instant'})")
    point = opened.find("#figure-3 .scatterlayer .point")
    ActionChains(opened.driver).move_to_element(point).pause(0.3).click().perform()
    opened.until("!document.querySelector('#chip').hidden")
    assert re.match(r"network \d+ · p=0 · 1× · seed \d+$", opened.find("#chip span").text)


def test_works_from_the_keyboard(opened: Opened) -> None:
    opened.js("document.querySelector('#scroller table').focus()")
    opened.keys("\ue015", "\ue015", "\ue007")
    assert opened.find("#chip span").text.endswith("teacher node 2")
    assert opened.find("#scroller table").get_attribute("aria-activedescendant") == "row-2"
    opened.keys("\ue010")
    opened.until("document.querySelector('#row-15359.active') !== null")


def test_switches_and_remembers_the_theme(opened: Opened, written: Path) -> None:
    opened.draw_all()
    background = "getComputedStyle(document.body).backgroundColor"
    trace = "document.querySelector('#figure-3 .plot').data[0].marker.color"
    light, ink = opened.js(f"return {background}"), opened.js(f"return {trace}")
    opened.click("#theme")
    assert opened.js(f"return {background}") != light
    opened.until(f"{trace} !== '{ink}'")
    opened.driver.get(written.as_uri())
    assert opened.js(f"return {background}") != light
    opened.click("#theme")
    assert opened.js(f"return {background}") == light
    opened.js("localStorage.clear()")


def test_marks_lines_of_many_kinds(browser: Any, tmp_path: Path) -> None:
    x = np.arange(4.0)
    several = {  # two networks in one trace, kept apart by a gap
        "type": "scatter",
        "mode": "lines",
        "x": [0, 1, None, 0, 1],
        "y": [0, 1, None, 1, 0],
        "customdata": [[0, -1, -1], [0, -1, -1], [-1, -1, -1], [1, -1, -1], [1, -1, -1]],
    }
    alone = [{"type": "scatter", "mode": "lines", "x": x, "y": x, "customdata": [[n, -1, -1]] * 4} for n in (1, 0)]
    other = {"type": "scatter", "mode": "markers", "x": x, "y": x, "customdata": [[9, -1, -1]] * 4}
    fast = {"type": "scattergl", "mode": "markers", "x": x, "y": x, "customdata": [[i, i, 0] for i in range(4)]}
    nodes = {"id": [0, 1], "xaxis": "x", "yaxis": "y", "x": x, "y": np.arange(24.0).reshape(2, 3, 4)}
    drawn = [
        {"data": [several]},
        {"data": alone},
        {"data": [fast]},
        {"data": [{"x": x, "y": x}], "networks": nodes},
        {"data": [other]},
    ]
    figures = tuple(Figure(f"f{i}", "", "", "", Given({"layout": {}} | one)) for i, one in enumerate(drawn))
    write_page(tmp_path / "report.html", **inputs(story=Story("Lines.", (), figures), files=[]))
    page = Opened(browser, tmp_path / "report.html")
    page.draw_all()
    for number in (4, 5):
        page.until(f"document.querySelector('#figure-{number}').dataset.drawn === 'yes'")
    page.find("#search").send_keys("network=0 teacher=1")
    page.click('#scroller tr[data-at="0"] td')
    page.until("document.querySelector('#figure-1 .plot').data.length === 3")
    data = [page.js(f"return document.querySelector('#figure-{i} .plot').data") for i in range(1, 6)]
    assert data[0][0]["opacity"] < 0.2 and [trace["y"] for trace in data[0][1:]] == [[0, 1], [0, 1]]
    assert data[1][0]["opacity"] < 0.2 and data[1][1]["opacity"] == 1 and len(data[1]) == 2
    assert data[4][0].get("selectedpoints") is None, "nothing of that network here"
    assert data[2][0]["type"] == "scatter", "few points need no WebGL"
    assert data[2][0]["selectedpoints"] == [0] and len(data[2]) == 1, "no point is node 1 of network 0"
    assert data[3][-1]["y"] == [4, 5, 6, 7], "the marked node's own line comes last"
    assert data[3][1]["y"] == [0, 1, 2, 3, None, 4, 5, 6, 7, None, 8, 9, 10, 11, None]
    page.keys("\ue00c")
    counts = "[...document.querySelectorAll('.plot')].map((plot) => plot.data.length).join()"
    page.until(f"{counts} === '1,2,1,1,1'")
    assert page.complaints() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_fits_the_screen(opened: Opened, width: int) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    opened.draw_all()
    assert opened.js("return document.documentElement.scrollWidth") <= width
    assert opened.js("return document.querySelector('#figure-1 .plot').clientWidth") == (720 if width == 400 else 1088)
    drawn = "document.querySelector('#figure-2 .main-svg').clientWidth"
    opened.until(f"{drawn} === document.querySelector('#figure-2 .plot').clientWidth")


def test_prints_every_figure_and_the_first_rows(opened: Opened) -> None:
    opened.until("document.querySelector('#figure-1').dataset.drawn === 'yes'")
    rows = "document.querySelectorAll('tr[data-at]').length"
    widths = "[...document.querySelectorAll('.figure')].map((f) => f.querySelector('.main-svg')?.clientWidth)"
    opened.js(f"addEventListener('beforeprint', () => {{ window.rows = {rows}; window.widths = {widths}; }})")
    opened.driver.print_page()
    assert opened.js("return window.rows") == 50
    assert opened.js("return window.widths") == [680, 680, 680], "also those that were never scrolled to"
    opened.until(f"{widths}.every((width) => width === 1088)")
    assert opened.js("return document.querySelector('#printed').hidden")
    assert "50 of 15,360" in opened.js("return document.querySelector('#printed').textContent")


def test_text_is_escaped(browser: Any, tmp_path: Path) -> None:
    evil = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>$title"
    table = pa.table({"network": [0, 1], "name": [evil, "b"], "layer": [0, 0], "teacher": [0, 0]})
    drawn = {"data": [{"type": "scatter", "x": [1], "y": [1], "name": evil}], "layout": {"showlegend": False}}
    figure = Figure(f"n{evil}", evil, evil, evil, Given(drawn))
    path = tmp_path / "report.html"
    write_page(
        path,
        title=evil,
        story=Story(evil, (Number(evil, evil),), (figure,)),
        table=table,
        claims=[Claim(id=evil, statement=evil, paper=evil, measured=evil, n=1, holds=True, part=evil)],
        settings={evil: evil},
        environment={evil: [evil]},
        command=evil,
        files=[f"javascript:{evil}"],
    )
    page = Opened(browser, path)
    page.until("document.querySelector('#figure-1').dataset.drawn === 'yes'")
    page.click('#scroller tr[data-at="0"] td')
    assert page.js("return window.harmed") is None
    assert page.find("h1").text == evil
    assert page.column("name")[0] == evil
    assert evil in page.find("#chip span").text
    assert page.find(".files a").get_attribute("href").startswith("file:")
    assert page.complaints() == []


def test_a_page_without_figures_rows_or_claims(browser: Any, tmp_path: Path) -> None:
    empty = inputs(story=Story("Nothing.", (), ()), table=matched_nodes().slice(0, 0), claims=[], files=[])
    write_page(tmp_path / "report.html", **empty)
    page = Opened(browser, tmp_path / "report.html")
    assert page.count == "0 of 0 rows"
    assert page.complaints() == []


@pytest.mark.parametrize(
    ("points", "rows", "said"),
    [
        (True, True, "Click a point, or a row of the table, to mark"),
        (True, False, "Click a point to mark"),
        (False, True, "Click a row of the table to mark"),
        (False, False, None),
    ],
)
def test_only_elements_that_exist_are_named_as_clickable(points: bool, rows: bool, said: str | None) -> None:
    trace: dict[str, Any] = {"type": "scatter", "x": [1], "y": [1]} | ({"customdata": [[0, -1, -1]]} if points else {})
    story = Story("Points.", (), (Figure("f", "F", "", "", Given({"data": [trace], "layout": {}})),))
    made = page_module.page(**inputs(story=story, table=matched_nodes() if rows else pa.table({}), files=[]))
    found = re.findall(r'<p class="lead screen">(.*?) its network in every figure', made.decode())
    assert found == ([] if said is None else [said])


def test_the_same_inputs_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", **inputs())
    assert (tmp_path / "report.html").read_bytes() == written.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_page_loads_no_external_resources(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    without_scripts = re.sub(r"<script[\s\S]*?</script>", "", text)
    assert re.findall(r"""(?:src|href)=["']?(?!\./|#|data:)[^"'\s>]+""", without_scripts) == []
    assert not re.search(r"@import|url\(", text)


def test_numbers_are_encoded_exactly() -> None:
    column = page_data._column
    assert column(pa.array([1, 2, 300]))["numbers"]["dtype"] == "i2"
    assert column(pa.array([1, None, 2]))["numbers"]["dtype"] == "f4"
    assert column(pa.array([0.1, 0.01, None, 0.1]))["values"] == [0.1, 0.01, None]
    assert column(pa.array(["a", "b", "a"]).dictionary_encode())["values"] == ["a", "b"]
    assert column(pa.array([True, False]))["values"] == ["yes", "no"]
    assert json.loads(page_data.inline_json({"a": [float("nan"), np.float64(0.1), np.int8(3)], "b": "</script>"})) == {
        "a": [None, 0.1, 3],
        "b": "</script>",
    }
    assert "<" not in page_data.inline_json("</script><!--")


def test_a_page_too_large_drops_curves_then_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    write_page(path, **inputs())
    monkeypatch.setattr(page_module, "MAXIMUM_BYTES", path.stat().st_size - 1)
    write_page(path, **inputs())
    assert "left out here" in path.read_text(encoding="utf-8")
    monkeypatch.setattr(page_module, "MAXIMUM_BYTES", 1_000_000)
    write_page(path, **inputs())
    assert path.read_text(encoding="utf-8").count("too large for the page") == len(inputs()["story"].figures)


def test_a_table_that_is_too_long_is_thinned_by_whole_networks_with_a_note(tmp_path: Path) -> None:
    nodes, networks = 400, 100
    table = pa.table(
        {
            "network": np.repeat(np.arange(networks, dtype=np.int32), nodes),
            "teacher": np.tile(np.arange(nodes), networks),
        }
    )
    shown = page_module._thin(table)
    kept, counts = np.unique(shown["network"].to_numpy(), return_counts=True)
    assert shown.num_rows <= 30_000 and (counts == nodes).all() and kept[0] == 0 and kept[-1] == networks - 1
    write_page(tmp_path / "report.html", **(inputs() | {"table": table}))
    assert "of 40,000 rows" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_claim_has_its_verdict_in_words(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert text.count("</span> holds</p>") == 2 and text.count("</span> does not hold</p>") == 1
    assert "12 values from" in text and "0 within the tolerance from 0.4 to 0.5" in text


def test_the_page_of_a_run_draws_all_figures_and_the_table(browser: Any, tiny: Any) -> None:
    page = Opened(browser, tiny[1] / "report.html")
    figures = page.js("return document.querySelectorAll('figure.figure').length")
    assert figures == len(list((tiny[1] / "figures").glob("*.pdf"))) == 5
    page.draw_all(figures)
    traces = [page.js(f"return document.querySelector('#figure-{i} .plot').data.length") for i in range(1, figures + 1)]
    assert min(traces) > 0
    assert len(page.column("network")) == 4 * 3, "two widths and two seeds of three teacher nodes"
    whole = (tiny[1] / "headline.txt").read_text(encoding="utf-8").strip()
    assert split_headline(whole)[0] == page.find("h1").text
    assert page.complaints() == []
