"""Classifiers that a job keeps: attributes by hand, sides that only training sets apart, a toy that knows people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.audits import evidence, tiny_audit
from fixtures.command import command
from fixtures.jobs import changed, make_hospital
from fixtures.jobs import values_of as job_values
from fixtures.models import write_toy_model
from fixtures.stores import make_store

from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.judgement.rows import BEYOND, FAIL, NOT_SHOWN, PASS, WITHIN, GateConfig
from reticent.audit.judgement.verdict import WITHOUT_SHADOWS, judge_risks, verdict
from reticent.audit.membership.heads import HeadScores, HeadShadows
from reticent.audit.membership.names import CLASSIFIER
from reticent.audit.membership.validity import DISTINGUISHABLE, FAULT, QUIET, holds_chance, with_attack_verdicts
from reticent.audit.report.findings import plain_findings
from reticent.audit.report.risk_text import cells_of, epochs_in_words
from reticent.audit.stats.intervals import Bootstrap
from reticent.audit.texts import ENGLISH
from reticent.core.errors import CorpusError, PolicyError
from reticent.ext.classify.documents import labelled_documents
from reticent.ext.head_attacks.attributes import (
    Question,
    attack_attribute,
    make_questions,
    success_probabilities,
    with_value,
)
from reticent.ext.head_attacks.measure import head_evidence, labels_alone
from reticent.ext.head_attacks.scores import Classifier, Tagger
from reticent.ext.head_attacks.stage import read_head_evidence
from reticent.job.config import load_kept_job, parse_job
from reticent.job.config.job import kept_content
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("without_figures")
BOOTSTRAP: Bootstrap = {"num_bootstrap": 200, "seed": 0, "units": None}

# ----------------------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize(
    ("text", "true", "value", "expected"),
    [
        ("Sex: F. The patient (f) is well", "F", "M", "Sex: M. The patient (M) is well"),
        ("Sex: F", "F", "F", "Sex: F"),  # the document itself
        ("FF, fF1 and F_", "F", "M", "sex: M\nFF, fF1 and F_"),  # no word of these
        ("no value", "F", "F", "sex: F\nno value"),  # every alternative has the line
        ("Type II (diabetes)", "II (diabetes)", r"\1", r"Type \1"),
        ("", "F", "M", "sex: M\n"),
    ],
)
def test_a_value_is_replaced_wherever_it_stands_as_words(text: str, true: str, value: str, expected: str) -> None:
    assert with_value(text, "sex", true, value) == expected


@pytest.mark.parametrize(
    ("own", "right", "expected"),
    [
        ([-1.0, -2.0, -3.0], [True, True, False], (1.0, 1 / 2)),
        ([-2.0, -1.0, -3.0], [False, True, False], (0.0, 0.0)),
        ([-1.0, -1.0, -1.0], [False, False, False], (1 / 3, 1 / 3)),  # a guess
        ([-1.0, -1.0, -2.0], [True, False, False], (1 / 2, 1.0)),
    ],
)
def test_the_share_that_is_told_counts_ties_as_guesses(
    own: list[float], right: list[bool], expected: tuple[float, float]
) -> None:
    assert success_probabilities(np.array(own), np.array(right)) == pytest.approx(expected)


def test_a_question_is_about_a_document_with_the_value_and_its_alternatives_are_no_values_of_the_person() -> None:
    values = {0: ["asthma", "gout"], 1: ["asthma"], 2: ["cancer"], 3: ["gout"]}
    documents = {0: [("well", 0), ("has gout", 1)], 1: [("has asthma", 1)], 3: [("gout", 0)]}
    found = make_questions("diagnosis", values, documents, num_alternatives=9, seed=0)
    texts = {(question.code, question.label): set(question.texts) for question in found}
    assert texts == {
        (0, 0): {"diagnosis: asthma\nwell", "diagnosis: cancer\nwell"},
        (0, 1): {"has gout", "has cancer"},
        (1, 1): {"has asthma", "has cancer", "has gout"},
        (3, 0): {"gout", "asthma", "cancer"},
    }  # nobody is asked without a document
    assert [question.texts[0] for question in found] == ["diagnosis: asthma\nwell", "has gout", "has asthma", "gout"]
    assert all(
        len(question.texts) == 2 for question in make_questions("d", values, documents, num_alternatives=1, seed=0)
    )
    assert make_questions("d", {0: ["asthma"]}, documents, num_alternatives=9, seed=0) == []  # there is no other value


def test_attributes_are_found_in_a_head_that_knows_its_people_and_not_in_one_that_does_not() -> None:
    """120 individuals of each side, of two values: the head likes the true text of those whom it knows, and says so."""
    codes = np.arange(240)
    is_member = codes < 120
    questions = [Question(int(code), 0, (f"{code} true", f"{code} other")) for code in codes]
    flip = np.random.default_rng(0).random(240) < 0.5

    def head(known: np.ndarray) -> Any:
        def log_probs(texts: Sequence[str]) -> np.ndarray:
            code = int(texts[0].split()[0])
            best = 0 if known[code] else int(flip[code])
            return np.log([[0.9, 0.1] if row == best else [0.2, 0.8] for row in range(2)])

        return log_probs

    found = attack_attribute(questions, head(is_member), is_member, **BOOTSTRAP)
    share = np.mean(~flip[120:])
    for sides in (found.logits, found.label_only):
        assert (sides.members.value, sides.heldout.value) == pytest.approx((1.0, share))
        assert sides.excess.low is not None
        assert sides.excess.low > 0.3
    assert found.chance == 0.5
    others = attack_attribute(questions, head(np.zeros(240, dtype=bool)), is_member, **BOOTSTRAP)
    for sides in (others.logits, others.label_only):
        assert sides.excess.low is not None
        assert sides.excess.high is not None
        assert sides.excess.low < 0 < sides.excess.high


# ---------------------------------------------------------------------------------------------------- evidence of heads

#: As many as a share of members told at 1 % needs.
MEMBERS, OTHERS, PER = 900, 1100, 2
NUM = MEMBERS + OTHERS


def sides() -> tuple[Any, np.ndarray, np.ndarray]:
    """Two documents of each individual, with labels that tell nothing."""
    store = make_store(*[[(5, 0, 0)]] * (NUM * PER), individual=np.repeat(np.arange(NUM), PER).tolist())
    members = np.random.default_rng(2).permutation(NUM)[store.individual] < MEMBERS
    return store, members, np.random.default_rng(1).integers(0, 3, NUM * PER)


def head_of(known: np.ndarray, label: np.ndarray, seed: int, gain: float = 2.5) -> HeadScores:
    """A head that is surer of the labels of the documents that it knows."""
    logits = np.random.default_rng(seed).normal(size=(len(label), 3))
    logits[np.arange(len(label)), label] += 1.0 + gain * known
    return HeadScores.of_classes(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), label)


def evidence_of(gain: float, start: str, *, protects: bool = False, num_shadows: int = 8) -> ModelEvidence:
    store, members, label = sides()
    shadows = []
    for number in range(num_shadows):
        half = np.random.default_rng(100 + number // 2).random(NUM) < 0.5
        known = (half if number % 2 == 0 else ~half)[store.individual]
        shadows.append((head_of(known, label, 200 + number, gain), known))
    found = head_evidence(
        store,
        members,
        head_of(members, label, 9, gain),
        HeadShadows(shadows) if shadows else None,
        labels=(np.arange(len(label)), label),
        objective=CLASSIFIER,
        recipe=f"classify/{start}",
        epoch=8,
        start=start,
        protects=protects,
        bootstrap=BOOTSTRAP,
    )
    return replace(found, model="m")


@pytest.fixture(scope="module")
def plain() -> ModelEvidence:
    return evidence_of(2.5, "mlm")


@pytest.fixture(scope="module")
def quiet() -> ModelEvidence:
    return evidence_of(0.0, "ppmlm", protects=True)


def test_every_attack_tells_the_people_of_a_head_that_knows_them_and_none_of_one_that_does_not(
    plain: ModelEvidence, quiet: ModelEvidence
) -> None:
    first, second = with_attack_verdicts([plain, quiet])
    assert len(first.membership) == 7
    for name, attack in first.membership.items():
        assert attack.verdict == DISTINGUISHABLE, name
        assert (attack.num_members, attack.num_nonmembers) == (MEMBERS, OTHERS)  # people, not documents
        assert attack.auc.value is not None
        assert attack.auc.value > 0.7
    assert second.membership["label_loss"].verdict == second.membership["label_lira"].verdict == QUIET
    assert second.best_attack is not None
    assert second.best_attack.intervals is not None
    assert all(low < 0.5 < high for low, high in second.best_attack.intervals.values())  # they hold at once
    # Without training on them both sides are told alike: the gain is as large as the area.
    over = first.membership["label_loss"].over_base
    assert over is not None
    assert over.low is not None
    assert over.low > 0.7
    assert first.fault is second.fault is None
    assert first.best_attack is not None
    assert first.best_attack.num_attacks == 7


def table(*heads: ModelEvidence) -> Any:
    return judge_risks(replace(WHOLE, models=[], heads=with_attack_verdicts(list(heads))))


WHOLE = evidence(tiny_audit())


def test_the_verdict_on_a_head_is_that_of_a_language_model(plain: ModelEvidence, quiet: ModelEvidence) -> None:
    own, protected = table(plain, quiet).rows
    person = [next(result for result in row.results if result.risk == "individual") for row in (own, protected)]
    assert [result.outcome for result in person] == [BEYOND, WITHIN]
    assert [row.objective for row in (own, protected)] == [CLASSIFIER, CLASSIFIER]
    relevant = {result.risk for result in protected.results if result.relevant}
    assert relevant == {"context", "individual"}  # it says no words
    assert protected.outcome == NOT_SHOWN  # attributes were not asked about
    without = table(replace(plain, membership=alone(plain)), replace(quiet, membership=alone(quiet)))
    assert person_of(without.rows[1]) == (NOT_SHOWN, WITHOUT_SHADOWS)
    unprotected = table(plain, replace(quiet, protects=False)).rows[1]
    assert person_of(unprotected)[0] == WITHIN
    assert unprotected.outcome == NOT_SHOWN


def test_a_head_beyond_a_threshold_is_named_among_what_not_to_share(plain: ModelEvidence, quiet: ModelEvidence) -> None:
    whole = replace(WHOLE, heads=with_attack_verdicts([plain, quiet]))
    steps = plain_findings(replace(whole, risks=judge_risks(whole))).next
    (said,) = (step for step in steps if "classify/" in step)
    assert said.startswith("Do not share classify/mlm of m: beyond the threshold: membership of the person")


def test_a_row_of_a_head_says_on_which_checkpoint_it_stands(plain: ModelEvidence) -> None:
    rows = (plain, replace(plain, epoch=0), replace(plain, objective="mlm"))
    assert [epochs_in_words(row, ENGLISH) for row in rows] == [
        "a head on epoch 8", "a head on the base model", "8 epochs",
    ]  # fmt: skip


def test_a_number_with_a_threshold_of_its_own_stands_beside_it(plain: ModelEvidence) -> None:
    """A share of members is not judged by the threshold of an area, which heads the column."""
    (row,) = table(plain).rows
    share = {"what": "membership by the labels that it gives, members above every other person", "number_at_most": 0.05}
    results = [replace(result, **share) if result.risk == "individual" else result for result in row.results]
    shown: Any = SimpleNamespace(risks=replace(row, results=results))
    (cell,) = (cell for cell in cells_of(shown, ENGLISH) if cell.title == "membership of the person")
    assert cell.threshold == "at most 0.60"
    assert cell.what.endswith("members above every other person (at most 5\u00a0%)")


def alone(head: ModelEvidence) -> Any:
    """The attacks that need no shadow heads."""
    return {name: attack for name, attack in head.membership.items() if not attack.num_shadows}


def person_of(row: Any) -> tuple[str, str]:
    return next((result.outcome, result.reason) for result in row.results if result.risk == "individual")


def test_gates_judge_heads_by_the_recipe_below_them(plain: ModelEvidence, quiet: ModelEvidence) -> None:
    heads = with_attack_verdicts([plain, quiet])
    on_base = replace(quiet, start="base")
    assert [head.is_plain for head in (plain, on_base, replace(on_base, protects=False))] == [True, False, True]
    gates = [
        GateConfig(measure="membership_auc", at_most=0.6),
        GateConfig(measure="membership_auc", at_most=0.6, attack="label_lira", recipes=("mlm",)),
        GateConfig(measure="excess_leakage", at_most=0.1, recipes=("mlm", "ppmlm")),
    ]
    found = verdict(heads, gates)
    rows = {(row.gate, row.recipe, row.attack): row.outcome for row in found.results}
    assert rows.pop((2, "classify/mlm", "label_lira")) == FAIL
    assert rows.pop((3, None, None)) == "no power"  # it is of words
    assert {key[:2] for key in rows} == {(1, "classify/ppmlm")}
    assert set(rows.values()) == {PASS}


def test_labels_that_tell_the_sides_are_a_fault_of_the_run() -> None:
    """A control: labels alone, without any head."""
    store, members, label = sides()
    found = labels_alone(store.individual, members, np.arange(len(label)), label, BOOTSTRAP)
    assert found.auc.low is not None
    assert found.auc.high is not None
    assert found.auc.low < 0.5 < found.auc.high
    shifted = np.where(members & (label < 2), 0, label)
    told = labels_alone(store.individual, members, np.arange(len(label)), shifted, BOOTSTRAP)
    assert told.by == "labels"
    assert told.auc.low is not None
    assert told.auc.low > 0.5
    assert told.p_value is not None
    assert told.p_value < FAULT
    (head,) = with_attack_verdicts([replace(evidence_of(0.0, "mlm", num_shadows=0), blind=told)])
    assert head.fault is not None
    assert head.fault.startswith("labels alone tell the two sides")


# ---------------------------------------------------------------------------------------------------------------- a toy


def write_documents(path: Path) -> None:
    """A note each of 60 people, whose class nothing tells: who knows it has learned the note by heart."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefghilmnoprst"), 3)) for _ in range(40)]
    rows = [
        {
            "doc_id": f"d{number}",
            "individual_id": f"p{number}",
            "text": f"{' '.join(random.choice(words, 8))} in bed {'abcdefg'[number % 7]} secret{number}",
            "status": f"class {random.integers(2)}",
            "bed": "abcdefg"[number % 7],
        }
        for number in range(60)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents and a base model."""
    folder = tmp_path_factory.mktemp("heads")
    write_documents(folder / "notes.parquet")
    write_toy_model(folder / "base", hidden_size=32)
    return folder


def values_of(folder: Path, out: Path, **heads: Any) -> dict[str, Any]:
    return {
        "out": str(out),
        "corpus": {"source": str(folder / "notes.parquet"), "label": "status"},
        "model": [{"name": "toy", "base": str(folder / "base"), "objective": "mlm", "recipes": ["mlm"]}],
        "train": {"num_epochs": 1, "window_length": 32, "batch_size": 8, "device": "cpu"},
        "classify": {"num_epochs": 60, "learning_rate": 1e-2, "save_model": True},
        "audit": {
            "num_bootstrap": 100,
            "attacks": ["loss"],
            "heads": {"num_shadows": 4, "attributes": ["bed"], **heads},
        },
    }


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    execute(Run(parse_job(values_of(folder, out))), "report")
    return out


@pytest.mark.heavy
def test_a_toy_that_overfits_is_found_and_one_that_saw_other_people_is_not(folder: Path, finished: Path) -> None:
    run = Run(parse_job(values_of(folder, finished)))
    model = run.job.model[0]
    documents, config = labelled_documents(run, model, run.job.classify), run.job.classifying(model)
    base, _ = read_head_evidence(run)
    attack, side = base.membership["label_loss"], documents.is_train
    sides = [len(np.unique(documents.store.individual[own])) for own in (side, ~side)]
    assert [attack.num_members, attack.num_nonmembers] == sides
    assert attack.verdict == DISTINGUISHABLE
    for name in ("label_only", "label_lira"):  # of four shadows and 60 people the interval is wide
        assert (base.membership[name].auc.value or 0.0) > 0.55, name
    for number in range(4):
        said, known = HeadScores.load(finished / f"head-shadows/classify/toy/base/{number:02d}/scores.npz")
        assert said.own[known].mean() > said.own[~known].mean() + 0.5  # it was trained on its own half
    # The same head says nothing of sides that its training did not draw: half of the members against the other half.
    classifier = Classifier(finished / "classification/toy/base/base", model.objective, config, 64)
    log_probs = classifier.log_probs(documents.store)
    own = np.flatnonzero(documents.is_train)
    half = np.arange(len(own)) % 2 == 0
    scores = HeadScores.of_classes(log_probs[own], documents.classes[own])
    about: dict[str, Any] = {"objective": CLASSIFIER, "recipe": "x", "epoch": 0, "start": "base", "protects": False}
    about["labels"] = np.arange(len(own)), documents.classes[own]
    other = head_evidence(documents.store.select(own), half, scores, None, bootstrap=BOOTSTRAP, **about)
    assert all(holds_chance(attack.auc) for attack in other.membership.values())
    # What it scores is what it was measured by: the classes that it gave to held-out documents.
    (result, *_) = json.loads((finished / "classification/toy/base/classification.json").read_text())["results"][2:]
    right = np.mean(log_probs.argmax(axis=1)[~documents.is_train] == documents.classes[~documents.is_train])
    assert result["micro_f1"]["value"] == pytest.approx(right)
    # A text becomes the tokens that the document of the run has.
    texts = pq.read_table(folder / "notes.parquet").column("text").to_pylist()
    numbers = [int(name.removeprefix("d")) for name in documents.store.doc_ids.to_pylist()]
    assert classifier.log_probs_of([texts[number] for number in numbers]) == pytest.approx(log_probs, abs=1e-5)


@pytest.mark.heavy
def test_a_job_shows_its_classifiers_with_their_files_and_makes_nothing_twice(folder: Path, finished: Path) -> None:
    evidence = json.loads((finished / "report/report.json").read_text())
    heads = {head["recipe"]: head for head in evidence["heads"]}
    assert set(heads) == {"classify/base", "classify/mlm"}
    assert len({head["digest"] for head in heads.values()}) == 2
    for head in heads.values():
        assert head["membership"]["label_lira"]["num_shadows"] == 4
        assert set(head["attributes"]) == {"bed"}
        assert head["attributes"]["bed"]["chance"] == pytest.approx(1 / 7)
    rows = {row["recipe"]: row for row in evidence["risks"]["rows"]}
    assert {"mlm", *heads} == set(rows)
    assert "classify/base" in (finished / "dossier/dossier.html").read_text()
    before = {path: path.stat().st_ino for path in finished.rglob("manifest.json")}
    execute(Run(parse_job(values_of(folder, finished))), "report")
    assert {path: path.stat().st_ino for path in before} == before
    for path in finished.glob("head*/**/*"):
        assert path.stat().st_mode & 0o077 == 0
        assert not path.is_file() or b"secret7" not in path.read_bytes()


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("classify", {"save_model": False}, "audit.heads attacks heads that are kept"),
        ("heads", {"num_shadows": 2}, "give 4 or more"),
        ("heads", {"num_shadows": 5}, "multiple of 2"),
        ("gate", {"measure": "attribute", "at_most": 0.1}, "needs .audit.heads. with attributes"),
        ("gate", {"measure": "membership_auc", "at_most": 0.6, "attack": "label_typo"}, "label_typo is not among"),
    ],
)
def test_a_job_that_could_not_be_obeyed_is_refused(section: str, changes: dict[str, Any], message: str) -> None:
    values = values_of(Path("nowhere"), Path("run"))
    if section == "gate":
        values["gate"], values["audit"]["heads"]["attributes"] = [changes], []
    else:
        (values["audit"]["heads"] if section == "heads" else values["classify"]).update(changes)
    with pytest.raises(PolicyError, match=message):
        parse_job(values)


@pytest.mark.parametrize("records", [False, True])
def test_a_missing_column_of_an_attribute_is_named_before_anything_runs(
    records: bool, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"individual_id": ["p1"], "sex": ["F"]}), tmp_path / "records.parquet")
    heads = {"attributes": ["height"], **({"records": str(tmp_path / "records.parquet")} if records else {})}
    job = parse_job(values_of(folder, tmp_path / "run", **heads))
    for until in ("train", "report"):
        with pytest.raises(CorpusError, match="height"):
            execute(Run(job), until)
    (tmp_path / "job.json").write_bytes(kept_content(job))
    assert command("run", tmp_path / "job.json", "--plan") == 1
    assert "height" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


# -------------------------------------------------------------------------------------- taggers, and heads that protect


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose classifier reads tags and whose tagger reads surrogates."""
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 40)
    base = write_toy_model(hospital / "bert")
    values = changed(job_values(hospital, hospital / "run"), model__base=str(base), model__recipes=["mlm"])
    values["train"] = {"num_epochs": 1, "window_length": 32, "batch_size": 8, "device": "cpu"}
    head = {"num_epochs": 1, "save_model": True, "from_recipes": ["base"]}
    values["classify"] = {"label": "label", "min_individuals": 2, "text": "tag", **head}
    values["tag"] = head
    values["audit"] = {"num_bootstrap": 100, "attacks": ["loss"], "heads": {"num_shadows": 4}}
    return execute(Run(parse_job(values)), "report")


@pytest.mark.heavy
def test_heads_that_protect_stand_beside_an_unprotected_one_and_taggers_are_asked_for_names(protected: Path) -> None:
    evidence = json.loads((protected / "report/report.json").read_text())
    heads = {head["recipe"]: head for head in evidence["heads"]}
    assert {name: (head["objective"], head["protects"]) for name, head in heads.items()} == {
        "classify/unprotected": ("classifier", False),
        "classify/base": ("classifier", True),
        "tag/unprotected": ("tagger", False),
        "tag/base": ("tagger", True),
    }
    for name, head in heads.items():
        assert len(head["membership"]) == 7
        assert head["membership"]["label_lira"]["num_shadows"] == 4
        assert ("digest" in head) is not name.endswith("unprotected")  # the control is not kept
    for name in ("tag/unprotected", "tag/base"):
        assert set(heads[name]["names"]) == {"told", "blind", "over_blind"}
        assert heads[name]["names"]["told"]["unit"] == "individuals"
    rows = {row["recipe"]: {r["risk"] for r in row["results"] if r["relevant"]} for row in evidence["risks"]["rows"]}
    assert rows["tag/base"] == {"words", "individual"}
    assert not [path for path in protected.glob("head*/**/*") if path.name in ("model", "tokens", "model.safetensors")]


@pytest.mark.heavy
def test_a_tagger_is_scored_token_by_token(protected: Path) -> None:
    """Means over the tokens of each document, against one window at a time by transformers itself."""
    run = Run(load_kept_job(protected / "job.json"))
    (model,), config = run.job.model, run.job.of_model(run.job.tag, None)
    documents = labelled_documents(run, model, config)
    tagger = Tagger(protected / "tagging/toy/base/base", "mlm", config, 64)
    found = tagger.scores(documents.store, documents.tags)
    offsets, room = documents.store.doc_offsets, config.window_length - 2
    for document in range(3):
        own = []
        for first in range(offsets[document], offsets[document + 1], room):
            ids = documents.store.input_ids[first : min(first + room, offsets[document + 1])].astype(np.int64)
            tags = documents.tags[first : first + len(ids)]
            row = [tagger.tokenizer.cls_token_id, *ids.tolist(), tagger.tokenizer.sep_token_id]
            with torch.inference_mode():
                said = torch.log_softmax(tagger.model(torch.tensor([row])).logits[0, 1:-1].double(), -1).numpy()
            own += [
                (one[true], one.max(), one.argmax() == true) for one, true in zip(said, tags, strict=True) if true >= 0
            ]
        means = np.mean(np.array(own, dtype=float), axis=0)
        assert (found.own[document], found.top[document], found.right[document]) == pytest.approx(means, abs=1e-4)
