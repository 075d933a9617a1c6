"""The page of an alignment in a browser: it draws, its table filters, and nothing is logged as an error."""

import shutil
import time

import pytest

import understudy as us
from support.modules import dense, seeded


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    import torch

    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    found = us.align(seeded(dense, 5, 8, 6, 2), seeded(dense, 5, 9, 2, seed=1), x)
    return found.report(tmp_path_factory.mktemp("page") / "alignment.html")


def test_the_page_draws_and_its_table_can_be_clicked(page, tmp_path):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver on the path")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={tmp_path}"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.get(page.as_uri())
        for figure in ("1", "2"):
            place = driver.find_element("css selector", f"#figure-{figure}")
            driver.execute_script("arguments[0].scrollIntoView()", place)
            until(lambda place=place: place.get_attribute("data-drawn") == "yes")
        driver.execute_script("document.querySelector('#scroller tbody tr[data-at]').click()")
        assert driver.find_element("css selector", "#count").text == "16 of 16 rows"
        heads = [head.text.split("\n")[0] for head in driver.find_elements("css selector", "#scroller th")]
        assert heads == ["teacher layer", "teacher", "student layer", "student", "correlation"]
        assert driver.get_log("browser") == []
    finally:
        driver.quit()


def until(done, seconds=20):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)
