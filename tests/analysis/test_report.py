"""The page of a sweep as text: complete, self-contained, the same each time, readable without eyes."""

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import h5py
import pytest
from strata_analysis.cli import main
from strata_analysis.failures import by_reason, left_out
from strata_analysis.load import load
from strata_analysis.report import render, report
from strata_analysis.report.content import content_of

VOID = {"meta", "link", "img", "br", "hr"}


class Page(HTMLParser):
    """Elements in order, as (tag, attributes, tags around it)."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.open = []
        self.feed(text)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, *tags):
        return [(attributes, around) for tag, attributes, around in self.elements if tag in tags]


@pytest.fixture(scope="module")
def text(written_sample, tmp_path_factory):
    folder = shutil.copytree(written_sample, tmp_path_factory.mktemp("read") / "sample")
    return report(folder)[0].read_text(encoding="utf-8")


def test_the_same_results_give_the_same_text_wherever_they_lie(sample, text):
    assert report(sample)[0].read_text(encoding="utf-8") == text


def test_only_the_page_and_the_traces_are_written(sample):
    before = {file for file in sample.rglob("*") if file.is_file()}
    report(sample)
    new = {file.relative_to(sample).as_posix() for file in sample.rglob("*") if file.is_file()} - {
        file.relative_to(sample).as_posix() for file in before
    }
    assert "report.html" in new
    assert all(name == "report.html" or re.fullmatch(r"traces/[0-9a-f]{12}-\d+\.json", name) for name in new)


def test_nothing_outside_is_named_but_the_link_to_perfetto(text):
    page = Page(text)
    addresses = [
        value
        for _, attributes, _ in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "action", "poster") and re.match(r"(https?:)?//", value)
    ]
    assert addresses == ["https://ui.perfetto.dev"]
    assert page.all("script", "iframe", "object", "embed", "img") == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_ids_are_unique_and_every_reference_has_one(text):
    page = Page(text)
    ids = Counter(attributes["id"] for _, attributes, _ in page.elements if "id" in attributes)
    assert [name for name, count in ids.items() if count > 1] == []
    references = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    references |= {
        attributes["aria-labelledby"] for _, attributes, _ in page.elements if "aria-labelledby" in attributes
    }
    assert references <= set(ids)


def test_it_can_be_read_without_eyes(text):
    page = Page(text)
    assert page.all("html")[0][0]["lang"] == "en"
    assert [len(page.all(tag)) for tag in ("h1", "main", "title")] == [1, 1, 1]
    figures = [attributes for attributes, around in page.all("svg") if "svg" not in around]
    assert len(figures) == 17
    assert all(svg["role"] == "img" and svg["aria-label"].count(". ") >= 1 for svg in figures)
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(attributes["scope"] in ("row", "col") for attributes, _ in page.all("th"))


def test_points_failures_and_superseded_attempts_are_there(sample, text):
    content = content_of(load(sample), sample)
    assert len(content["points"]) == 15
    assert Counter(row["ended"] for row in content["points"]) == {"ok": 13, "killed": 1, "oom": 1}
    failures = {row["ended"]: row for row in content["failures"]}
    assert set(failures) == {"oom", "killed", "node_failure"}
    assert failures["oom"]["because"] == "OOM at block[3].mlp.fc1, needs 4.51 GiB of 4.00 GiB"
    assert failures["node_failure"]["since then"] == "1 ended well when tried again"
    assert failures["oom"]["since then"] == ""
    assert all(row["because"] in text for row in content["failures"])


def test_a_head_to_head_job_is_compared_by_its_blocks(head_to_head):
    content = content_of(load(head_to_head), head_to_head)
    assert content["comparison"]["baseline"] == "ddp"
    assert content["comparison"]["verdict"] == "worse"
    assert content["comparison"]["rows"][0]["pairs"] == "8 by block"
    assert "all points: model gpt2-small, dtype fp32, ranks 2, runs 8, ended ok" in content["points_notes"]
    assert ("head-to-head job", "4711") in content["provenance"]


def test_the_answer_stands_first_with_a_ranking(head_to_head):
    content = content_of(load(head_to_head), head_to_head)
    assert content["comparison"]["answer"].startswith(
        "Against ddp on 2 ranks ddp is fastest, zero1 0.93 times as fast ["
    )
    [(model, rows)] = content["ranking"]
    assert model == "gpt2-small"
    assert [(row["place"], row["strategy"], row["verdict"]) for row in rows] == [
        ("1", "ddp", ""),
        ("2", "zero1", "worse"),
    ]
    assert rows[1]["ratio"].startswith("1.07")
    assert {"step ms", "MFU", "peak memory MiB"} <= set(rows[0])
    text = render(content)
    assert text.index(content["comparison"]["answer"]) < text.index('id="figures"') < text.index('id="points"')


def test_reasons_that_differ_in_numbers_are_one(sample):
    results = load(sample)
    bad = results.points.index[results.points["status"] == "ok"][:3]
    results.points.loc[bad, "status"] = "refused"
    results.points.loc[bad, "message"] = ["12 layers on 5 stages", "12 layers on 7 stages", "no such mode"]
    rows = {row["because"]: row for row in by_reason(results, left_out(sample, results))}
    assert rows["12 layers on 5 stages (numbers differ)"]["points"] == "2"
    assert rows["no such mode"]["points"] == "1"


def test_points_left_out_before_queueing_are_listed_by_the_last_submission_that_names_them(sample, capsys):
    tried = load(sample).points.iloc[0]["point"]

    def submit(number, **messages):
        points = [
            {"point": point, "axes": f"strategy.name={point}", "status": "oom", "message": message}
            for point, message in messages.items()
        ]
        folder = sample / "submissions" / str(number)
        folder.mkdir(parents=True)
        words = {"schema": "strata-left-out", "version": 1, "points": points}
        (folder / "left-out.json").write_text(json.dumps(words))

    submit(2, a="needs 5 GiB of 4 GiB", b="needs 6 GiB of 4 GiB", **{tried: "tried after all"})
    submit(10, b="no plan")
    content = content_of(load(sample), sample)
    assert ("left out before queueing", "2") in content["summary"]
    steps = load(sample).last()
    measured, warmup = (steps[f"num_{phase}_steps"].sum() for phase in ("measured", "warmup"))
    assert ("steps", f"{measured} measured; left out: {warmup} warm-up") in content["summary"]
    rows = {row["because"]: row for row in content["failures"] if row["when"] == "left out before queueing"}
    assert {words: row["which"] for words, row in rows.items()} == {
        "needs 5 GiB of 4 GiB": "strategy.name=a [a]",
        "no plan": "strategy.name=b [b]",
    }
    assert "left out before queueing" in render(content)
    (sample / "submissions" / "10" / "left-out.json").write_text('{"schema": "other", "version": 1}')
    rows = {row["because"] for row in content_of(load(sample), sample)["failures"]}
    assert "no plan" not in rows
    assert "needs 5 GiB of 4 GiB (numbers differ)" in rows
    assert "10/left-out.json: schema is not strata-left-out, version 1" in capsys.readouterr().err


def test_results_of_one_strategy_have_nothing_to_compare(sample):
    results = load(sample)
    results.points = results.points[results.points["strategy_name"] == "ddp"]
    content = content_of(results, sample)
    assert content["comparison"] is None
    assert "No two strategies share a point." in render(content)


def test_plans_stand_once_with_their_points(sample):
    plans = content_of(load(sample), sample)["plans"]
    assert len({plan["text"] for plan in plans}) == len(plans)
    assert sum(len(plan["points"]) for plan in plans) == 15


def test_options_are_those_of_the_points(head_to_head):
    content = content_of(load(head_to_head), head_to_head)
    assert ("model.name", '"gpt2-small"') in content["common_keys"]
    assert content["varying_keys"] == [("strategy.name", '"ddp" (1 point); "zero1" (1 point)')]


def test_text_of_users_is_text(sample):
    for file in sample.glob("*/*.h5"):
        with h5py.File(file, "r+") as attempt:
            attempt.attrs["experiment_title"] = "<script>alert(1)</script> & more"
    text = report(sample)[0].read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_traces_are_linked_and_open(sample):
    (sample / "mine.json").write_text('{"traceEvents":[]}')
    (sample / "other.json").write_text("{}")
    page = report(sample)[0]
    links = [a["href"] for a, _ in Page(page.read_text()).all("a") if a["href"].endswith(".json")]
    assert "mine.json" in links
    assert "other.json" not in links
    assert len(links) > 10
    for link in links:
        assert "traceEvents" in json.loads((sample / link).read_text())


def test_a_failure_leaves_the_old_page(sample, monkeypatch):
    page = sample / "report.html"
    page.write_bytes(old := b"the page of yesterday")
    monkeypatch.setattr("strata_analysis.report.render", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report(sample)
    assert page.read_bytes() == old
    assert [file.name for file in sample.iterdir() if file.name.startswith(".report")] == []


def test_the_command_writes_a_page_for_each_experiment(sample, head_to_head, capsys):
    assert main(["report", str(sample.parent)]) == 0
    assert [line.split("/")[-2:] for line in capsys.readouterr().out.splitlines()] == [
        ["head_to_head", "report.html"],
        ["sample", "report.html"],
    ]
    assert main(["report", str(sample / "nowhere")]) == 2
    assert "no such file or folder" in capsys.readouterr().err
