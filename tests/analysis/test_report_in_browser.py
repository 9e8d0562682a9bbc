"""The page in a real browser: everything shows, nothing is fetched from outside, nothing is complained about."""

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from strata_analysis.report import report

BROWSER = shutil.which("chromium-headless-shell")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium-headless-shell; jobscripts/setup.sh --checks")
OUTSIDE = '<img src="http://outside.example/x.png" alt=""><script>console.error("complaint")</script>'


@dataclass
class Opened:
    document: str  # the DOM as the browser has it, as text
    requests: list[str]  # addresses that the network stack was asked for; files are not
    console: list[str]
    screenshot: Path


def open_in_browser(page: Path, folder: Path) -> Opened:
    """Open `page` with every host name unknown, so that the browser reaches nothing, and log what it tries."""
    log, screenshot = folder / "net.json", folder / "screenshot.png"
    ended = subprocess.run(
        [
            BROWSER,
            "--no-sandbox",  # it may be root who tests
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--enable-logging=stderr",
            "--window-size=1280,2400",
            f"--screenshot={screenshot}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    events = json.loads(log.read_text())
    started = events["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    jobs = [event.get("params", {}) for event in events["events"] if event["type"] == started]
    requests = [job["url"] for job in jobs if "url" in job]  # the event of its end has none
    console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    return Opened(ended.stdout, requests, console, screenshot)


@pytest.fixture(scope="module")
def page(written_sample, tmp_path_factory) -> Path:
    folder = Path(shutil.copytree(written_sample, tmp_path_factory.mktemp("report") / "sample"))
    return report(folder)[0]


@pytest.fixture(scope="module")
def opened(page, tmp_path_factory) -> Opened:
    return open_in_browser(page, tmp_path_factory.mktemp("browser"))


@dataclass
class Found(HTMLParser):
    headings: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    num_figures: int = 0

    def __post_init__(self):
        super().__init__()
        self.inside = []

    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)
        self.num_figures += tag == "svg"

    def handle_endtag(self, tag):
        if tag in self.inside:
            del self.inside[len(self.inside) - 1 - self.inside[::-1].index(tag) :]

    def handle_data(self, data):
        if data.strip() and "style" not in self.inside:
            self.text.append(data.strip())
            if self.inside and self.inside[-1] in ("h1", "h2"):
                self.headings.append(data.strip())


def test_every_section_shows(opened):
    found = Found()
    found.feed(opened.document)
    assert found.headings == [
        "Sample sweep",
        "Answer",
        "Figures",
        "Points",
        "Comparison",
        "Predicted against measured",
        "Failures",
        "Plans",
        "Provenance",
        "Traces",
    ]
    assert found.num_figures == 17
    text = "\n".join(found.text)
    for words in (
        "gpt2-small: strong scaling",
        "OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB",
        "rank 0 is gone",
        "no ending after 10 steps",
        "median error 5.0 %",
        "measured GEMM, n = 2048",
        "0123abcd",
        'strategy = "zero3"',
    ):
        assert words in text


def test_nothing_is_fetched_and_nothing_is_complained_about(opened):
    assert opened.requests == []
    assert opened.console == []


def test_the_page_is_not_blank(opened):
    from matplotlib import image

    pixels = image.imread(opened.screenshot)[:, :, :3]
    assert pixels.shape[:2] == (2400, 1280)
    rows_with_ink = (pixels.min(axis=(1, 2)) < 0.5).mean()
    assert rows_with_ink > 0.5


def test_fetches_and_complaints_would_be_seen(tmp_path):
    """The two tests above can fail: a page with both is caught."""
    bad = tmp_path / "bad.html"
    bad.write_text(f"<!DOCTYPE html><title>bad</title>{OUTSIDE}")
    opened = open_in_browser(bad, tmp_path)
    assert opened.requests == ["http://outside.example/x.png"]
    assert any("complaint" in line for line in opened.console)


def test_the_browser_is_told_to_refuse_what_is_outside(page, tmp_path):
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text().replace("<main>", f"<main>{OUTSIDE}"))
    opened = open_in_browser(changed, tmp_path)
    assert opened.requests == []
    assert any("Content Security Policy" in line for line in opened.console)
    assert not any('"complaint"' in line for line in opened.console), "scripts do not run"
