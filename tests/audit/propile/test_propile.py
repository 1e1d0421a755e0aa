"""ProPILE's arithmetic by hand, its templates and subjects, and what a probe of a model that remembers finds."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.models import toy_model, toy_tokenizer
from scipy.stats import chisquare

from reticent.audit.config import COMPASS
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.probe import Density
from reticent.audit.report.format_estimate import value
from reticent.audit.stats import intervals as statistics
from reticent.audit.stats.intervals import clopper_pearson
from reticent.audit.texts import Texts, catalogue
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect import make_detectors
from reticent.ext.propile import probe as propile
from reticent.ext.propile.evidence import _compare_with_null, answers_table, density, share_estimate, summarise
from reticent.ext.propile.measure import probe_models
from reticent.ext.propile.probe import exposed, normalised_likelihood, paired_test, probe_target, within_queries
from reticent.ext.propile.prompts import (
    ProbeConfig,
    ProbeModel,
    SoftPromptConfig,
    SoftPromptStudy,
    all_prompts,
    make_prompts,
    require_subjects,
    sizes_that_fit,
)
from reticent.ext.propile.scores import encode_pairs, score_causal_pairs
from reticent.ext.propile.soft_prompt import soft_prompt_sides
from reticent.ext.propile.subjects import (
    draw_nulls,
    read_subjects,
    split_subjects,
    subjects_from_notes,
    subjects_from_rows,
    subjects_from_spans,
)
from reticent.ext.propile.templates import Template, builtin_templates, pii_type, read_templates, templates_for
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS: dict[str, list[Any]] = {
    "name": [f"Ann Be{n}" for n in range(12)],
    "phone": [f"(555) 10{n % 10}-200{n % 7}" for n in range(12)],
    "email": [f"a{n}@b.example" for n in range(12)],
    "zip": [f"{10000 + n}" for n in range(12)],
}
SECRET = "Zyxwvut"


def people(**changes: Any) -> Any:
    return subjects_from_rows({**ROWS, **changes})


def few_people() -> Any:
    """As many as are needed to be asked about, where a model is asked many questions."""
    return subjects_from_rows({name: values[:5] for name, values in ROWS.items()})


# ---------------------------------------------------------------------------------------------- arithmetic


def test_normalised_likelihood_is_the_geometric_mean() -> None:
    # .5 * .02 = .01 over two tokens: .1; one token: itself.
    found = normalised_likelihood(np.log([0.5 * 0.02, 0.3]), np.array([2, 1]))
    np.testing.assert_allclose(found, [0.1, 0.3])


@pytest.mark.parametrize(
    ("k", "share"), [(1, 0), (2, 0), (3, 0.25), (10, 0.25), (11, 0.5), (100, 0.5), (101, 0.75), (1e9, 0.75)]
)
def test_gamma_counts_what_is_strictly_above_one_in_k(k: float, share: float) -> None:
    assert exposed(np.array([0.5, 0.1, 0.01, 0.0]), k).mean() == share


@pytest.mark.parametrize(
    ("p", "k", "expected"),
    [(0.5, 2, 0.75), (0.1, 3, 0.271), (1e-18, 1, 1e-18), (1e-18, 1e6, 1e-12), (0.0, 100, 0.0), (1.0, 5, 1.0)],
)
def test_the_chance_within_k_answers_is_right_for_the_smallest_likelihood(p: float, k: float, expected: float) -> None:
    assert within_queries(np.array([p]), k)[0] == pytest.approx(expected, rel=1e-12)


def test_wilcoxon_by_hand() -> None:
    # Differences 1, 2, 3, -4, 5: the ranks of the positive ones are 1 + 2 + 3 + 5 = 11. Of 2^5 sign patterns those
    # with a rank sum of 11 or more: complements of subsets with a sum of 4 or less: {}, 1, 2, 3, 4, 12, 13 = 7.
    found = paired_test(np.array([1.0, 2, 3, -4, 5]), np.zeros(5))
    assert (found.statistic, found.n) == (11, 5)
    assert found.p_value == pytest.approx(7 / 32)


def test_wilcoxon_without_a_difference_proves_nothing() -> None:
    assert paired_test(np.ones(4), np.ones(4)).p_value == 1
    assert paired_test(np.array([1.0, np.nan]), np.array([1.0, 0.0])).n == 0


def test_the_test_is_one_sided() -> None:
    low, high = np.arange(8.0), np.arange(8.0) + np.arange(1, 9)
    assert paired_test(high, low).p_value == pytest.approx(1 / 256)
    assert paired_test(low, high).p_value == 1


def test_a_household_is_one_pair_of_the_test() -> None:
    true, homes = np.array([1.0, 3, 2, 4, 7, -1, 5, np.nan, 2, -2]), np.array([4, 4, 1, 1, 0, 0, 7, 7, 2, 2])
    found = paired_test(true, np.zeros(10), homes)
    assert found == paired_test(np.array([3.0, 3, 0, 2, 5]), np.zeros(5))  # the last differ in sum by nothing
    assert found.n == 4
    assert paired_test(true, np.zeros(10), np.arange(10)) == paired_test(true, np.zeros(10))


# ----------------------------------------------------------------------------------------------- templates


def test_every_level_has_the_published_five_templates() -> None:
    columns = [*ROWS, "relationship", "relative", "university"]
    for level in ("twin", "triplet", "quadruplet"):
        assert len(templates_for(builtin_templates(), "phone", level, columns, language="en")) == 5
        assert len(templates_for(builtin_templates(), "phone", level, columns, language="fr")) == 5
    for target in ("relative", "university"):
        assert len(templates_for(builtin_templates(), target, "twin", columns, language="en")) == 5


def test_builtin_templates_are_filled_without_a_trace() -> None:
    subjects = people()
    config = ProbeConfig(given=("phone", "email"))
    for level in ("twin", "triplet", "quadruplet"):
        prompts = make_prompts(subjects, "zip", level, builtin_templates(), config)
        for row in prompts.texts:
            assert not set("{}") & set(row[0])
            assert "  " not in row[0]
            assert "Ann Be0" in row[0]
            assert ("(555) 100-2000" in row[0]) == (level != "twin")
            assert ("a0@b.example" in row[0]) == (level == "quadruplet")
            assert "10000" not in row[0]


def test_a_template_with_an_unknown_field_is_named() -> None:
    with pytest.raises(PolicyError, match=r"unknown field \{shoe_size\}; expected a column .*email, name, phone, zip"):
        make_prompts(
            people(), "phone", "twin", [ASKS[0], Template("{name}, {shoe_size}: ")], ProbeConfig(), strict=True
        )


@pytest.mark.parametrize("text", ["{name", "{} is", "{name!r}", "{name:>9}", "{a.b}"])
def test_a_malformed_template_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="template"):
        _ = Template(text).fields


def test_templates_are_read_from_text_and_toml(tmp_path: Path) -> None:
    text, toml = tmp_path / "t.txt", tmp_path / "t.toml"
    text.write_text("# mine\n{name} lives at \n\n{name}, {zip} \n", encoding="utf-8")
    toml.write_text('[[template]]\nlanguage = "es"\ntargets = ["zip"]\ntexts = ["CP de {name}: "]\n', encoding="utf-8")
    assert [(t.text, t.level) for t in read_templates(text)] == [
        ("{name} lives at ", "twin"),
        ("{name}, {zip} ", "triplet"),
    ]
    assert read_templates(toml) == (Template("CP de {name}: ", "es", ("zip",)),)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("t.txt", "# nothing\n", "no template"),
        ("t.toml", "x = ", "not valid TOML"),
        ("t.toml", '[[template]]\nlevel = "twin"\ntexts = []', "unknown key 'level'"),
        ("t.toml", '[[template]]\ntexts = "one"', "lists of strings"),
        ("t.toml", "template = 1", r"\[\[template\]\]"),
    ],
)
def test_bad_files_of_templates_are_refused(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(PolicyError, match=why):
        read_templates(tmp_path / name)


@pytest.mark.parametrize(
    ("column", "name", "called"),
    [
        ("mrn", "patient_id", "patient identifier"),
        ("E_Mail", "email", "email address"),
        ("blood_group", "blood_group", "blood group"),
    ],
)
def test_columns_are_known_by_several_names(column: str, name: str, called: str) -> None:
    assert (pii_type(column).name, pii_type(column).label("en")) == (name, called)


# ------------------------------------------------------------------------------------------------ subjects


def test_first_and_last_names_make_one_name() -> None:
    found = subjects_from_rows({"first_name": ["Ann", None], "last_name": ["Berg", "Lund"], "mrn": [7, 8]})
    assert (found.items["name"], found.items["patient_id"]) == (["Ann Berg", "Lund"], ["7", "8"])


def test_lists_in_cells_are_joined_for_names_and_else_cut_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"name": ["Ann", "Berg Lund"], "email": ["a@b.c", "d@e.f"], "doctor": []}) + "\n")
    found = read_subjects(path)
    assert (found.items["name"], found.items["email"], found.items["doctor"]) == (["Ann Berg Lund"], ["a@b.c"], [None])


def test_codes_keep_their_leading_zeros(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,zip\nAnn Berg,01234\nBo Lund,\n")
    assert read_subjects(tmp_path / "p.csv").items["zip"] == ["01234", None]


def test_duplicates_are_dropped_and_counted() -> None:
    rows = {name: [*values, values[0]] for name, values in ROWS.items()}
    found = subjects_from_rows(rows)
    assert (len(found), found.counts["rows"], found.counts["duplicates"]) == (12, 13, 1)


def test_one_individual_with_two_sets_of_items_is_an_error_that_shows_neither() -> None:
    with pytest.raises(CorpusError, match="row 2: same individual_id as row 1") as error:
        subjects_from_rows({"individual_id": [SECRET, SECRET], "name": [SECRET, "B"], "zip": ["1", "2"]})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("name,zip\n", "no subject"),
        ("individual_id\n1\n", "no column of personal items"),
        ("mrn,ipp\n1,2\n", "second one"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(CorpusError, match=why):
        read_subjects(tmp_path / "p.csv")


@pytest.mark.parametrize("mark", [",", ";"])
def test_a_table_without_a_header_is_refused_and_its_first_row_not_shown(tmp_path: Path, mark: str) -> None:
    rows = [mark.join(row) for row in (("p1", SECRET, "0612"), ("p2", "Bo Lund", "0613"))]
    (tmp_path / "p.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(CorpusError, match="first line must name the columns") as error:
        read_subjects(tmp_path / "p.csv")
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("pad", range(3))
def test_lines_within_values_are_no_rows_in_a_long_table_either(tmp_path: Path, pad: int) -> None:
    num_rows = 60_000  # more than a block of the reader
    with (tmp_path / "p.csv").open("w") as file:
        file.write("mrn,address\n" + f"p,{'x' * (1 + 7 * pad)}\n")
        file.writelines(f'{row:06d},"12 rue X\n75002, Paris"\n' for row in range(num_rows))
    found = read_subjects(tmp_path / "p.csv")
    assert found.counts["rows"] == num_rows + 1
    assert set(found.items["address"][1:]) == {"12 rue X 75002, Paris"}


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,phone,phone\nAnn Berg,0612,0613\n")
    with pytest.raises(CorpusError, match="a column name stands twice"):
        read_subjects(tmp_path / "p.csv")


def test_a_missing_table_and_a_missing_column_are_said(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        read_subjects(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_text("x")
    with pytest.raises(CorpusError, match="not a readable table"):
        read_subjects(tmp_path / "bad.parquet")
    with pytest.raises(CorpusError, match="no column doctor; there are email, name, phone, zip"):
        make_prompts(people(), "doctor", "twin", builtin_templates(), ProbeConfig())


def test_subjects_come_from_marked_spans() -> None:
    text = "Ann Berg came. Berg, Ann Berg: 0123 ann@b.c"
    spans = [(0, 8, "NAME"), (15, 19, "NAME"), (21, 29, "NAME"), (31, 35, "MRN"), (36, 43, "EMAIL")]
    rows = [{"start": a, "end": b, "label": label} for a, b, label in spans]
    table = pa.table({"individual_id": ["p"], "text": [text], "spans": [rows]})
    found = subjects_from_spans(table)
    assert {name: values[0] for name, values in found.items.items()} == {
        "name": "Ann Berg", "patient_id": "0123", "email": "ann@b.c",
    }  # fmt: skip


NOTE = "Note\nPatient: Vera Roselstone  MRN: 54390972\nMrs. Roselstone can be reached at (236) 792-5090.\n"


@pytest.mark.parametrize("visits", [1, 3])
def test_subjects_come_from_notes_that_nobody_marked(visits: int) -> None:
    """A note also names whoever signed it, by a longer name and as often; the patient is named by halves too."""
    texts = [NOTE + "Signed, Dr. Bartholomew Fitzgerald\n"] * visits + ["Nothing was found."]
    notes = pa.table({"individual_id": ["p"] * visits + ["q"], "text": texts})
    found = subjects_from_notes(notes, make_detectors(["rules"]))
    assert {name: values[0] for name, values in found.items.items()} == {
        "name": "Vera Roselstone", "patient_id": "54390972", "phone": "(236) 792-5090",
    }  # fmt: skip
    assert found.ids == ["p"]


@pytest.mark.parametrize("have", [18, 20, 60, 137, 545, 1280, 10_000])
def test_sizes_of_a_sweep_leave_half_of_the_people_to_be_measured(have: int) -> None:
    sizes = sizes_that_fit(have)
    assert 0 < len(sizes) <= 6
    assert max(sizes) <= 512
    study = SoftPromptStudy(prompt=SoftPromptConfig(num_subjects=sizes[-1]), num_subjects=sizes)
    subjects = people(**{name: [f"{name} {n}" for n in range(have)] for name in ROWS})
    require_subjects(subjects, ("zip",), study)
    assert len(soft_prompt_sides(subjects, "zip", study.prompt, pool=sizes[-1]).evaluation) >= have // 2


def test_a_null_is_another_subject_and_every_other_is_as_likely() -> None:
    drawn = draw_nulls(5, num_nulls=9000, seed=3)
    for number, row in enumerate(drawn):
        counts = np.bincount(row, minlength=5)
        assert counts[number] == 0
        assert chisquare(np.delete(counts, number)).pvalue > 1e-4


def test_where_there_is_no_other_subject_there_is_no_null() -> None:
    assert draw_nulls(1).tolist() == [[-1]]
    assert draw_nulls(0).shape == (0, 1)
    prompts = make_prompts(people(zip=["1"] * 12), "zip", "twin", builtin_templates(), ProbeConfig())
    assert (set(prompts.nulls), prompts.counts["without_null"]) == ({"1"}, 0)


@pytest.mark.parametrize("shares", [[0.7, 0.1, 0.1, 0.1], [1 / rank for rank in range(1, 31)]])
def test_a_model_that_knows_how_common_an_item_is_is_not_taken_to_know_whose_it_is(shares: list[float]) -> None:
    """With equal items left out the first gave p < .05 in 93 of 100."""
    share, found = np.array(shares) / sum(shares), 0
    for seed in range(100):
        own = np.random.default_rng(seed).choice(len(share), 100, p=share)
        log_probs = np.log(share)
        found += paired_test(log_probs[own], log_probs[own[draw_nulls(100, seed=seed)[:, 0]]]).p_value < 0.05
    assert found <= 11


@pytest.mark.parametrize("seed", range(4))
def test_sides_are_disjoint_and_keep_a_name_and_a_household_together(seed: int) -> None:
    """Of three people two share a name, and one of them a household with the third."""
    names = [f"Ann Be{n // 3}{'x' * (n % 3 // 2)}" for n in range(12)]
    subjects = people(name=names, household_id=[f"h{n // 3}{'x' * (n % 3 < 1)}" for n in range(12)])
    sides = split_subjects(subjects, (3, 3), seed=seed)
    assert sum(map(len, sides)) == 12
    for one, other in itertools.combinations(sides, 2):
        assert not set(one.items["name"]) & set(other.items["name"])
        assert not {row // 3 for row in one.rows.tolist()} & {row // 3 for row in other.rows.tolist()}
    with pytest.raises(CorpusError, match="12 are too few"):
        split_subjects(subjects, (6, 6))


# -------------------------------------------------------------------------------------------------- probing


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(toy_tokenizer("gpt2"))


#: Names and codes that share no beginning: what is learned of one says nothing of another.
APART = {
    "name": ["Ada Ek", "Bo Lind", "Cy Orr", "Dag Moe", "Eva Roth", "Flo Penn", "Gus Hale", "Hal Quist", "Ida Voss",
             "Jo Tran", "Kit Zorn", "Lea Ware"],
    "zip": [f"{(n + 1) * 7919 % 90000 + 10000}" for n in range(12)],
}  # fmt: skip


@pytest.fixture(scope="module")
def knowing(tokenizer: Any) -> Any:
    """A model that was taught to answer a prompt for every second subject."""
    return taught(tokenizer, [f"Contact {APART['name'][n]} at zip code {APART['zip'][n]}" for n in range(0, 12, 2)])


def taught(tokenizer: Any, texts: list[str]) -> Any:
    import torch

    model = toy_model("gpt2", hidden_size=64, max_length=96)
    rows = [[tokenizer.bos_token_id, *tokenizer(text).input_ids] for text in texts]
    ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    steps = 120
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids.masked_fill(ids == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
    return model.eval()


ASKS = [Template("Contact {name} at {target_pii_type} "), Template("You can reach {name} by {target_pii_type} ")]


def test_what_was_learned_is_found_and_what_was_not_is_not(knowing: Any, tokenizer: Any) -> None:
    config = ProbeConfig(longest="fit", num_bootstrap=200, small_cell=1)
    spoken = [Template(t.text.replace("{target_pii_type}", "zip code")) for t in ASKS]
    prompts = make_prompts(people(**APART), "zip", "twin", spoken, config, strict=True)
    answers = probe_target(knowing, tokenizer, "clm", prompts, config)
    taught = np.arange(0, 12, 2)
    matched = answers.matches[3]["exact_match"]
    assert matched[0, taught].all()
    assert not matched[:, taught + 1].any()
    assert np.exp(answers.log_probs[0, taught]).min() > 0.5
    section = summarise(answers, config)
    assert section.exact_match.value == 0.5
    assert [row.exact_match.value for row in section.by_num_templates] == [0.5, 0.5]
    assert section.gamma[0].k == 2
    assert section.gamma[0].true.value == 0.5
    difference = answers.log_probs.max(0) - answers.null_log_probs.max(0)
    assert difference[taught].min() > 2
    assert section.likelihood.factor.value == pytest.approx(math.exp(difference.mean()))
    true, null = answers.log_probs.max(0), answers.null_log_probs.max(0)
    assert section.likelihood.test == paired_test(true, null)
    bare = score_causal_pairs(knowing, encode_pairs(tokenizer, [""] * 12, APART["zip"], "clm"))
    np.testing.assert_allclose(answers.alone, bare, rtol=1e-5)
    assert section.unconditional.linked.value == np.mean(true > bare) >= 0.5
    assert section.unconditional.factor.value == pytest.approx(math.exp((true - bare).mean()), rel=1e-4)
    assert answers.drawn is section.drawn is None
    assert paired_test(true[taught], null[taught]).p_value < 0.02


def test_a_beginning_is_anothers_and_the_same_for_all_others() -> None:
    subjects, config, told = people(), ProbeConfig(levels=(COMPASS,)), [(3, "seen in March"), (5, "lives alone")]
    twin = make_prompts(subjects, "zip", "twin", builtin_templates(), config)
    found = make_prompts(subjects, "zip", COMPASS, builtin_templates(), config, beginnings={"zip": told})
    assert found.templates == twin.templates != []
    for number, (row, alone) in enumerate(zip(found.texts, twin.texts, strict=True)):
        (owner, first), (_, other) = told[number % 2], told[1 - number % 2]
        assert row == [f"{other if n == owner else first} {text}" for n, text in enumerate(alone)]
    assert not make_prompts(subjects, "zip", COMPASS, builtin_templates(), config, beginnings={}).templates
    one = make_prompts(subjects, "zip", COMPASS, builtin_templates(), config, beginnings={"zip": told[:1]})
    assert [n for n, text in enumerate(one.texts[0]) if text is None] == [3]  # there is no other's
    with pytest.raises(PolicyError, match="compass needs documents"):
        all_prompts(subjects, config, None)


def test_a_true_beginning_leads_a_model_to_what_the_bare_question_does_not(tokenizer: Any) -> None:
    before, asked = "she has a cough and no pain", [Template("Contact {name} at zip code ")]
    people_of = list(zip(APART["name"], APART["zip"], strict=True))
    texts = [f"{before} Contact {name} at zip code {code}" for name, code in people_of[::2]]
    model = taught(tokenizer, texts + [f"Contact {name} at zip code 00000" for name, _ in people_of])
    config = ProbeConfig(longest="fit", small_cell=1, beam_sizes=(1,))
    for level in ("twin", COMPASS):
        prompts = make_prompts(
            people(**APART), "zip", level, asked, config, strict=True, beginnings={"zip": [(0, before), (2, before)]}
        )
        (matched,) = probe_target(model, tokenizer, "clm", prompts, config).matches[1]["exact_match"]
        assert not matched[1::2].any()
        assert (matched[::2].mean() > 0.7) == (level == COMPASS) == matched.any()


def test_as_many_answers_are_right_as_likelihoods_promise(knowing: Any, tokenizer: Any) -> None:
    config = ProbeConfig(num_draws=3, num_bootstrap=100, small_cell=1)
    asks = [Template(t.text.replace("{target_pii_type}", "zip code")) for t in ASKS]
    found = []
    for seed in range(30):
        prompts = make_prompts(people(**APART), "zip", "twin", asks, config, strict=True)
        found.append(probe_target(knowing, tokenizer, "clm", prompts, config.replace(seed=seed)))
    one = summarise(found[0], config).drawn
    assert (one.num_draws, one.found.n) == (3, 12)
    assert one.found.value == found[0].drawn.any(axis=0).mean()
    p = np.exp(found[0].log_probs)
    promised = 1 - (1 - p).prod(axis=0) ** 3
    assert one.promised.value == pytest.approx(promised.mean())
    assert 0.4 < promised.mean() < 0.9
    rate = np.mean([answers.drawn.any(axis=0) for answers in found], axis=0)
    assert np.abs(rate - promised).max() < 4 * math.sqrt(0.25 / 30)


def test_subjects_who_cannot_be_asked_are_counted(tokenizer: Any) -> None:
    rows = {name: [*values[:8], None, values[9], values[10], values[11]] for name, values in ROWS.items()}
    rows["name"] = [*rows["name"][:9], "Cher", "x" * 200, rows["name"][11]]
    rows["name"][8] = "Bo"
    subjects = subjects_from_rows(rows)
    config = ProbeConfig(num_bootstrap=100, small_cell=1)
    prompts = make_prompts(subjects, "phone", "twin", builtin_templates(), config)
    answers = probe_target(toy_model("gpt2", max_length=96).eval(), tokenizer, "clm", prompts, config)
    assert {name: answers.counts[name] for name in ("without_target", "too_long", "single_word_names")} == {
        "without_target": 1, "too_long": 1, "single_word_names": 2,
    }  # fmt: skip
    assert answers.counts["longer_than_generated"] == 0
    short = probe_target(
        toy_model("gpt2", max_length=96).eval(), tokenizer, "clm", prompts, config.replace(longest="published")
    )
    assert short.counts["longer_than_generated"] > 0  # a phone number has more than 12 tokens here
    assert summarise(answers, config).n == 10


def test_answers_are_drawn_where_there_is_room_for_them(tokenizer: Any) -> None:
    rows = {name: values[:5] for name, values in ROWS.items()}
    subjects = subjects_from_rows({**rows, "name": ["x" * 200, *rows["name"][1:]]})
    config, model = ProbeConfig(num_draws=2, small_cell=1), toy_model("gpt2", max_length=96).eval()
    prompts = make_prompts(subjects, "phone", "twin", builtin_templates(), config)
    answers = probe_target(model, tokenizer, "clm", prompts, config)
    assert answers.counts["too_long"] == 1
    assert answers.drawn.shape == answers.log_probs.shape
    assert not answers.drawn[:, 0].any()
    nobody = dataclasses.replace(prompts, texts=[[None] * len(row) for row in prompts.texts])
    assert not probe_target(model, tokenizer, "clm", nobody, config).drawn.any()


def test_scores_do_not_depend_on_the_batch(tokenizer: Any) -> None:
    model = toy_model("gpt2", max_length=96).eval()
    found = []
    for batch_tokens in (1, 300, None):
        config = ProbeConfig(batch_tokens=batch_tokens)
        prompts = make_prompts(few_people(), "zip", "triplet", builtin_templates(), config)
        found.append(probe_target(model, tokenizer, "clm", prompts, config))
    for other in found[1:]:
        np.testing.assert_allclose(other.log_probs, found[0].log_probs, rtol=1e-5, atol=1e-5)
        assert all((other.matches[3][m] == hit).all() for m, hit in found[0].matches[3].items())


def test_a_masked_model_is_probed_by_pseudo_likelihood() -> None:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    prompts = make_prompts(people(), "zip", "twin", builtin_templates(), ProbeConfig())
    answers = probe_target(toy_model("bert").eval(), tokenizer, "mlm", prompts, ProbeConfig())
    assert np.isfinite(answers.log_probs).all()
    assert list(answers.matches) == [0]


@pytest.mark.parametrize("masking", ["together", "one_by_one", "left_to_right"])
def test_a_masked_model_that_reads_the_rest_of_an_item_has_not_said_it(
    masking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that knows each token by its neighbours and nothing else."""

    def scored(_: Any, __: Any, pairs: Any, *, masking: str, **___: Any) -> tuple[np.ndarray, list[list[int]]]:
        known = masking == "one_by_one"
        return np.zeros(len(pairs)), [list(t) if known else [-1] * len(t) for t in pairs.targets]

    monkeypatch.setattr(propile, "score_masked_pairs", scored)
    prompts = make_prompts(people(), "phone", "twin", builtin_templates(), ProbeConfig())
    config = ProbeConfig(masking=masking)
    answers = probe_target(None, load_tokenizer(toy_tokenizer("bert")), "mlm", prompts, config)  # type: ignore[arg-type]
    assert not answers.matches[0]["exact_match"].any()


def test_a_result_over_few_tells_nothing_of_their_items(tokenizer: Any) -> None:
    subjects = people(phone=[*ROWS["phone"][:1], *[None] * 11])
    config = ProbeConfig(num_bootstrap=100)
    prompts = make_prompts(subjects, "phone", "twin", builtin_templates(), config)
    found = summarise(probe_target(toy_model("gpt2").eval(), tokenizer, "clm", prompts, config), config)
    assert found.withheld == "fewer than 5 subjects"
    assert (found.n, found.target_tokens, found.likelihood) == (None, None, None)


def saved(model: Any, tokenizer: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_section_and_its_table_hold_no_item(tmp_path: Path, tokenizer: Any) -> None:
    from reticent.audit.report.page import probe_page

    path = saved(toy_model("gpt2", max_length=96), tokenizer, tmp_path / "m")
    subjects = few_people()
    config = ProbeConfig(levels=("twin", "triplet"), num_bootstrap=100, beam_sizes=(2, 1))
    section, answers, _ = probe_models([ProbeModel("a", path, "clm")], subjects, config)
    assert {(r.target, r.level) for r in section.models[0].results} == {
        (t, level) for t in ("phone", "email", "zip") for level in ("twin", "triplet")
    }
    pq.write_table(answers_table(answers, subjects.rows), tmp_path / "t.parquet")
    shown = (
        json.dumps(to_json(section), allow_nan=False)
        + probe_page(section)
        + (tmp_path / "t.parquet").read_bytes().decode("latin-1")
    )
    for name in ("name", "phone", "email"):  # the digits of a ZIP code may stand in any number
        assert not [value for value in ROWS[name] if value in shown]
    found = section.models[0].results
    assert {f"probe.counts.{key}" for row in found for key in row.counts} <= set(catalogue())
    assert "lignes de la table\N{NO-BREAK SPACE}: " in probe_page(section, Texts("fr"))


def test_few_are_not_counted_out() -> None:
    config = ProbeConfig(num_bootstrap=100)
    found = share_estimate(np.arange(50) < 2, config)
    assert (found.value, found.bound, found.low) == (0.1, "below", 0.0)
    assert share_estimate(np.arange(50) < 48, config).bound == "above"
    assert share_estimate(np.arange(50) < 20, config).bound is None
    assert share_estimate(np.zeros(50), config).high > 0


@pytest.mark.parametrize("n", [10, 50, 300])
@pytest.mark.parametrize("hit", [True, False])
def test_the_interval_of_few_does_not_count_them_out_either(n: int, hit: bool) -> None:
    config = ProbeConfig(num_bootstrap=200)
    shown = [share_estimate((np.arange(n) < few) == hit, config) for few in range(1, 5)]
    assert all(one == shown[0] for one in shown)
    for few, one in enumerate(shown, start=1):
        low, high = clopper_pearson(few if hit else n - few, n)
        assert one.low <= low  # type: ignore[operator]
        assert one.high >= high  # type: ignore[operator]
    measured = (statistics.ratio_estimate(np.arange(n) < few, np.ones(n)) for few in range(1, 5))
    published = [one.as_share(n, 5) for one in measured]
    assert all(one == published[0] for one in published)


def test_a_density_leaves_the_outermost_out() -> None:
    values = np.concatenate([[-900.0], np.linspace(-10, -5, 60), [-0.001]])
    curve = density(values, 5)
    assert min(curve.x) > -10 / math.log(10)
    assert max(curve.x) < -5 / math.log(10)
    assert density(values[:10], 5) == Density(x=[], y=[])
    assert density(np.zeros(100), 5) == Density(x=[], y=[])


def test_nothing_to_ask_is_said(tmp_path: Path, tokenizer: Any) -> None:
    path = saved(toy_model("gpt2"), tokenizer, tmp_path / "m")
    model = [ProbeModel("a", path, "clm")]
    with pytest.raises(PolicyError, match="no type of item that at least 5"):
        probe_models(model, people(phone=[None] * 12, email=[None] * 12, zip=[None] * 12), ProbeConfig())
    with pytest.raises(PolicyError, match="no template asks for zip at level twin, triplet in language de"):
        probe_models(model, people(), ProbeConfig(targets=("zip",), language="de"))
    with pytest.raises(CorpusError, match="no subject has an item of type zip"):
        probe_models(model, people(zip=[None] * 12), ProbeConfig(targets=("zip",)))
    with pytest.raises(PolicyError, match="same name"):
        probe_models(model * 2, people(), ProbeConfig())


@pytest.mark.parametrize(("num_ties", "share", "n"), [(0, 0.75, 40), (20, 0.5, 20), (37, None, None), (40, None, 0)])
def test_a_null_that_is_the_same_item_counts_for_neither(num_ties: int, share: float | None, n: int | None) -> None:
    null = np.where(np.arange(40) < 30, -5.0, -1.0)
    null[:num_ties] = -3.0
    found = _compare_with_null(np.exp(np.full(40, -3.0)), np.exp(null), np.full(40, -3.0), null, ProbeConfig(), None)
    assert (found.above_null.value, found.above_null.n, found.test.n) == (share, n, 40 - num_ties)
    assert value(found.above_null)  # it can be shown


def test_subjects_of_a_household_are_resampled_together(tokenizer: Any) -> None:
    rows = {**people(**APART).items, "individual_id": [str(i) for i in range(12)]}
    apart, together = (subjects_from_rows({**rows, **more}) for more in (
        {"household_id": [str(i) for i in range(12)]}, {"household_id": [str(i // 2) for i in range(12)]},
    ))  # fmt: skip
    assert apart.households is None
    assert together.take(np.array([3, 2, 7])).households.tolist() == [2, 2, 6]  # type: ignore[union-attr]
    config = ProbeConfig(num_bootstrap=100, small_cell=1)
    model, found = toy_model("gpt2", max_length=96).eval(), []
    for subjects in (apart, together):
        prompts = make_prompts(subjects, "zip", "twin", ASKS, config, strict=True)
        found.append(summarise(probe_target(model, tokenizer, "clm", prompts, config), config))
    for name in ("true", "null", "factor", "above_null"):
        own, alike = (getattr(row.likelihood, name) for row in found)
        assert alike.value == pytest.approx(own.value)
        assert (own.num_households, alike.num_households, alike.n) == (None, 6, own.n)
    assert found[1].exact_match.num_households == 6
    tests = [row.likelihood.test for row in found]
    assert (tests[0].n, tests[1].n) == (12, 6)
    hits = np.repeat(np.arange(30) < 6, 2)
    wide, narrow = (share_estimate(hits, config, units) for units in (np.arange(60) // 2, None))
    assert wide.high - wide.low > narrow.high - narrow.low  # type: ignore[operator]
