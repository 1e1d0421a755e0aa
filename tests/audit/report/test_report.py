"""The report: what it may say, what it must not, and that the page says what report.json says."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
from fixtures.audits import (
    as_estimate,
    calls,
    entries,
    estimate,
    evidence,
    filled,
    headed_audit,
    leakage,
    model,
    published,
    published_corpus,
    tiny_audit,
    two_berts,
    write,
)
from fixtures.audits import text_of as page_text
from fixtures.dossiers import published_audit
from fixtures.figures import leave_out_figures

from reticent.audit.evidence.audit import publish_audit
from reticent.audit.evidence.extraction import Extraction
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.leakage import Privacy
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.membership.validity import INVALID, with_attack_verdicts
from reticent.audit.report.findings import Findings, _name_with_number, plain_findings
from reticent.audit.report.format_estimate import ends, leaks, value
from reticent.audit.report.risk_text import found_in_words
from reticent.audit.report.summary import guarantee_lines, summary_table
from reticent.audit.texts import ENGLISH, Texts
from reticent.core.errors import ArtifactError

pytestmark = pytest.mark.heavy

Page = ElementTree.Element


def parsed(path: Path) -> Page:
    """The page as a tree; it is written as well-formed XML, so any fault in it is an error here."""
    return ElementTree.fromstring(path.read_text(encoding="utf-8").removeprefix("<!doctype html>"))


def text_of(element: Page) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def section(page: Page, name: str) -> str:
    found = page.find(f".//section[@id='{name}']")
    assert found is not None
    return text_of(found)


def rows_of(table: Page) -> list[list[Page]]:
    return [list(row) for row in table.iter("tr") if row.get("class") != "group"]


def shown(cell: Page) -> str:
    """Large print of a cell, without the small line under it."""
    return text_of(cell).removesuffix(small(cell)).strip()


def small(cell: Page) -> str:
    line = cell.find("small")
    return "" if line is None else text_of(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("report"), tiny_audit()).parent


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return parsed(folder / "report.html")


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Page]:
    """Render without figures, which test_plots covers: they take most of the time."""
    leave_out_figures(monkeypatch)
    return lambda audit: parsed(write(tmp_path, audit))


# ------------------------------------------------------------------ the page as a file


def test_the_page_fetches_nothing_and_runs_nothing(folder: Path, page: Page) -> None:
    text = (folder / "report.html").read_text()
    assert not re.search(
        r"https?:|//[a-z]|javascript:|@import|<script|<link|<iframe|<img|<object|<form|srcset", text, re.I
    )
    assert not re.search(r"\burl\((?!#)", text)
    links = [element.get("href", "") for element in page.iter() if "href" in element.attrib]
    assert len(links) > 10
    assert all(link.startswith("#") for link in links)
    for element in page.iter():
        assert not any(name.startswith("on") or name in ("src", "xlink:href") for name in element.attrib)
    policy = [
        meta.get("content", "") for meta in page.iter("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_the_page_is_well_formed_and_can_be_walked(page: Page) -> None:
    ids = [element.get("id") for element in page.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {link.get("href", "")[1:] for link in page.iter("a")} <= set(ids)
    levels = [int(e.tag[1]) for e in page.iter() if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.get("lang") == "en"
    images = [svg for svg in page.iter("svg") if svg.get("aria-hidden") != "true"]
    assert len(images) >= 20
    assert all(svg.get("role") == "img" and len(svg.get("aria-label", "")) > 40 for svg in images)


def test_two_recipes_that_a_job_names_have_two_looks(render: Callable[[dict[str, Any]], Page], tmp_path: Path) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        entry["recipe"] = {"mlm": "ward-notes", "ppmlm": "other-notes"}.get(entry["recipe"], entry["recipe"])
    render(audit)
    page = (tmp_path / "report.html").read_text()
    assert "var(--r-other," in page
    assert "var(--r-other-2," in page


def test_tables_scroll_in_a_box_that_the_keyboard_reaches(page: Page) -> None:
    boxes = [div for div in page.iter("div") if div.get("class") == "scroll"]
    assert len(boxes) == len(list(page.iter("table"))) >= 7
    for box in boxes:
        assert (box.get("tabindex"), box.get("role")) == ("0", "region")
        assert box.get("aria-label")
    for table in page.iter("table"):
        assert all(cell.get("scope") for cell in table.iter("th"))
        width = sum(int(cell.get("colspan", 1)) for cell in next(table.iter("tr")))
        covered = 0
        for row in rows_of(table):
            cells = sum(int(cell.get("colspan", 1)) for cell in row)
            assert width in (cells, cells + (covered > 0))
            covered = max(covered - 1, *(int(cell.get("rowspan", 1)) - 1 for cell in row))


def test_equal_evidence_gives_equal_bytes_in_another_process(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from fixtures.audits import tiny_audit, write;"
        "write(Path(sys.argv[1]), tiny_audit()); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    fonts = {"MPLCONFIGDIR": matplotlib.get_cachedir()}  # with another home it would look for every font first
    environment = {"PYTHONHASHSEED": "7", "PATH": "", "HOME": str(tmp_path), "PYTHONPATH": os.environ["PYTHONPATH"]}
    subprocess.run(command, check=True, env=environment | fonts)
    for name in ("report.html", "report.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(("skipped", "said"), [(0, None), (2, "Fewer than 5"), (7, "7")])
def test_documents_that_were_skipped_are_said(render: Any, tmp_path: Path, skipped: int, said: str | None) -> None:
    audit = tiny_audit()
    reading = {"files": 1, "passed_over": {}, "csv": {}, "suspect_rows": 0, "skipped": skipped}
    text = section(render({**audit, "small_cell": 5, "corpus": {**audit["corpus"], "reading": reading}}), "documents")
    assert ("documents without a text were left out" in text) == (said is not None)
    assert said is None or f"{said} documents without a text were left out." in text


def test_report_and_summary_say_that_intervals_resample_households(
    render: Callable[[dict[str, Any]], Page], page: Page
) -> None:
    audit = tiny_audit()
    for one in audit["models"]:
        for attack in one["membership"].values():
            attack["auc"]["num_households"] = attack["auc"]["n"] // 2
    n = audit["models"][0]["membership"]["loss"]["auc"]["n"]
    said = f"intervals resample households: the {n} people of an attack are of {n // 2} households."
    assert said in section(render(audit), "method")
    assert "resample households" not in section(page, "method")
    assert f"95 % intervals over {n // 2} households of {n} individuals." in str(
        summary_table(entries(*audit["models"])).caption
    )
    assert "95 % intervals over individuals." in str(summary_table(entries(*tiny_audit()["models"])).caption)


def test_both_files_are_for_their_owner_only(folder: Path, tmp_path: Path, render: Any) -> None:
    (tmp_path / "report.json").write_text("old")
    (tmp_path / "report.json").chmod(0o644)
    render(tiny_audit())
    for path in (folder / "report.html", folder / "report.json", tmp_path / "report.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# --------------------------------------------------------------- what it says is so


def test_every_number_of_the_main_table_equals_report_json(folder: Path, page: Page) -> None:
    report = json.loads((folder / "report.json").read_text())
    last = [m for m in report["models"] if m["epoch"] in (0, 16)]
    table = page.find(".//table[@id='main']")
    assert table is not None
    rows = [row for row in rows_of(table)[1:] if len(row) > 1]
    assert len(rows) == len(last) == 6
    for row, entry in zip(rows, last, strict=True):
        accuracy = "ordinary_word_accuracy" if entry["objective"] == "mlm" else "ordinary_token_accuracy"
        assert shown(row[0]) == entry["recipe"]
        assert shown(row[1]) == (str(entry["epoch"]) if entry["epoch"] else "–")
        both = entry["privacy"]["both"]
        estimates = (
            entry["utility"]["heldout"][accuracy],
            both["types"],
            entry["excess"]["both"]["excess"],
            entry["membership"]["loss"]["auc"],
        )
        for cell, number in zip((row[2], row[3], row[5], row[6]), estimates, strict=True):
            assert float(shown(cell).replace("−", "-")) == pytest.approx(number["value"], abs=5e-4)
            low, high = small(cell).replace("−", "-").split(" to ")
            assert float(low) == pytest.approx(number["low"], abs=5e-4)
            assert float(high) == pytest.approx(number["high"], abs=5e-4)
        assert (int(shown(row[4])), small(row[4])) == (both["num_leaked"], f"of {both['num_identifiers']}")
        ledger = entry["ledger"]
        if ledger is None:
            assert shown(row[7]) == "–"
        elif ledger["protected"]:
            assert (shown(row[7]), small(row[7])) == ("0", f"of {ledger['targets']} checked")
        else:
            assert (shown(row[7]), small(row[7])) == ("none protected", f"{ledger['targets']} targets")


def test_the_page_holds_every_required_part(page: Page) -> None:
    labels = [svg.get("aria-label", "") for svg in page.iter("svg")]
    for start in (
        "Identifiers per person, cumulative", "Words per person", "People per word", "Utility against Privacy, Masked",
        "Utility against Privacy, Causal", "Excess leakage, Masked", "Identifying n-grams predicted, Causal",
        "Masked: last checkpoint", "Causal: F1 against epochs", "Causal: F1 against knowledge", "Membership, Masked",
        "ROC of attack loss, Causal", "ROC of attack zlib, Masked",
    ):  # fmt: skip
        assert any(label.startswith(start) for label in labels), start
    assert "57 % of the distinct words are used by only one person" in section(page, "findings")
    for name in ("models", "documents", "tradeoff", "leaks", "membership", "method", "limits", "settings"):
        assert len(section(page, name)) > 100
    leakage_tables = [t for t in page.iter("table") if "knew before" in text_of(t)]
    assert len(leakage_tables) == 2
    for table in leakage_tables:
        names = [text_of(row[0]) for row in rows_of(table)[1::3]]
        assert names[0].startswith("base"), "what was known before stands first"
        assert len(rows_of(table)) == 1 + 3 * 3
    assert "torch 2.15.0" in section(page, "settings")
    assert "train.learning_rate 0.002" in section(page, "settings")


def test_a_zero_stands_with_its_upper_bound(render: Any) -> None:
    audit = tiny_audit()
    audit["models"] = [model("clm", "clm", 4, leaked=0), model("ppclm", "clm", 4, leaked=0)]
    for entry in audit["models"]:
        entry["low_cost"] = {**calls(0, 0), "by_graph_share": []}
    page = render(audit)
    calls_table = next(t for t in page.iter("table") if "people called members" in text_of(t))
    beside_its_recall = [row[1] for row in rows_of(calls_table)]
    zeros = 0
    for cell in page.iter("td"):
        if re.fullmatch(r"0(\.0+)?", shown(cell)) and cell not in beside_its_recall:
            assert re.search(r"at most 7\.3.%|to 0\.\d*[1-9]|checked", small(cell)), text_of(cell)
            zeros += "at most" in small(cell)
    assert zeros == 2 + 6
    said = "predicts none of its members’ 200 identifiers, at most 7.3 % at 95 % confidence"
    assert said in section(page, "findings")


def test_a_zero_without_a_bound_is_not_shown() -> None:
    bare = {**estimate(0.0), "low": None, "high": None}
    assert value(as_estimate(bare)) == "–"
    assert value(as_estimate(estimate(0.0, 0.0, 0.0))) == "–"
    assert value(as_estimate({**bare, "value": 0.25})) == "0.250"
    assert [ends(as_estimate(each)) for each in (bare, estimate(0.0, 0.0, 0.0))] == ["", ""]
    part = leakage(0)
    part["types"] |= {"low": None, "high": None}
    assert leaks(from_json(Privacy, part), 5) == ("–", "not bounded")
    assert leaks(from_json(Privacy, leakage(0)), 5) == ("0", "of\xa0200; at\xa0most\xa07.3\xa0%")


def test_the_bound_of_a_zero_is_not_rounded_away_where_many_people_were_asked() -> None:
    zero, one = as_estimate(estimate(0.0, 0.0, 0.0004, n=8000)), as_estimate(estimate(1.0, 0.9996, 1.0, n=8000))
    assert (ends(zero), ends(one)) == ("0.000 to 0.001", "0.999 to 1.000")
    models = entries(model("clm", "clm", 1))
    models[0].privacy["both"] = replace(models[0].privacy["both"], types=one)
    cells = {column.header: list(column.cells) for column in summary_table(models).columns}
    assert cells["privacy"] == ["1.000 [.99, 1.00]"]


def test_a_head_is_not_said_to_be_protected_as_the_model_below_it(render: Any) -> None:
    tables = [t for t in render(headed_audit()).iter("table") if t.get("id") in ("heads", "head-names")]
    found = " ".join(text for table in tables for text in table.itertext())
    assert "classify/ppmlm" in found
    assert "tag/mlm" in found
    assert "ever a target" not in found


def test_numbers_are_written_plainly() -> None:
    assert value(as_estimate(estimate(-0.0001, -0.02, 0.02))) == "0.000"
    assert ends(as_estimate(estimate(-0.1, -0.25, 0.0))) == "−0.250 to 0.000"
    assert value(as_estimate(estimate(1712.84, 1500.0, 1900.0)), 1) == "1,712.8"
    assert value(as_estimate(estimate(0.0004))) == "0.0004", "what is not none is not written as such"
    assert value(as_estimate(estimate(0.99996))) == "0.99996", "nor what is not all"
    assert ends(as_estimate(estimate(0.5, 0.0002, 0.9998))) == "0.0002 to 0.9998"
    assert (ENGLISH.percent(0.0004), ENGLISH.percent(0.0103)) == ("0.04\xa0%", "1.0\xa0%")
    assert value(None) == value(as_estimate(estimate(None))) == "–"


# ------------------------------------------------------------- two sections of one objective


def test_every_section_has_its_own_rows_under_its_name(render: Any) -> None:
    page = render(two_berts())
    expected = [
        ("Masked (BERT-like): bert", [("base", "–"), ("mlm", "16"), ("ppmlm", "16")]),
        ("Masked (BERT-like): camembert", [("base", "–"), ("mlm", "8"), ("ppmlm", "8")]),
        ("Causal (GPT-like)", [("base", "–"), ("clm", "16"), ("ppclm", "16")]),
    ]
    table = page.find(".//table[@id='main']")
    assert table is not None
    found = []
    for body in table.iter("tbody"):
        heading, *rows = list(body)
        found.append((text_of(heading), [(shown(row[0]), shown(row[1])) for row in rows]))
    assert found == expected
    counts = [shown(row[4]) for row in rows_of(table)[1:]]
    assert counts == ["10", "90", "12", "14", "60", "16", "10", "90", "12"]
    tables = [t for t in page.iter("table") if "knew before" in text_of(t)]
    assert [text_of(t.find("caption")).partition(".")[0] for t in tables] == [title for title, _ in expected]
    for title, _ in expected:
        assert text_of(page).count(title) >= 4


def test_findings_say_which_section_they_are_about() -> None:
    audit = two_berts()
    for entry in audit["models"]:
        if entry["recipe"] == "ppmlm" and entry["model"] == "camembert":
            entry["ledger"] = {"eligible": 900, "protected": 300, "targets": 900, "violations": 2}
    said = plain_findings(publish_audit(evidence(audit)))
    assert [heading for heading, _ in said.found] == [
        "The documents", "Masked (BERT-like) models of bert", "Masked (BERT-like) models of camembert",
        "Causal (GPT-like) models",
    ]  # fmt: skip
    text = {key: " ".join(getattr(said, key)).replace("\xa0", " ") for key in ("short", "sure", "next")}
    assert "Training broke its own rule for ppmlm of camembert." in text["short"]
    assert "mlm of bert, mlm of camembert" in text["short"]
    assert "it finds them in mlm" in text["sure"]
    assert "For masked bert models" in text["sure"]
    assert "For masked camembert models" in text["sure"]
    assert "For causal models" in text["sure"]
    assert "0 of 900 (ppmlm of bert)" in text["sure"]
    assert "(ppmlm of camembert)" not in text["sure"]
    assert "Do not use ppmlm of camembert: 2 of its 900 targets were protected." in text["next"]
    compared = " ".join(said.found[2][1])
    assert "predicts 60 of its members’ 200" in compared
    assert "90 of its members" not in compared


def test_every_epsilon_stands_with_its_unit_in_summary_table_and_findings(render: Any) -> None:
    audit = tiny_audit()
    assert guarantee_lines(evidence(audit).models) == []
    guarantee = "epsilon 8.00 at delta 1e-3 per individual (at most 4 documents each)"
    for entry in audit["models"]:
        if entry["recipe"] == "clm":
            entry["guarantee"] = guarantee
    assert guarantee_lines(evidence(audit).models) == [f"clm: {guarantee}"]
    page = render(audit)
    said = " ".join(text_of(page).split())
    assert f"clm was trained by DP-SGD: {guarantee}. It counts this training alone" in said
    assert said.count(guarantee) == 2  # and under the recipe's name


def test_an_interval_of_the_summary_holds_its_value() -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        entry["privacy"]["both"]["types"] |= {"value": 0.998, "low": 0.996, "high": 0.9994}
        entry["membership"]["loss"]["auc"] |= {"value": 0.504, "low": 0.5012, "high": 0.5041}
    columns = {column.header: list(column.cells) for column in summary_table(evidence(audit).models).columns}
    assert set(columns["privacy"]) == {"0.998 [.99, 1.00]"}
    assert set(columns["MIA AUC"]) == {"0.504 [.50, .51]"}


def test_epochs_are_left_out_only_of_models_that_were_trained_elsewhere(render: Any) -> None:
    """`reticent.audit_models` with a split that was given knows the epochs: its caller says them."""
    audit = tiny_audit()
    for one in audit["models"]:
        one["split_given"] = True
    columns = {column.header: list(column.cells) for column in summary_table(entries(*audit["models"])).columns}
    assert "16" in columns["epochs"]
    assert "16 epochs" in text_of(render(audit))
    outside = {**audit, "settings": {**audit["settings"], "subject": {"statement": "From a list."}}}
    assert "16 epochs" not in text_of(render(outside))


def test_people_of_a_given_list_are_not_said_to_be_dealt(render: Any) -> None:
    audit = tiny_audit()
    assert text_of(render(audit)).count("dealt to the") == 2
    outside = {**audit, "settings": {**audit["settings"], "subject": {"statement": "From a list."}}}
    said = text_of(render(outside))
    assert "dealt to the" not in said
    assert "trained on by the given list (members)" in said
    assert "was a target of training" in text_of(render(audit))
    assert "was a target of training" not in said, "how it was trained is not known"
    assert "Protected words stay visible" not in said


def test_a_finding_of_too_few_people_to_publish_has_no_dash_for_its_number() -> None:
    result: Any = SimpleNamespace(
        risk="words", found="membership by direct words alone", found_estimate=None, found_at_most=0.05
    )
    assert _name_with_number("clm", result, ENGLISH) == "clm (membership by direct words alone)"


# ------------------------------------------------------------------- what it may not say


@pytest.mark.parametrize("claim", ["Anonymous", "anonymised", "anonymized", "GDPR compliant", "gdpr-compliant"])
def test_a_claim_in_a_name_is_withheld(render: Any, tmp_path: Path, claim: str) -> None:
    audit = tiny_audit()
    audit["corpus"]["detected"][0]["label"] = f"x {claim} y"
    audit["settings"]["detect"] = {"records": {"table": f"/data/{claim}.parquet"}}
    page = render(audit)
    assert claim.lower() not in ElementTree.tostring(page, encoding="unicode").lower()
    assert claim.lower() not in (tmp_path / "report.json").read_text().lower()
    assert "x (withheld) y" in section(page, "documents")


def test_our_own_words_make_no_claim(
    folder: Path, render: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (folder / "report.html").read_text().lower()
    assert not re.search(r"anonym|compliant|guarantee[ds]|no risk|completely safe", text)
    findings = Findings(["This model is anonymous."], [], [], [])
    monkeypatch.setattr("reticent.audit.report.page.plain_findings", lambda *_: findings)
    with pytest.raises(ArtifactError, match="which no report may"):
        render({**tiny_audit(), "models": []})
    assert not list(tmp_path.iterdir())


def test_a_hostile_name_is_text_and_nothing_else(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    audit = tiny_audit()
    audit["models"] = [m for m in audit["models"] if m["objective"] == "clm"]
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["recipe"] = entry["name"] = hostile
        entry["membership"]['"><img src=x onerror=y>'] = entry["membership"].pop("zlib")
    audit["corpus"]["detected"] += [
        {
            "label": "'><svg onload=z>&amp;",
            "detector": "{{ 7 * 7 }}",
            "num_spans": 50,
            "num_documents": 40,
            "num_individuals": 9,
        }
    ]
    audit["corpus"]["policy"] = "$\\frac{</style>"
    audit["settings"]["detect"] = {"gazetteer": {"lists": {"<b>": "]]>\x00"}}}
    page = parsed(write(tmp_path, json.loads(json.dumps(audit).replace("\\u0000", ""))))
    tags = {element.tag for element in page.iter()}
    assert not tags & {"script", "img", "b"}
    assert not any(name.startswith("on") for element in page.iter() for name in element.attrib)
    assert hostile in section(page, "models")
    assert "'><svg onload=z>&amp;" in section(page, "documents")
    assert "{{ 7 * 7 }} 50" in section(page, "documents")


def test_paths_of_the_machine_are_shortened(render: Any, tmp_path: Path) -> None:
    audit = tiny_audit()
    audit["settings"] |= {
        "detect": {
            "records": {"table": "/home/dr-smith/records.parquet"},
            "gazetteer": {"lists": {"NAME": "C:\\ward\\names.txt"}},
        },
        "model": [
            {"name": "bert", "base": "https://example.org/models/bert", "foundation": {"text": "~/public/"}},
            {"base": "almanach/camembert-base"},
        ],
    }  # fmt: skip
    text = section(render(audit), "settings")
    audit["settings"]["model"] += [{"base": "../dr-smith/gpt2"}, {"base": "./ward/gpt2"}]
    text += section(render(audit), "settings")
    for rest in (
        "model.3.base …/gpt2 model.4.base …/gpt2",
        "detect.records.table …/records.parquet",
        "NAME …/names.txt",
        "model.1.base …/bert",
        "text …/public",
        "model.2.base …/camembert-base",  # a name on the hub looks like a relative path
    ):
        assert rest in text
    assert not re.search("smith|ward|example|https", text + (tmp_path / "report.json").read_text())


# ------------------------------------------------------------------------ small cells


def test_small_cells_are_closed_on_the_page_and_in_report_json(render: Any, tmp_path: Path) -> None:
    audit = tiny_audit()
    few = model("ppclm", "clm", 4, leaked=3)
    few["privacy"]["direct"] = leakage(2, 4)
    few["privacy"]["both"]["individuals"] = estimate(1 - 2 / 40, 0.9, 1.0, 40)
    few["privacy"]["both"]["num_unpredictable"] = 2
    few["low_cost"] = {**calls(3, 2), "by_graph_share": [{"share": 1.0, **calls(3, 2)}]}
    few["excess"]["direct"] = {side: estimate(0.2, 0.1, 0.3, 3) for side in ("members", "heldout", "excess")}
    few["ledger"] = {"eligible": 900, "protected": 300, "targets": 900, "violations": 2}
    audit["models"] = [few]
    audit["corpus"]["detected"] += [
        {"label": "RARE", "detector": "gold", "num_spans": 90, "num_documents": 80, "num_individuals": 4},
        {"label": "other", "detector": "any", "num_spans": 30, "num_documents": None, "num_individuals": 3},
    ]
    audit["corpus"]["num_individuals"]["reference"] = 3
    page = render(audit)
    report = json.loads((tmp_path / "report.json").read_text())
    both, direct = (report["models"][0]["privacy"][part] for part in ("both", "direct"))
    assert (both["num_leaked"], both["num_identifiers"], both["num_unpredictable"]) == (None, 200, None)
    assert (both["types"]["value"], both["types"]["bound"], both["types"]["high"]) == (0.975, "above", 1.0)
    assert (both["individuals"]["value"], both["individuals"]["bound"]) == (0.875, "above")
    assert (direct["num_identifiers"], direct["num_leaked"], direct["types"]["value"]) == (None, None, None)
    assert report["models"][0]["excess"]["direct"]["members"]["value"] is None
    called = report["models"][0]["low_cost"]
    assert (called["precision"]["value"], called["precision"]["n"]) == (None, None)
    assert (called["recall"]["value"], called["recall"]["bound"]) == (0.125, "below")
    assert (called["f1"]["value"], called["f1"]["bound"]) == (pytest.approx(10 / 45), "below")
    assert called["by_graph_share"][0]["f1"]["bound"] == "below"
    assert report["corpus"]["num_individuals"]["reference"] is None
    assert {row["label"] for row in report["corpus"]["detected"]} == {"NAME", "CITY"}
    assert report["small_cell"] == 5
    counts = [shown(cell) for cell in page.iter("td")]
    assert "fewer than 5" in counts
    assert "above 0.975" in counts
    assert "RARE" not in text_of(page)
    rows = rows_of(page.find(".//table[@id='main']"))
    assert shown(rows[1][7]) == "2", "a broken rule is never hidden"
    assert "3" not in counts


@pytest.mark.parametrize("total", [5, 9, 200])
def test_one_leak_cannot_be_told_from_four(total: int) -> None:
    pages = []
    for leaked in (1, 2, 3, 4):
        audit = tiny_audit()
        audit["models"] = [model("ppclm", "clm", 4, leaked=20)]
        part = {**leakage(leaked, total), "types": estimate(1 - leaked / total, 0.0, 1.0)}
        part["individuals"] = estimate(1 - leaked / 40, 0.5, 1.0, 40)
        audit["models"][0]["privacy"] = {"both": part}
        audit["models"][0]["privacy_by_n"] = {"1": {**part["types"], "num_identifiers": total, "num_leaked": leaked}}
        audit["models"][0]["low_cost"] = {**calls(12, leaked), "by_graph_share": []}
        for measure in ("precision", "recall", "f1"):
            audit["models"][0]["low_cost"][measure] |= {"low": 0.0, "high": 0.0}
        pages.append(json.dumps(published(audit)["models"]))
    assert len(set(pages)) == 1


def test_a_distribution_over_people_has_no_step_of_few() -> None:
    audit = tiny_audit()
    corpus = published(audit)["corpus"]
    for curve in (corpus["words_per_individual"], corpus["identifiers_per_individual"]["direct"]):
        steps = [round(share * 40) for share in curve["y"]]
        assert steps == [5, 10, 15, 20, 25, 30, 35]
        assert curve["x"][-1] < 40, "the largest value belongs to one person"
    audit["corpus"]["num_individuals"]["members"] = 9
    assert published(audit)["corpus"]["words_per_individual"] == {"x": [], "y": []}


def test_a_roc_curve_shows_no_threshold_that_few_pass() -> None:
    roc = published(tiny_audit())["models"][0]["membership"]["loss"]["roc"]
    assert len(roc["fpr"]) > 10
    for rate, num in ((rate, num) for key, num in (("fpr", 30), ("tpr", 40)) for rate in roc[key]):
        assert not 0 < round(rate * num) < 5


def test_an_attack_on_few_people_is_left_out() -> None:
    audit = tiny_audit()
    audit["models"][0]["membership"]["zlib"] = {**audit["models"][0]["membership"]["zlib"], "num_nonmembers": 4}
    assert set(published(audit)["models"][0]["membership"]) == {"loss"}


def two_sides(members: dict[str, Any], heldout: dict[str, Any], n: int) -> dict[str, Any]:
    excess = (members["value"] or 0) - (heldout["value"] or 0)
    return {"members": members, "heldout": heldout, "excess": estimate(excess, excess - 0.1, excess + 0.1, n)}


def test_a_side_that_is_closed_is_not_the_sum_of_the_other_and_the_difference() -> None:
    few = two_sides(estimate(0.5, 0.1, 0.9, 2), estimate(0.1, 0.0, 0.2, 60), 62)
    audit = tiny_audit()
    audit["models"] = [model("clm", "clm", 16, leaked=20)]
    audit["models"][0] |= {"excess": {"both": few}, "generated": {"num_prompts": {}, "excess": {"both": few}}}
    rates = [{"measure": "discoverable", "asked": "all", **few}]
    passages = {"num_passages": {}, "num_short": {}, "rates": rates}
    audit["extraction"] = {"models": [{"passages": passages, "canaries": None}]}
    found = published(audit)
    for part in (
        found["models"][0]["excess"]["both"],
        found["models"][0]["generated"]["excess"]["both"],
        found["extraction"]["models"][0]["passages"]["rates"][0],
    ):
        assert (part["members"]["value"], part["excess"]["value"], part["excess"]["n"]) == (None, None, None)
        assert part["heldout"]["value"] == 0.1
    assert published(found) == found


def test_the_rate_of_a_category_in_which_few_leaked_is_not_in_its_excess() -> None:
    own = {**estimate(0.99, 0.9, 1.0, 40), "num_identifiers": 200, "num_leaked": 2}
    excess = {"heldout": estimate(0.1, 0.0, 0.2, 40), "excess": estimate(-0.09, -0.2, 0.0, 80)}
    audit = tiny_audit()
    audit["models"][0]["by_category"] = {"NAME": {**own, "excess": excess}}
    found = published(audit)["models"][0]["by_category"]["NAME"]
    assert (found["num_leaked"], found["bound"], found["excess"]["excess"]["value"]) == (None, "above", None)
    audit["models"][0]["by_category"]["NAME"] |= {"num_leaked": 20, "value": 0.9}
    assert published(audit)["models"][0]["by_category"]["NAME"]["excess"] == excess


def test_few_identifiers_that_were_told_are_not_in_the_difference() -> None:
    top1 = two_sides(estimate(0.05, 0.0, 0.1, 30), estimate(0.2, 0.1, 0.3, 30), 60)
    audit = tiny_audit()
    audit["models"][0]["inversion"] = {
        "direct": {"num_targets": {"members": 40, "heldout": 40}, "all": {"top1": top1}, "ordinary": {"top1": top1},
                   "in_place": {"ranked": {"top1": top1}, "own": {"top1": top1}, "extracted": {"100": top1}}}
    }  # fmt: skip
    direct = published(audit)["models"][0]["inversion"]["direct"]
    place = direct["in_place"]
    rates = (direct["all"]["top1"], place["ranked"]["top1"], place["own"]["top1"], place["extracted"]["100"])
    for found in rates:
        assert (found["members"]["bound"], found["members"]["value"], found["excess"]["value"]) == (
            "below", 0.125, None,
        )  # fmt: skip


def test_a_passage_or_two_of_many_that_came_back_are_not_counted() -> None:
    """Of 100 people with 10 passages each one came back: a rate of 0.001 is less than that of one person."""
    pages = []
    for back in (1, 4, 12, 30):
        sides = two_sides(estimate(back / 1000, 0.0, 0.0, 100), estimate(0.0, 0.0, 0.03, 80), 180)
        passages = {
            "num_passages": {"members": 1000, "heldout": 800}, "num_short": {"members": 0, "heldout": 0},
            "rates": [{"measure": "k_extractable", "asked": "all", **sides}],
        }  # fmt: skip
        audit = {**tiny_audit(), "extraction": {"models": [{"passages": passages, "canaries": None}]}}
        pages.append(json.dumps(published(audit)["extraction"]))
    assert len(set(pages)) == 1


def test_few_members_named_at_a_low_false_positive_rate_are_not_counted() -> None:
    pages = []
    for named in (1, 4):
        audit = tiny_audit()
        attack = audit["models"][0]["membership"]["loss"]
        attack["tpr_at_fpr"] = {"0.01": estimate(named / attack["num_members"], 0.0, 0.0, 1040), "0.001": None}
        found = published(audit)["models"][0]["membership"]["loss"]["tpr_at_fpr"]
        pages.append(json.dumps(found))
        assert found["0.01"]["bound"] == "below"
    assert len(set(pages)) == 1


def test_the_threshold_is_the_jobs() -> None:
    audit = tiny_audit()
    audit["models"] = [model("ppclm", "clm", 4, leaked=6)]
    assert published(audit)["models"][0]["privacy"]["both"]["num_leaked"] == 6
    audit["settings"]["audit"] = {"small_cell": 10}
    assert published(audit)["models"][0]["privacy"]["both"]["num_leaked"] is None
    assert published(audit)["small_cell"] == 10


# ------------------------------------------------------------------- evidence that lacks


def test_nobody_and_nothing_measured_still_renders(render: Any) -> None:
    audit = tiny_audit()
    nothing = estimate(None, n=0)
    entry = model("ppmlm", "mlm", 4)
    entry["privacy"] = {"both": {**leakage(0), "types": nothing, "num_identifiers": 0, "num_leaked": 0}}
    entry["excess"] = {"both": {"members": nothing, "heldout": nothing, "excess": nothing}}
    entry["utility"] = {"heldout": {"ordinary_word_accuracy": nothing, "masked_word_accuracy": nothing}}
    audit["models"] = [entry]
    rows = rows_of(render(audit).find(".//table[@id='main']"))
    assert [shown(cell) for cell in rows[1][2:6]] == ["–", "–", "–", "–"]


@pytest.mark.parametrize("where", ["retention_by_policy", "retention"])
def test_retention_of_every_policy_is_a_table(render: Any, where: str) -> None:
    audit = tiny_audit()
    audit["corpus"][where] = [
        {"policy": "all", "n": 1, "k": 2, "retention": 0.39},
        {"policy": "cover", "n": 2, "k": 3, "retention": 0.81},
    ]
    page = render(audit)
    table = next(t for t in page.iter("table") if "policy" in text_of(t))
    assert [[text_of(cell) for cell in row] for row in rows_of(table)[1:]] == [
        ["all (used here)", "1", "2", "39 %"],
        ["cover", "2", "3", "81 %"],
    ]
    assert "Only 39 % of the words are left to learn from" in section(page, "findings")


def test_a_base_model_that_ranks_members_below_others_is_no_sound_control() -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == "base":
            low = {**entry["membership"]["loss"], "auc": estimate(0.3, 0.2, 0.4)}
            entry["membership"] = {"loss": low, "zlib": {**low, "auc": estimate(0.45, 0.35, 0.55)}}
    sure = " ".join(plain_findings(evidence(audit)).sure)
    assert "the masked base model tells members from held-out people (0.30 (0.20 to 0.40, attack " in (
        sure.replace("\N{NO-BREAK SPACE}", " ")
    )
    assert "as it should be" not in sure


def test_a_number_beside_its_threshold_is_on_the_side_of_its_verdict(tmp_path: Path) -> None:
    gate = {"gate": 1, "measure": "excess_leakage", "at_most": 0.05, "part": "both", "n": 70, "unit": "individuals",
            "required": True, "reason": "the estimate is beyond the threshold"}  # fmt: skip
    rows = [{**gate, "outcome": "fail", "upper": 0.05012}, {**gate, "outcome": "pass", "upper": 0.0496}]
    audit = {**tiny_audit(), "verdict": {"outcome": "fail", "results": rows}}
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["excess"]["both"]["excess"] |= estimate(0.05004, 0.01, 0.08)
    found = page_text(tmp_path, audit)
    assert "excess leakage both – 0.05 0.0501 70 fail" in found
    assert "excess leakage both – 0.05 0.050 70 pass" in found
    assert "beyond the threshold 0.05004 (0.01000 to 0.08000)" in found


def test_a_gate_judged_over_too_few_people_gives_no_number_away() -> None:
    rows = [{"n": n, "upper": 0.3, "outcome": "no power"} for n in (0, 4, 5)]
    found = published({**tiny_audit(), "verdict": {"outcome": "no power", "results": rows}})["verdict"]["results"]
    assert [(row["n"], row["upper"]) for row in found] == [(0, 0.3), (None, None), (5, 0.3)]


def test_what_is_no_audit_is_refused(tmp_path: Path) -> None:
    audit = tiny_audit()
    with pytest.raises(ArtifactError, match="corpus is missing"):
        write(tmp_path, {key: part for key, part in audit.items() if key != "corpus"})
    with pytest.raises(ArtifactError, match="not an audit of format"):
        write(tmp_path, {**audit, "format": "reticent.audit/0"})
    audit["models"][0]["utility"]["heldout"]["ordinary_word_accuracy"]["value"] = float("nan")
    with pytest.raises(ArtifactError, match="not finite"):
        write(tmp_path, audit)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------- findings


def findings(
    *models: dict[str, Any],
    recipes: dict[str, Any] | None = None,
    subject: dict[str, Any] | None = None,
    t: Texts = ENGLISH,
    **parts: Any,
) -> dict[str, str]:
    audit = tiny_audit()
    settings = {**audit["settings"], "recipes": recipes or {}, "subject": subject}
    audit = {**audit, "models": list(models), "settings": settings}
    said = plain_findings(publish_audit(replace(evidence(audit), **parts)), t)
    texts = {**said._asdict(), "found": [sentence for _, sentences in said.found for sentence in sentences]}
    return {key: " ".join(sentences).replace("\xa0", " ") for key, sentences in texts.items()}


def entry(recipe: str, *, excess: float, auc: float, leaked: int = 20, epoch: int = 16, **more: Any) -> dict[str, Any]:
    result = model(recipe, "clm", epoch, leaked=leaked, auc=auc, **more)
    part = {**result["excess"]["both"], "excess": estimate(excess, excess - 0.03, excess + 0.03)}
    result["excess"] = dict.fromkeys(("both", "direct", "indirect"), part)
    return result


QUIET, LOUD = {"excess": 0.0, "auc": 0.5}, {"excess": 0.2, "auc": 0.9, "leaked": 90}
TOLD = {"rare": {"share": 0.1, "attacks": {"loss": {
    "auc": estimate(0.9, 0.85, 0.95, n=300), "num_members": 150, "num_nonmembers": 150}}}}  # fmt: skip
BROKEN = {"eligible": 900, "protected": 300, "targets": 900, "violations": 2}
WEAK = {"ordinary_token_accuracy": estimate(0.02, 0.01, 0.03)}
OWN = {"long": {"base": "clm"}, "tight": {"base": "ppclm", "k": 3}}


@pytest.mark.parametrize(
    ("models", "has", "has_not"),
    [
        pytest.param(
            [entry("clm", **LOUD), entry("ppclm", **QUIET, leaked=12)],
            {"short": ["clm has learned identifiers of the people", "No such learning was found in the other models."],
             "found": ["predicts 90 of its members’ 200 identifiers (45 %)", "(20.0 points less, 17.0 to 23.0)",
                       "predicts 12 of its members’ 200 identifiers (6.0 %), fewer than clm"],
             "sure": ["can find learned identifiers: it finds them in clm."],
             "next": ["Do not share clm:", "Who is in the data of clm can be told",
                      "Against ppclm no attack of this audit succeeded. That is a measurement"]},
            {}, id="a model that learned is not to be shared"),
        pytest.param(
            [entry("clm", **LOUD), *(entry(recipe, **QUIET) for recipe in ("ppclm", "long", "tight"))],
            {"next": ["Against ppclm and tight no attack of this audit succeeded."]}, {},
            id="an own recipe without protection is not said to withstand"),
        pytest.param(
            [entry("ppclm", **QUIET, by_kind=TOLD), entry("clm", **LOUD)],
            {"next": ["Do not share ppclm: beyond the threshold: membership through identifying words."]},
            {"next": ["no attack of this audit succeeded"]}, id="a model beyond a threshold is not said to withstand"),
        pytest.param(
            [entry(r, excess=0.0, auc=a, epoch=e) for r in ("clm", "long") for e, a in ((4, 0.55), (16, 0.8))],
            {"next": ["Who is in the data of clm and long can be told"]}, {"next": ["after 4 epochs"]},
            id="no earlier checkpoint without protection"),
        pytest.param(
            [entry("ppclm", **QUIET), entry("long", **LOUD)],
            {"sure": ["No causal model of the recipe clm was trained, which alone is the control of the others"]},
            {"sure": ["No unprotected causal model"]}, id="an own unprotected recipe is no control"),
        pytest.param(
            [entry("clm", **QUIET), entry("ppclm", **QUIET)],
            {"short": ["of causal models this says little, as nothing shows that the audit would find it."],
             "sure": ["finding none in other causal models does not show that protection works"]}, {},
            id="a quiet audit could not have heard"),
        pytest.param([entry("ppclm", **QUIET)],
                     {"sure": ["No unprotected causal model was trained beside the others", "0 of 900 (ppclm)"]}, {},
                     id="no twin"),
        pytest.param(
            [entry("ppclm", excess=0.0, auc=0.55, epoch=4), entry("ppclm", excess=0.0, auc=0.8)],
            {"found": ["better than by chance: ppclm 0.80 (0.70 to 0.90, attack loss)."],
             "next": ["Who is in the data of ppclm can be told, and masking does not close that.",
                      "ppclm after 4 epochs: not measurably (area 0.45 to 0.65), with 34 % right instead of 46 %."]},
            {"next": ["Share"]}, id="members who can be told"),
        pytest.param(
            [entry("clm", excess=0.0, auc=0.8, guarantee="epsilon 8.00 at delta 1e-3 per individual")],
            {"next": ["Who is in the data of clm can be told, although the training was private. A smaller epsilon,"]},
            {"next": ["differential privacy make it harder"]}, id="members of a private model who can be told"),
        pytest.param([model("base", "clm", 0, auc=0.7), entry("ppclm", excess=0.0, auc=0.8)],
                     {"sure": ["Caution: even the causal base model", "even the causal base model tells members"]}, {},
                     id="a base that tells members"),
        pytest.param([entry("ppclm", **QUIET, ledger=BROKEN)],
                     {"short": ["Training broke its own rule for ppclm."],
                      "next": ["Do not use ppclm: 2 of its 900 targets were protected."]},
                     {"sure": ["0 of 900"]}, id="a broken rule"),
        pytest.param([entry("ppclm", **QUIET, leaked=0, utility={"heldout": WEAK, "members": WEAK})],
                     {"sure": ["No causal model gets 10 % of ordinary words right"],
                      "next": ["Train the causal models further"]},
                     {"next": ["no attack of this audit succeeded"]}, id="a model that learned little"),
    ],
)  # fmt: skip
def test_findings_say_what_was_found_and_nothing_that_was_not(
    models: list[dict[str, Any]], has: dict[str, list[str]], has_not: dict[str, list[str]]
) -> None:
    said = findings(*models, recipes=OWN if any(each["recipe"] in OWN for each in models) else None)
    assert {key: [text for text in texts if text not in said[key]] for key, texts in has.items()} == {
        key: [] for key in has
    }
    assert {key: [text for text in texts if text in said[key]] for key, texts in has_not.items()} == {
        key: [] for key in has_not
    }


@pytest.mark.parametrize("auc", [0.8, 0.5])
@pytest.mark.parametrize("more", [{}, {"utility": {"heldout": WEAK, "members": WEAK}}])
@pytest.mark.parametrize(
    ("t", "steps", "of_trainers"),
    [
        (
            ENGLISH,
            [
                "Refuse what was handed over, or ask who trained it to train another",
                "refuse them, or ask who trained them",
                "ask who trained them whether these are the final ones",
                "ask about 1,000 people who were not trained on",
            ],
            r"[Tt]rain the |: train |able\. Fewer|that\. Fewer|hold out|test shorter",
        ),
        (
            Texts("fr"),
            [
                "Refuser ce qui a été remis, ou demander à qui l’a entraîné d’en entraîner un autre",
                "les refuser, ou demander à qui les a entraînés",
                "demander à qui les a entraînés si ce sont bien les derniers",
                "il faut interroger sur 1\u202f000 personnes dont les documents n’ont pas servi",
            ],
            r"Entraîner |: les entraîner|suffit pas\. Moins|mettre à part|tester des suites",
        ),
    ],
)
def test_who_audits_a_model_of_others_is_told_what_to_do_and_not_to_train_it(
    t: Texts, steps: list[str], of_trainers: str, more: dict[str, Any], auc: float
) -> None:
    subject = {"model": "outside", "statement": "a letter", "also": {}}
    said = findings(entry("given", excess=0.0, auc=auc, leaked=0, **more), subject=subject, t=t)["next"]
    told, little = auc > 0.5, bool(more)
    assert [step in said for step in steps] == [told, told and little, little and not told, True]
    assert not re.search(of_trainers, said)


@pytest.mark.parametrize(
    ("excess", "t", "said"),
    [
        (0.01, ENGLISH, "it may predict as many identifiers: the difference (1.0 points, −2.0 to 4.0) can be chance."),
        (-0.1, ENGLISH, "it predicts no fewer identifiers: the difference is −10.0 points (−13.0 to −7.0)."),
        (0.01, Texts("fr"), "l’écart (en points : 1,0, de −2,0 à 4,0) peut être dû au hasard."),
        (
            -0.1,
            Texts("fr"),
            "il ne prédit pas moins d’identifiants : l’écart en points est de −10,0 (de −13,0 à −7,0).",
        ),
    ],
)
def test_a_difference_with_an_interval_is_not_called_unmeasurable(excess: float, t: Texts, said: str) -> None:
    found = findings(entry("ppclm", excess=excess, auc=0.5), t=t)["found"]
    assert said in found
    assert not re.search("not measurable|n’est pas mesurable", found)


WAY = "membership by the whole text, members above every other person"
FRENCH_WAY = "appartenance, par le texte entier, membres au-dessus de toute autre personne"


@pytest.mark.parametrize(
    ("rate", "t", "said"),
    [
        (0.5, ENGLISH, f"found: {WAY}, 50.0 % (49.0 % to 60.0 %)"),
        (0.05, ENGLISH, f"found: {WAY}, of too few people to publish its value"),
        (0.05, Texts("fr"), f"trouvé : {FRENCH_WAY}, de trop peu de personnes pour en publier la valeur"),
    ],
)
def test_what_was_found_has_its_number_or_why_there_is_none(rate: float, t: Texts, said: str) -> None:
    one = entry("ppclm", excess=0.0, auc=0.5)
    for attack in one["membership"].values():
        told = {"rate": estimate(rate, rate - 0.01, rate + 0.1), "num_above": round(40 * rate), "p_value": 1e-6}
        attack["told"] = told
    risks = published_audit({**tiny_audit(), "models": [one]}).risks
    assert risks is not None
    (result,) = (each for each in risks.rows[0].results if each.risk == "individual")
    result = replace(result, what="membership by the whole text", outcome="not shown")  # another number decides
    assert found_in_words(risks.rows[0], result, t).replace("\xa0", " ") == said


def test_learning_of_one_kind_of_identifier_is_not_averaged_away() -> None:
    mixed = entry("clm", **QUIET)
    mixed["excess"]["indirect"] = {**mixed["excess"]["both"], "excess": estimate(0.2, 0.1, 0.3)}
    assert "clm has learned identifiers" in findings(mixed)["short"]


def inverted(low: float) -> dict[str, Any]:
    sides = {side: estimate(0.1, 0.05, 0.15) for side in ("members", "heldout")}
    top1 = {**sides, "excess": estimate(0.02, low, 0.04)}
    return {"direct": {"num_targets": {"members": 90, "heldout": 90}, "all": {"top1": top1}}}


def by_rare_words(low: float) -> dict[str, Any]:
    attack = {"auc": estimate(0.55, low, 0.59, n=300), "num_members": 150, "num_nonmembers": 150}
    return {"rare": {"share": 0.1, "attacks": {"loss": attack}}}


def extracted(low: float = -0.001, bits: float = -1.0) -> dict[str, Any]:
    sides = {side: estimate(0.2, 0.1, 0.3) for side in ("members", "heldout")}
    rate = {**sides, "excess": estimate(0.004, low, 0.008), "measure": "discoverable", "prefix_tokens": 50}
    arms = {arm: {"excess_exposure": estimate(1.0, low, 2.0)} for arm, low in (("protected", bits), ("missed", 0.5))}
    whose = entry("ppclm", excess=0.0, auc=0.5).get("model")
    found = {"model": whose, "recipe": "ppclm", "epoch": 16, "canaries": {"arms": arms},
             "passages": {"rates": [rate | {"asked": "all"}]}}  # fmt: skip
    return {"extraction": filled(Extraction, {"models": [found | {"epoch": 4, "canaries": None}, found]})}


def probed(members: float, heldout: float, said: float = 0.0) -> dict[str, Any]:
    """Ratios of likelihoods with intervals from half to double, and the share of members whose item was said."""
    factors = [estimate(value, value / 2, value * 2) for value in (members, heldout)]
    exact = [estimate(value, max(value - 0.1, 0.0), value + 0.1) for value in (said, 0.0)]
    row = {"target": "phone", "level": "twin", "n": 40, "likelihood": {"factor": factors[0]}, "exact_match": exact[0],
           "heldout": {"n": 40, "factor": factors[1], "exact_match": exact[1]}}  # fmt: skip
    return {"probe": filled(ProbeEvidence, {"models": [{"name": "ppclm", "results": [row]}]})}


@pytest.mark.parametrize(
    ("own", "parts", "found"),
    [
        ({}, {}, False),
        ({"inversion": inverted(-0.01)}, {}, False),
        ({"inversion": inverted(0.01)}, {}, True),
        ({"by_kind": by_rare_words(0.49)}, {}, False),
        ({"by_kind": by_rare_words(0.51)}, {}, True),
        ({}, extracted(), False),
        ({}, extracted(low=0.001), True),
        ({}, extracted(bits=0.5), True),
        ({}, probed(3.0, 2.0), False),
        ({}, probed(30.0, 2.0), True),
        ({}, probed(1.0, 1.0, said=0.1), False),
        ({}, probed(1.0, 1.0, said=0.5), True),
    ],
)
def test_a_model_in_which_an_attack_found_something_is_not_said_to_withstand_all(
    own: dict[str, Any], parts: dict[str, Any], found: bool
) -> None:
    quiet, loud = entry("ppclm", excess=0.0, auc=0.5), entry("clm", excess=0.2, auc=0.9, leaked=90)
    said = findings(quiet | own, loud, **parts)["next"]
    assert ("Against ppclm no attack of this audit succeeded" in said) == (not found)
    assert ("Some attacks found something in ppclm: weigh what the tables say of it." in said) == found


def test_trainings_with_several_seeds_are_numbered_and_their_seeds_kept_back() -> None:
    """The seed of the job is often one of them."""
    audit, (first, *_) = tiny_audit(), tiny_audit()["models"]
    audit["models"] = [{**first, "model": "m", "seed": seed} for seed in (77, 5)]
    about = {"model": "m", "recipe": first["recipe"], "epoch": 1}
    audit["extraction"] = {"has_canaries": False, "models": [{**about, "seed": 5, "passages": None, "canaries": None}]}
    audit["verdict"] = {"outcome": "pass", "results": [{**about, "outcome": "pass", "seed": 77, "n": 9, "upper": 0.1}]}
    found = published(audit)
    assert [model["training"] for model in found["models"]] == [1, 2]
    assert [row["training"] for row in (*found["extraction"]["models"], *found["verdict"]["results"])] == [2, 1]
    assert '"seed' not in json.dumps(found)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/dupont/notes", "…/notes"),
        ("./dupont/notes", "…/notes"),
        ("dupont/notes", "…/notes"),
        ("dupont\\notes\\", "…/notes"),
        ("~dupont", "…/~dupont"),
        ("c:dupont", "…/dupont"),
        ("google-bert/bert-base-uncased", "…/bert-base-uncased"),
        ("notes", "notes"),
        ("cuda", "cuda"),
    ],
)
def test_relative_paths_are_shortened_like_absolute_ones(path: str, shown: str) -> None:
    audit = tiny_audit()
    audit["settings"] = {**audit["settings"], "detect": {"records": {"table": path}}}
    once = published(audit)
    assert once["settings"]["detect"]["records"]["table"] == shown
    assert published(once)["settings"]["detect"]["records"]["table"] == shown


def invalid(model: dict[str, Any]) -> dict[str, Any]:
    attacks = {name: attack | {"verdict": INVALID} for name, attack in model["membership"].items()}
    return {**model, "membership": attacks}


def test_an_invalid_attack_neither_distinguishes_nor_reassures() -> None:
    blind = {"auc": estimate(0.65, 0.55, 0.75), "num_members": 60, "num_nonmembers": 60}
    base = invalid(entry("base", excess=0.0, auc=0.7, epoch=0)) | {"blind": blind}
    said = findings(base, invalid(entry("clm", excess=0.2, auc=0.9)), invalid(entry("ppclm", excess=0.0, auc=0.5)))
    assert "Who was in the data of clm and ppclm was not measured" in said["short"]
    assert "distinguishable better than by chance" not in said["short"]
    assert "Who took part is distinguishable" not in said["found"]
    assert "nothing can be said of clm and ppclm" in said["found"]
    assert (
        "tell members from held-out people without any model (area 0.65, 0.55 to 0.75; for the causal models)"
        in said["sure"]
    )
    assert "even the causal base model tells members from held-out people" in said["sure"]
    assert "Ask again who was in the data of clm and ppclm" in said["next"]
    assert "no attack of this audit succeeded" not in said["next"]


@pytest.mark.parametrize(("plain", "verdict"), [(0.5, "no power"), (0.9, "not distinguishable")])
def test_an_attack_that_finds_nobody_anywhere_does_not_reassure(plain: float, verdict: str) -> None:
    models = with_attack_verdicts(entries(entry("clm", excess=0.2, auc=plain), entry("ppclm", excess=0.0, auc=0.5)))
    assert {attack.verdict for attack in models[1].membership.values()} == {verdict}
    said = findings(*map(to_json, models))
    weak = verdict == "no power"
    assert ("of clm and ppclm this says little, as no attack has shown" in said["short"]) == weak
    assert ("ppclm 0.50 (0.40 to 0.60, attack loss), without power" in said["found"]) == weak
    assert "is not measurably distinguishable (membership of the person): " in said["found"]


def found_beside_the_table(one: dict[str, Any]) -> str:
    """The sentences on what was found, where the table of risks has its numbers, as in the report."""
    said = plain_findings(published_audit({**tiny_audit(), "models": [one]}))
    return " ".join(sentence for _, sentences in said.found for sentence in sentences).replace("\xa0", " ")


def test_the_sentence_on_the_person_has_the_number_of_the_table_of_risks() -> None:
    one = entry("ppclm", excess=0.0, auc=0.8)
    sides = {name: one["membership"]["loss"][name] for name in ("num_members", "num_nonmembers")}
    attack = {"auc": estimate(0.9, 0.85, 0.95), **sides}
    one["by_kind"] = {"ordinary": {"share": 0.8, "attacks": {"loss": attack}}}
    said = found_beside_the_table(one)
    assert "ppclm (membership by ordinary words: 0.90)" in said
    assert "0.80" not in said


def test_the_sentence_on_another_test_has_its_number() -> None:
    one = entry("ppclm", excess=0.0, auc=0.5)
    alone = {"members": estimate(0.3, 0.2, 0.4), "heldout": estimate(0.1), "excess": estimate(0.2, 0.1, 0.3)}
    one["excess"]["both"]["unshared"] = {"num_shared": 9, "num_unmatched": 90, **alone}
    said = found_beside_the_table(one)
    assert "Another test finds something: identifiers predicted, members less held-out people, used on one" in said
    assert "side alone, 20.0 % (10.0 % to 30.0 %)." in said


def test_members_told_at_a_low_error_rate_are_in_the_sentence_where_the_table_has_them() -> None:
    """A rate has its own chance: 0.6 of the members with one false alarm in a hundred is more than an area of 0.65."""
    one = entry("ppclm", excess=0.0, auc=0.65)
    for attack in one["membership"].values():
        attack["told"] = {"rate": estimate(0.6, 0.5, 0.7, n=300), "fpr": 0.01, "num_above": 180}
    said = found_beside_the_table(one)
    assert "members told with one false alarm in a hundred" in said
    assert "0.65" not in said


def test_an_attack_that_is_invalid_leaves_the_word_to_the_others() -> None:
    one = entry("clm", excess=0.2, auc=0.6)
    (name, attack), *_ = one["membership"].items()
    one["membership"] = {name: attack | {"verdict": "distinguishable"}, "zlib": {**attack, "verdict": INVALID}}
    one["membership"]["zlib"]["auc"] = estimate(0.99, 0.98, 1.0)
    said = findings(one)
    assert (
        f"clm 0.60 (0.50 to 0.70, attack {name})" in said["found"]
        or "is not measurably distinguishable" in said["found"]
    )
    assert "zlib" not in said["found"]


def test_the_best_of_the_attacks_that_are_left_has_a_corrected_interval() -> None:
    one = entry("clm", excess=0.2, auc=0.65)  # by itself distinguishable
    one["membership"]["loss"]["auc"] = estimate(0.65, 0.51, 0.8)
    one["membership"]["zlib"] = {**one["membership"]["zlib"], "auc": estimate(0.9, 0.8, 1.0), "verdict": INVALID}
    intervals = {"loss": [0.48, 0.82], "zlib": [0.75, 1.0], "wbc": [0.4, 0.6]}
    one["best_attack"] = {"attack": "zlib", "num_attacks": 3, "auc": estimate(0.9, 0.75, 1.0), "intervals": intervals}
    said = findings(one)
    assert "clm 0.65 (0.48 to 0.82, attack loss)" in said["found"]
    assert "is distinguishable better than by chance" not in said["short"]
    kept = published({**tiny_audit(), "models": [one]})["models"][0]["best_attack"]["intervals"]
    assert set(kept) == {"loss", "zlib"}, "an attack that is not published has no interval"


def test_gates_and_canaries_stand_first() -> None:
    outcomes = ["fail", "no power", "no power", "pass"]
    audit = {**tiny_audit(), "verdict": {"results": [{"outcome": outcome} for outcome in outcomes]}}
    audit["extraction"] = {"has_canaries": True, "models": []}
    first, second, *_ = plain_findings(evidence(audit)).short
    assert first == "Of 4 gates 1 failed, 2 could not be decided and 1 passed."
    assert "not for release" in second
    assert "gate" not in " ".join(plain_findings(evidence(tiny_audit())).short)


# ------------------------------------------------------------------ the documents


def test_few_ngrams_are_not_counted() -> None:
    corpus = tiny_audit()["corpus"]
    corpus["identifiers_by_n"][1]["all"] |= {"distinct": 4, "occurrences": 90}
    corpus["identifiers_by_n"][2]["minimal"] |= {"occurrences_direct": 3}
    corpus["identifying_words"]["direct"] |= {"distinct": 2, "occurrences": 2}
    corpus["margin"][0] |= {"distinct": 0, "occurrences": 0}
    corpus["margin"][1] |= {"distinct": 4, "occurrences": 900}
    found = published_corpus(corpus, 5)
    closed = {"distinct": None, "occurrences": None}
    assert {key: found["identifiers_by_n"][1]["all"][key] for key in closed} == closed
    assert found["identifiers_by_n"][2]["minimal"].get("occurrences_direct") is None
    assert found["identifiers_by_n"][2]["minimal"]["occurrences"] == 900
    assert found["identifying_words"]["direct"] == closed
    assert found["margin"][:2] == [
        {"n": 1, "support": 1, "distinct": 0, "occurrences": 0}, {"n": 1, "support": 2, **closed},
    ]  # fmt: skip
    assert found["margin"][2:] == corpus["margin"][2:]
    steps = found["identifiers_by_n"][0]["all"]["per_individual"]["y"]
    assert steps == found["words_per_individual"]["y"] != corpus["words_per_individual"]["y"]


def test_sets_that_single_out_few_people_are_a_bound() -> None:
    corpus = tiny_audit()["corpus"]
    corpus["unicity"] = [
        {"m": m, "share": {**estimate(value, value / 2, (1 + value) / 2, n=n), "unit": "individual"}}
        for m, (value, n) in enumerate([(0.0, 100), (0.03, 100), (0.4, 100), (0.98, 100), (1.0, 4)], start=1)
    ]
    shares = [row["share"] for row in published_corpus(corpus, 5)["unicity"]]
    assert [(share["value"], share.get("bound")) for share in shares] == [
        (0.0, None), (0.05, "below"), (0.4, None), (0.95, "above"), (None, None),
    ]  # fmt: skip
    assert shares[4]["n"] is None


def test_the_limits_say_how_often_shared_words_single_out(page: Page, render: Any) -> None:
    limits = section(page, "limits")
    assert "of random sets of 10 words, each used by 2 people or more, a share of 0.90 has only one person" in limits
    assert "interval 0.00 to 1.00" in limits
    audit = tiny_audit()
    audit["corpus"]["unit"] = "household"
    for row in audit["corpus"]["unicity"][4:]:  # fewer have so many
        row["share"] = {**row["share"], "n": 150}
    limits = section(render(audit), "limits")
    assert "of random sets of 4 words, each used by 2 people or more, a share of 0.30 has only one household" in limits


@pytest.mark.parametrize(("num", "shown_share"), [(0, "0"), (3, "a small share"), (40, "7")])
def test_copies_are_told_and_few_are_not_counted(render: Any, num: int, shown_share: str) -> None:
    share = 0.07 if num else 0.0
    side = {"documents": num, "clusters": num, "words_share": share}
    passages = {"documents": num, "words_share": share}
    audit = tiny_audit()
    audit["corpus"]["copies"] = {
        "documents": 900,
        "exact": {"within": side, "across": side},
        "passages": {"min_words": 50, "within": passages, "across": passages},
        "support": {"k": 2, "lifted_words": num, "lifted_share": share},
        "left_out": passages,
    }
    copies = published_corpus(audit["corpus"], 5)["copies"]
    assert copies["exact"]["across"] == (side if num != 3 else dict.fromkeys(side))
    assert copies["passages"]["min_words"] == 50
    said = " ".join(section(render(audit), "documents").split())
    assert re.search(rf"copies were left out \({shown_share}(\.0)?\W*of all words\)", said)
    assert "passages of 50 words or more" in said
