"""The catalogue of texts: every text is there in both languages, with the same values, and every use of one fits it."""

from __future__ import annotations

import ast
import inspect
import math
import re
import string
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from fixtures.audits import evidence, tiny_audit
from jinja2 import nodes

import reticent.audit.texts as texts
from reticent.audit.judgement import verdict
from reticent.audit.judgement.rows import (
    FEW_DIAGNOSED,
    GATES,
    NO_BASE_PASSAGES,
    NO_HEAD,
    NO_WHOLE_PASSAGES,
    RISKS,
)
from reticent.audit.membership.asking import EVERY_ATTACK
from reticent.audit.membership.measure import subgroup_labels
from reticent.audit.membership.validity import OTHER_WAY
from reticent.audit.scoring.generate import Decoding
from reticent.audit.texts import LANGUAGES, NO_BREAK, THIN, Forms, Texts, catalogue
from reticent.ext.dossier.page import CLAIMS
from reticent.trainer.privacy import Guarantee

AUDIT = Path(texts.__file__).parent
DOSSIER = AUDIT.parent / "ext" / "dossier"
#: Where texts are used.
MODULES = sorted(
    [
        *AUDIT.glob("report/*.py"),
        *(DOSSIER / f"{name}.py" for name in ("card", "fact_sentences", "page", "verify", "write")),
        AUDIT / "near_copies.py",
        AUDIT.parent / "job" / "reach.py",
        AUDIT / "texts.py",
    ]
)
TEMPLATES = sorted([*AUDIT.glob("report/templates/*.j2"), *DOSSIER.glob("templates/*.j2")])


def forms_of(text: Forms) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def names_of(key: str) -> set[str]:
    """The values that a text needs, in either language and any form, and the count that chooses the form."""
    texts_of_key = catalogue()[key].values()
    names = {name for text in texts_of_key for form in forms_of(text) for name in names_in(form)}
    return names if all(isinstance(text, str) for text in texts_of_key) else names | {"count"}


def test_every_text_is_there_in_both_languages_with_the_same_values() -> None:
    assert len(catalogue()) > 1000
    for key, entry in catalogue().items():
        assert set(entry) == set(LANGUAGES), key
        english, french = (forms_of(entry[language]) for language in LANGUAGES)
        assert all(english + french), key
        assert {name for form in english for name in names_in(form)} == {
            n for form in french for n in names_in(form)
        }, key
        for text in entry.values():
            assert isinstance(text, str) or set(text) == {"one", "other"}, key


def test_a_shared_text_has_one_entry() -> None:
    shared: dict[str, set[str]] = {}
    for key, entry in catalogue().items():
        if key.startswith("common."):
            shared.setdefault(re.sub(r"{\w+}", "{}", str(entry["en"])), set()).add(key)
    twice = [keys for keys in shared.values() if len(keys) > 1]
    assert twice == [{"common.recipe_of_model", "common.models_of_model"}]  # several have a colon in French


def test_no_text_says_that_a_base_model_saw_nobody() -> None:
    """Nobody but its maker knows, and a base that may know the members is named beside the verdict."""
    claims = ("which saw nobody", "saw nobody, so", "qui n’a vu personne", "n’a vu personne, et doit")
    said = [form for entry in catalogue().values() for text in entry.values() for form in forms_of(text)]
    assert not [form for form in said if any(claim in form for claim in claims)]


def test_no_text_makes_a_claim() -> None:
    said = [form for entry in catalogue().values() for text in entry.values() for form in forms_of(text)]
    assert [text for text in said if any(claim in text.lower() for claim in CLAIMS)] == []


#: Keys that are made where they are used: the beginning of each, and what may follow.
MADE = re.compile(
    r"(objectives|recipes|policies|canaries|plots|identifiers|questions|adversaries|card\.figures|self\.(levels|origins|rank|means|means_not)"
    r"|terminal|evidence|crosswalk\.(paragraphs|others)|ladder|probe\.(axis_|density_|soft_|counts\.)|findings\.gets_|dossier\.access_|common\.surer\.|reach\.charged)"
)


def uses_in_python(path: Path) -> Iterator[tuple[str, set[str] | None]]:
    """Keys that a module names, with the values that are put in where that can be seen."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and node.args
            and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in ("t", "words")
        ):
            given = {word.arg for word in node.keywords}
            for arg in ast.walk(node.args[0]) if isinstance(node.args[0], ast.IfExp) else [node.args[0]]:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and arg.value in catalogue():
                    yield arg.value, None if None in given else {name for name in given if name}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, None


def uses_in_template(path: Path) -> Iterator[tuple[str, set[str] | None]]:
    environment = jinja2.Environment()
    tree = environment.parse(path.read_text(encoding="utf-8"))
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "t" and isinstance(call.args[0], nodes.Const):
            yield call.args[0].value, {word.key for word in call.kwargs}
        elif isinstance(call.node, nodes.Name) and call.node.name == "t":
            for const in call.args[0].find_all(nodes.Const):
                if isinstance(const.value, str) and const.value in catalogue():
                    yield const.value, None


def test_every_key_of_a_template_is_in_the_catalogue_and_gets_its_values() -> None:
    found = [(path.name, key, given) for path in TEMPLATES for key, given in uses_in_template(path)]
    assert len(found) > 350
    assert [(name, key) for name, key, _ in found if key not in catalogue()] == []
    wrong = [(name, key, given ^ names_of(key)) for name, key, given in found if given is not None
             and not names_of(key) <= given]  # fmt: skip
    assert wrong == []


def test_no_template_has_a_text_of_its_own() -> None:
    allowed = {"SHA-256", "[verdict]", "reticent dossier verify FOLDER", "loss", "lira", "F1", "ε ="}
    found = []
    for path in TEMPLATES:
        source = re.sub(r"<style>.*?</style>|\{%.*?%\}|\{\{.*?\}\}", "\0", path.read_text(encoding="utf-8"), flags=re.S)
        texts_by_row = re.sub(r"<[^<>]*>", "\0", source).split("\0")
        found += [(path.name, text.strip()) for text in texts_by_row if re.search(r"[A-Za-z]{2}", text)]
    assert len(TEMPLATES) > 10
    assert [(name, text) for name, text in found if text not in allowed] == []


#: Beginnings of keys, as the code writes them.
KEY = re.compile(r"[a-z_]+(\.[a-z_0-9-]+)+")
SECTIONS = {key.partition(".")[0] for key in catalogue()}


def test_every_key_of_the_code_is_in_the_catalogue_and_gets_its_values() -> None:
    found = [(path.name, key, given) for path in MODULES for key, given in uses_in_python(path)]
    keys = [(name, key) for name, key, _ in found if KEY.fullmatch(key) and key.partition(".")[0] in SECTIONS]
    assert len(keys) > 300
    files = re.compile(r".*\.(py|toml|html|json|html\.j2)")
    assert [
        (name, key)
        for name, key in keys
        if key not in catalogue() and not key.endswith("_") and not files.fullmatch(key)
    ] == []
    wrong = [(name, key, names_of(key) - given) for name, key, given in found if given is not None
             and key in catalogue() and not names_of(key) <= given]  # fmt: skip
    assert wrong == []


def test_every_text_of_the_catalogue_is_used() -> None:
    used = {key for path in MODULES for key, _ in uses_in_python(path)}
    used |= {key for path in TEMPLATES for key, _ in uses_in_template(path)}
    assert [key for key in catalogue() if key not in used and not MADE.match(key)] == []


def test_every_text_that_evidence_can_hold_has_its_french() -> None:
    said = [risk.title for risk in RISKS.values()] + [gate.title for gate in GATES.values()]
    said += [text for risk in RISKS.values() for text in (risk.lowered_by, risk.lowered_further) if text]
    said += [text for attack in EVERY_ATTACK.values() for text in (attack.title, attack.about)]
    reasons = re.findall(r"(?:NO_POWER|FAIL|PASS), \"([^\"{]+)\"|reason = \"([^\"]+)\"", inspect.getsource(verdict))
    said += [one or other for one, other in reasons] + [verdict.LOWER_BOUND, verdict.TOO_FEW_GUESSES, verdict.NO_NUMBER]
    said += re.findall(
        r"\"((?:fewest|most|middle|short|long)[a-z ]*)\"", Path(inspect.getfile(subgroup_labels)).read_text()
    )
    said += ["beyond", "within", "not shown", "pass", "fail", "no power", OTHER_WAY, "fewer than 5 subjects"]
    said += ["epsilon 3.21 at delta 1e-05 per individual (at most 4 documents each)", "majority class"]
    said += [str(Guarantee(epsilon=each, delta=1e-5, unit=unit, max_documents=1)) for each in (3.21, math.inf)
             for unit in ("individual", "household")]  # fmt: skip
    said += [str(Decoding(temperature=0.7, top_k=num)) for num in (1, 50)]
    said += [FEW_DIAGNOSED, NO_BASE_PASSAGES, NO_HEAD, NO_WHOLE_PASSAGES]  # notes of a risk
    assert len(said) > 75
    french = Texts("fr")
    same = {"N-gram coverage", "Min-K %", "Min-K %++", "zlib"}
    left = [text for text in said if french.evidence(text) == text and text not in same]
    assert left == []


@pytest.mark.parametrize(
    ("english", "french"),
    [
        ("1,855", f"1{THIN}855"),
        ("mlm", "mlm"),
        ("mlm of bert", "mlm of bert"),
        ("a reason that nobody knows", "a reason that nobody knows"),
        ("fewer than 5 on one side", "moins de 5 d’un côté"),
        ("beyond the threshold: identifiers emitted, membership of the person",
         f"au-delà du seuil{NO_BREAK}: identifiants énoncés, appartenance de la personne"),
        ("the two sides differ without the model: a reason that nobody knows",
         f"les deux groupes diffèrent sans le modèle{NO_BREAK}: a reason that nobody knows"),
    ],
)  # fmt: skip
def test_a_text_of_the_evidence_is_put_into_french_as_far_as_it_is_known(english: str, french: str) -> None:
    assert Texts("en").evidence(english) == english
    assert Texts("fr").evidence(english) == french


def test_a_count_chooses_the_form_of_its_text() -> None:
    english, french = Texts("en"), Texts("fr")
    assert english("documents.more_labels", count=1) == "1 more label"
    assert english("documents.more_labels", count=0) == "0 more labels"
    assert french("documents.more_labels", count=0) == "encore 0 catégorie"
    assert french("documents.more_labels", count=2) == "encore 2 catégories"
    assert english("risks.n_epochs", count=english.epochs(1.5)) == "1.5 epochs"
    assert french("risks.n_epochs", count=french.epochs(1.5)) == "1,5 époque"
    assert french("risks.n_epochs", count=french.epochs(2.5)) == "2,5 époques"


def test_what_the_catalogue_has_not_is_shown_and_ends_no_run() -> None:
    assert Texts("fr")("no.such.key") == "no.such.key"


def test_numbers_have_the_signs_of_the_language() -> None:
    english, french = Texts("en"), Texts("fr")
    assert (english.number(-1234.5), french.number(-1234.5)) == ("−1,234.50", f"−1{THIN}234,50")
    assert (english.number(-0.001), french.number(-0.001)) == ("0.00", "0,00")
    assert (english.plain(0.05), french.plain(0.05)) == ("0.05", "0,05")
    assert (english.percent(0.123), french.percent(0.123)) == (f"12.3{NO_BREAK}%", f"12,3{NO_BREAK}%")
    assert (english.count(None, 5), french.count(1855)) == ("fewer than 5", f"1{THIN}855")


def test_a_tiny_audit_is_its_own_words() -> None:
    """The names of models and attacks are no texts of the catalogue, and stay as they are."""
    names = {name for model in evidence(tiny_audit()).models for name in (model.model, model.recipe, *model.membership)}
    assert {name for name in names if name and Texts("fr").evidence(name) != name} == set()


def test_french_marks_have_the_no_break_spaces_of_print() -> None:
    """A narrow one before ; ! ?, a wide one before : % and inside of quotation marks, in texts as in numbers."""
    text = texts.spaced("« a » : 95 % ; b ?")
    assert text == f"«{NO_BREAK}a{NO_BREAK}»{NO_BREAK}: 95{NO_BREAK}%{THIN}; b{THIN}?"
    assert Texts("fr").percent(0.95, 0) == f"95{NO_BREAK}%"


@pytest.mark.parametrize(
    ("key", "values", "english", "french"),
    [
        ("risks.n_epochs", {}, "1 epoch", "1 époque"),
        ("plots.recipe_epochs_epochs", {"recipe": "clm"}, "clm, 1 epoch", "clm, 1 époque"),
        ("plots.m_words_share", {"share": "x"}, "1 word: x", f"1 mot{NO_BREAK}: x"),
        ("plots.count_of_n_words", {"total": 450}, "450 of 1 word", "450 de 1 mot"),
        ("findings.gates_passed", {}, "1 passed", "1 remplie"),
        ("common.n_documents_without_a_text_were_left_out", {"n": 1}, "1 document without a text was left out.",
         "1 document sans texte a été laissé de côté."),
        ("common.passages_that_come_back_within_draws_tries", {"draws": 1, "tokens": 50},
         "passages that come back at the first draw, given the 50 tokens before them",
         "passages qui reviennent au premier tirage, après les 50 unités de texte qui les précèdent"),
        ("report.n_individuals_have_no_document_left", {"n": 1},
         "1 individual has no document left: no number is about them.",
         f"1 personne n’a plus de document{NO_BREAK}: aucun chiffre ne la concerne."),
        ("report.n_are_used_on_both_sides", {"n": 1}, "1 is used on both sides", "1 commun"),
        ("extraction.n_draws", {"n": 1}, "1 draw", "1 tirage"),
        ("dossier.n_people", {"n": 1}, "1 person", "1 personne"),
        ("reach.n_others", {"n": 1}, "1 other", "1 autre personne"),
        ("self.likelihood", {"one_in": 9, "hundred": 2, "prompts": 1},
         "About 1 answer in 9 would be exactly your item; within 100 answers the chance that it shows is 2 %. "
         "1 question was asked.",
         f"Environ 1 réponse sur 9 serait exactement votre donnée{THIN}; sur 100 réponses, la chance qu’elle "
         f"apparaisse est de 2{NO_BREAK}%. 1 question posée."),
        ("findings.gates_failed", {}, "1 failed", "1 non remplie"),
        ("card.title", {"recipe": "clm", "model": "gpt2"}, "# clm of gpt2, after 1 epoch\n",
         "# clm de gpt2, après 1 époque\n"),
    ],
)  # fmt: skip
def test_one_is_no_plural(key: str, values: dict[str, object], english: str, french: str) -> None:
    assert Texts("en")(key, count=1, **values) == english
    assert Texts("fr")(key, count=1, **values) == french


def test_no_french_text_calls_the_split_a_sharing() -> None:
    """In data protection "partage" is the sharing of data."""
    french = [form for entry in catalogue().values() for form in forms_of(entry["fr"])]
    assert [form for form in french if re.search(r"\b(le|du|leur|un) partage\b(?! ne)|^partage$", form)] == []
