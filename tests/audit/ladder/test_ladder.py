"""The clinical ladder: areas by hand, a model that remembers members' diagnoses, and one that remembers others'."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.tokenizer_kinds import TOY_KINDS, tokenizer_json
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from reticent.audit.config import DiagnosesConfig
from reticent.audit.evidence.ladder import Ladder, ToldDiagnoses
from reticent.audit.judgement.rows import CUES, FEW_DIAGNOSED, PLACEBO, RISKS, Subject, is_over, simultaneous
from reticent.audit.membership.names import FEWEST_DIAGNOSED, RUNGS
from reticent.audit.stats.estimate import Estimate
from reticent.core.errors import PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.split import SplitConfig, split_individuals
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.ext.ladder import measure
from reticent.ext.ladder.measure import (
    Scores,
    cue_scores,
    diagnosis_auc_excess,
    ladder,
    log_odds_against_rest,
    score_ladder,
)
from reticent.ext.ladder.questions import Diagnosis, Questions, _last_unseen_sentence, make_questions, read_terms
from reticent.trainer.models import special_ids

DIAGNOSES = ("gout", "lupus", "gall", "mumps")
#: Individuals of each side and diagnosis.
EACH = 60


def asked(seed: int = 0) -> Questions:
    """Individuals of both sides with words of their own, a diagnosis that is written, and one of the record alone."""
    random, num = np.random.default_rng(seed), 2 * EACH * len(DIAGNOSES)
    has = random.permutation(np.tile(np.arange(len(DIAGNOSES)), num // len(DIAGNOSES) // 2))
    has = np.concatenate([has, has])
    alone = (has + random.integers(1, len(DIAGNOSES), num)) % len(DIAGNOSES)
    written = np.eye(len(DIAGNOSES), dtype=bool)[has]
    cue = [f"a{number} b{number}" for number in range(num)]
    return Questions(
        codes=np.arange(num), units=np.arange(num), is_member=np.arange(num) < num // 2,
        diagnoses=tuple(Diagnosis(name, is_sensitive=number < 2) for number, name in enumerate(DIAGNOSES)),
        written=written, recorded=written | np.eye(len(DIAGNOSES), dtype=bool)[alone],
        cues=tuple([" ".join(text.split()[: 1 + rung // 2]) for text in cue] for rung in range(4)),
        fragments=[""] * num, templates=[""] * num,
    )  # fmt: skip


def told(questions: Questions, scores: np.ndarray, base: np.ndarray | None = None) -> Estimate:
    has, lacks = questions.written, ~questions.recorded
    return diagnosis_auc_excess(questions, scores, base, has, lacks, np.arange(len(DIAGNOSES)))[0]


# ------------------------------------------------------------------ arithmetic


def test_a_cell_is_the_area_of_members_less_that_of_others_less_the_same_of_the_base() -> None:
    """By hand, ties count half: of each diagnosis the area of members is 1, and of others .5; the base has .5 and .5
    but for members with the first diagnosis, half of whom lie over those without it and half under."""
    questions = asked()
    scores = np.where(questions.is_member[:, None] & questions.written, 1.0, 0.0)
    found = told(questions, scores)
    assert found.value == pytest.approx(0.5)
    assert told(questions, scores, scores).value == pytest.approx(0.0)
    assert told(questions, scores, np.zeros_like(scores)).value == pytest.approx(0.5)
    assert told(questions, np.zeros_like(scores)) == Estimate(value=0.0, n=480, method=found.method)  # no interval


def test_margins_are_log_odds_against_the_alternatives() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]])
    assert log_odds_against_rest(np.log(p) - 3.0) == pytest.approx(np.log(p / (1 - p)), abs=1e-4)
    sure = np.array([[0.0, -100.0, -200.0], [0.0, -60.0, -90.0]])  # the surer of two is not told the less
    assert log_odds_against_rest(sure).tolist() == [[100.0, -100.0, -200.0], [60.0, -60.0, -90.0]]


def test_an_interval_covers_what_there_is_and_counts_households() -> None:
    """Of 200 draws without a leak the interval leaves 0 out in few; twins that say the same are no more people."""
    questions, random = asked(), np.random.default_rng(3)
    over = [told(questions, random.normal(size=questions.written.shape)) for _ in range(200)]
    outside = np.mean([found.low > 0 or found.high < 0 for found in over])  # type: ignore[operator]
    assert outside <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    scores = random.normal(size=questions.written.shape)
    alone = told(questions, scores)
    double: Any = {
        name: np.concatenate([getattr(questions, name)] * 2) for name in ("units", "is_member", "written", "recorded")
    }
    twins = replace(questions, codes=np.arange(2 * len(scores)), **double)
    both = told(twins, np.concatenate([scores, scores]))
    assert both.num_households == alone.n
    assert both.value == pytest.approx(alone.value)
    assert both.high - both.value == pytest.approx(alone.high - alone.value, rel=0.01)  # type: ignore[operator]


@pytest.mark.parametrize(("each", "num"), [(FEWEST_DIAGNOSED, 4), (FEWEST_DIAGNOSED - 1, 3)])
def test_a_diagnosis_of_too_few_is_left_out(each: int, num: int) -> None:
    questions = asked()
    rows = np.flatnonzero(questions.written[:, 0] & ~questions.is_member)[each:]
    written, recorded = questions.written.copy(), questions.recorded.copy()
    written[rows, 0] = recorded[rows, 0] = False
    own = replace(questions, written=written, recorded=recorded)
    scores = np.random.default_rng(0).normal(size=written.shape)
    assert diagnosis_auc_excess(own, scores, None, written, ~recorded, np.arange(4))[1] == num


def test_a_classifier_of_cues_learns_what_they_say_of_others_and_nothing_of_one_alone() -> None:
    questions = asked()
    assert abs(told(questions, cue_scores(questions, 0)[:, 3]).value or 0.0) < 0.1  # words of one's own say nothing
    ward = [f"w{int(np.argmax(row))}" for row in questions.written]
    by_ward = cue_scores(replace(questions, cues=(ward,) * 4), 0)[:, 0]
    assert np.mean(np.argmax(by_ward, axis=1) == np.argmax(questions.written, axis=1)) == 1.0


# ------------------------------------------------------------------ a model


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<s>", "?", "Diagnosis:", *DIAGNOSES, *(f"{k}{n}" for n in range(2 * EACH * len(DIAGNOSES)) for k in "ab")]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    plain.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<s>", unk_token="?")


def trained_on(tokenizer: PreTrainedTokenizerFast, questions: Questions, who: np.ndarray) -> Any:
    """A model that read the cue and the diagnosis of some individuals many times."""
    torch.manual_seed(0)
    size: Any = {"n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2, "initializer_range": 0.2}
    size |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    named = [DIAGNOSES[int(np.argmax(row))] for row in questions.written]
    read = [
        torch.tensor([tokenizer.encode(f"<s> {cues[n]} Diagnosis: {named[n]}") for n in np.flatnonzero(who)])
        for cues in (questions.cues[0], questions.cues[3])
    ]
    for step in range(60 if who.any() else 0):
        ids = read[step % 2]
        loss = torch.nn.functional.cross_entropy(model(input_ids=ids).logits[:, -2], ids[:, -1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def scored(tokenizer: PreTrainedTokenizerFast) -> dict[str, Scores]:
    """Scores of a model of the members, of one of people of neither side with the same diagnoses, and of their base."""
    questions, special = asked(), special_ids(tokenizer, "clm")
    nobody = np.zeros(len(questions.codes), dtype=bool)
    models = {
        "members": trained_on(tokenizer, questions, questions.is_member),
        "others": trained_on(tokenizer, replace(asked(1), cues=((["a0 b0"] * len(nobody)),) * 4), ~nobody),
        "base": trained_on(tokenizer, questions, nobody),
    }
    score = partial(
        score_ladder, tokenizer=tokenizer, special=special, questions=questions, prompt="Diagnosis:", causal=True
    )
    return {name: score(model) for name, model in models.items()}


def test_a_model_that_remembers_members_diagnoses_is_found_and_its_placebo_is_0(scored: dict[str, Scores]) -> None:
    found = ladder(asked(), scored["members"], scored["base"], seed=0)
    assert list(found.sensitive) == list(found.other) == list(RUNGS)
    for own in (found.sensitive, found.other):
        for cell in own.values():
            assert cell.told.low > 0.2  # type: ignore[operator]
            assert (cell.num_diagnoses, cell.num_too_few, cell.fewest) == (2, 0, EACH)
            assert cell.placebo.low <= 0 <= cell.placebo.high  # type: ignore[union-attr, operator]
            assert not is_over(cell.cue_only, 0.0)


@pytest.mark.parametrize("name", ["others", "base"])
def test_a_model_that_was_trained_on_others_tells_nothing_of_members(scored: dict[str, Scores], name: str) -> None:
    found = ladder(asked(), scored[name], None, seed=0)
    for cell in (*found.sensitive.values(), *found.other.values()):
        assert not is_over(cell.told, 0.0)


def test_members_that_are_relabelled_at_random_are_told_no_more(scored: dict[str, Scores]) -> None:
    """Scored once, relabelled 200 times: any cell is over 0 in few, all ends at once."""
    questions, random, beyond = asked(), np.random.default_rng(5), 0
    for _ in range(200):
        own = replace(questions, is_member=random.permutation(questions.is_member))
        cells = [
            diagnosis_auc_excess(
                own,
                log_odds_against_rest(scored["others"]["diagnoses"][:, rung]),
                None,
                own.written,
                ~own.recorded,
                chosen,
            )
            for rung in (0, 3)
            for chosen in (np.array([0, 1]), np.array([2, 3]))
        ]
        evidence = {
            str(number): ToldDiagnoses(told=simultaneous(cell[0], 4), num_diagnoses=2, num_too_few=0, fewest=EACH)
            for number, cell in zip(RUNGS, cells, strict=True)
        }
        beyond += any(is_over(number.estimate, 0.0) for number in numbers(evidence))
    assert beyond / 200 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)


def test_a_masked_model_is_asked_for_all_tokens_of_a_diagnosis_at_once() -> None:
    """Against one row at a time, by the model's own logits; a cue that is too long keeps its end."""
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(toy_tokenizer("bert")), cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", pad_token="[PAD]",
    )  # fmt: skip
    model = toy_model("bert", max_length=32).eval()
    questions = asked()
    cues = ("she was seen today with pain", "pain " * 100, *[""] * (len(questions.codes) - 2))
    own = replace(questions, cues=(list(cues),) * 4)
    found = score_ladder(model, words, special_ids(words, "mlm"), own, "was seen with", causal=False)["diagnoses"]
    assert not np.isnan(found[:2]).any()
    assert np.isnan(found[2:]).all()
    for d, name in enumerate(DIAGNOSES):
        before = words.encode(f"{cues[0]}\nwas seen with ", add_special_tokens=False)
        term = words.encode(name, add_special_tokens=False)
        ids = torch.tensor([[words.cls_token_id, *before, *[words.mask_token_id] * len(term), words.sep_token_id]])
        log_p = torch.log_softmax(model(input_ids=ids).logits[0].detach(), -1)
        expected = sum(float(log_p[1 + len(before) + at, token]) for at, token in enumerate(term))
        assert found[0, 0, d] == pytest.approx(expected, abs=1e-4)


def test_a_fragment_comes_back_where_greedy_decoding_ends_it_word_for_word() -> None:
    words = ["<s>", "?", *(f"w{n}" for n in range(40))]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="?"))
    plain.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="<s>", unk_token="?")
    text, cue = " ".join(f"w{n}" for n in range(20)), "w30 w31"
    torch.manual_seed(0)
    size: Any = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=42, bos_token_id=0, eos_token_id=0, **size)).eval()
    ids = torch.tensor([tokenizer.encode(f"<s> {cue} {text}")])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    questions, num = asked(), len(asked().codes)
    own = replace(
        questions, diagnoses=questions.diagnoses[:2], cues=([cue, cue, *[""] * (num - 2)],) * 4,
        fragments=[text, " ".join(reversed(text.split())), *[""] * (num - 2)], templates=["w1 w2"] * num,
    )  # fmt: skip
    scores = score_ladder(model, tokenizer, special_ids(tokenizer, "clm"), own, "w39", causal=True)
    assert scores["fragments asked"][:, 0].tolist() == [True, True] + [False] * (num - 2)
    assert scores["fragments"][:, 0].tolist() == [True] + [False] * (num - 1)
    assert not scores["templates asked"].any()  # too short to end in so many tokens


@pytest.mark.parametrize("kind", TOY_KINDS)
def test_the_end_of_a_fragment_is_asked_for_in_the_tokens_that_the_whole_text_has(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = core_tokenizer(PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer_json(kind))))
    cue, begin = "on the ward", "the patient was seen by Dr. Smith and again at the"
    text = f"{begin} old hospital on the ward and again on 2021-03-04 at 10:45"
    asked_ids: list[list[int]] = []

    def read(_: Any, ids: np.ndarray, length: int, **__: Any) -> tuple[np.ndarray, None]:
        asked_ids.extend([*ids.tolist(), ids[0, :length].tolist()])
        return np.ones(len(ids), dtype=bool), None

    monkeypatch.setattr(measure, "score_continuations", read)
    monkeypatch.setattr(measure, "max_positions", lambda _: 64)
    own = replace(asked(), cues=([cue],))
    model: Any = type("Model", (), {"device": "cpu"})()
    came, _ = measure._completed_ends(model, backend, None, own, [text])  # type: ignore[arg-type]
    (whole,) = backend.encode([f"{cue}\n{text}"])
    row, known = asked_ids
    assert came[0, 0]
    assert row == whole.ids[: len(row)]
    assert whole.offsets[len(known) - 1][1] <= len(f"{cue}\n{begin}")  # nothing of the end


def test_what_the_base_writes_too_is_no_leak_and_templates_are_counted_apart() -> None:
    questions = asked()
    every, member = np.ones((len(questions.codes), 4), dtype=bool), questions.is_member
    came, of_base = np.zeros_like(every), np.zeros_like(every)
    came[:60], of_base[:20] = True, True
    names = ("fragments", "fragments asked", "templates", "templates asked")
    log_probs = np.zeros((len(member), 4, 4))
    own, base = (
        dict(zip(("diagnoses", *names), (log_probs, one, every, every, every), strict=True)) for one in (came, of_base)
    )
    found = ladder(questions, own, base, seed=0)
    assert found.verbatim["colleague"].members.value == pytest.approx(40 / 240)
    assert found.verbatim["colleague"].excess.value == pytest.approx(40 / 240)
    assert found.templates["colleague"].members.value == 0.0  # the base writes them too
    model: Any = type("Model", (), {"inversion": None, "diagnoses": found, "attributes": None})()
    judged = [number.what for number in RISKS["context"].numbers(Subject(model, None))]
    assert [what for what in judged if "fragments" in what] == [
        f"fragments that come back, given {known}" for known in RUNGS.values()
    ]


# ------------------------------------------------------------------ the judgement


def numbers(sensitive: dict[str, ToldDiagnoses]) -> list[Any]:
    found = Ladder(less_base=False, sensitive=sensitive, other={}, verbatim={}, templates={})
    model: Any = type("Model", (), {"inversion": None, "diagnoses": found, "attributes": None})()
    return list(RISKS["context"].numbers(Subject(model, None)))


def cell(**more: Any) -> dict[str, ToldDiagnoses]:
    ends = Estimate(value=0.2, low=0.15, high=0.25, n=400)
    values: dict[str, Any] = {"told": ends, "num_diagnoses": 2, "num_too_few": 0, "fewest": 60} | more
    return {"demographics": ToldDiagnoses(**values)}


def test_a_cell_that_its_controls_do_not_clear_says_nothing_and_one_of_too_few_is_missing() -> None:
    over = Estimate(value=0.1, low=0.05, high=0.15, n=400)
    ((number,), (placebo,), (cue,)) = (numbers(cell(**more)) for more in ({}, {"placebo": over}, {"cue_only": over}))
    assert (number.what, number.at_most, number.invalid) == (
        "sensitive diagnoses told by public demographics",
        0.05,
        None,
    )
    assert (placebo.invalid, cue.invalid) == (PLACEBO, CUES)
    under = Estimate(value=-0.1, low=-0.15, high=-0.05, n=400)  # held-out individuals are told by cues: it hides a leak
    for name in ("placebo", "cue_only", "out_shadows"):
        (less,) = numbers(cell(**{name: under}))
        assert (less.invalid, less.doubt, number.doubt) == (None, CUES, None)
    (few,) = numbers(cell(told=Estimate(value=None, n=0), num_diagnoses=0, num_too_few=3))
    assert (few.estimate, few.missing) == (None, FEW_DIAGNOSED)


# ------------------------------------------------------------------ questions


LIST = """
[[diagnosis]]
name = "gout"
synonyms = ["urate arthritis"]
drugs = ["allopurinol"]
[[diagnosis]]
name = "lupus"
sensitive = false
"""


@pytest.fixture
def asked_of_documents(tmp_path: Path) -> Questions:
    (tmp_path / "terms.toml").write_text(LIST)
    rows = [
        (
            "p0",
            "Seen by the night team on ward 9 today. He takes allopurinol for his aching left toe. Urate  Arthritis.",
        ),
        (
            "p1",
            "The patient was well and went home again. Her cat walked over both beds. No lupus was found now.",
        ),
        (
            "p2",
            "The patient was well and went home again. A boat was drawn on the wall there. Nothing else is of note.",
        ),
        ("p3", "The patient was well and went home again."),
    ]
    lines = [
        f'{{"individual_id": "{who}", "doc_id": "d{who}", "text": "{text}", "age": "{30 + number}", "ward": "gout",'
        f' "ill": "{"gout" if who in ("p0", "p3") else ""}"}}'
        for number, (who, text) in enumerate(rows)
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))
    corpus = open_corpus(tmp_path / "notes.jsonl")
    config = DiagnosesConfig(
        terms=str(tmp_path / "terms.toml"), column="ill", demographics=("age",), encounter=("ward",)
    )
    individuals = split_individuals(corpus, SplitConfig(heldout=0.5))
    return make_questions(corpus, individuals, config, k=2, ids="stop", seed=0)


def test_what_is_known_holds_no_diagnosis_synonym_or_drug(asked_of_documents: Questions) -> None:
    own = asked_of_documents
    assert own.written.tolist() == [[True, False], [False, True], [False, False], [False, False]]
    assert own.recorded.tolist() == [[True, False], [False, False], [False, False], [True, False]]
    assert own.cues[0] == [f"age: {30 + number}" for number in range(4)]
    assert own.cues[1] == [""] * 4  # the ward is named as a diagnosis
    assert own.cues[2][0] == "age: 30\nSeen by the night team on ward 9 today."
    assert own.cues[2][1] == "age: 31\nHer cat walked over both beds."
    assert own.cues[2][3] == ""  # all that it says is said by others
    assert own.fragments == ["", "", "", ""]  # nobody has a second one that a colleague has not read
    said = "\n".join(text for cues in own.cues for text in cues).casefold()
    assert not any(name in said for name in ("gout", "urate", "allopurinol", "lupus"))


@pytest.mark.parametrize("by", ["individual", "household"])
def test_a_sentence_is_counted_over_all_people_of_both_sides_not_those_drawn(tmp_path: Path, by: Any) -> None:
    """Two people of one household share a sentence, and all people another."""
    (tmp_path / "terms.toml").write_text(LIST)
    said = "{} She has gout. Her cat number {} walked over both beds. All of them were seen by one team."
    lines = [
        f'{{"individual_id": "p{n}", "household_id": "h{n // 2}", "doc_id": "d{n}",'
        f' "text": "{said.format("so " * 50 + ".", n // 2)}"}}'
        for n in range(24)
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))
    corpus = open_corpus(tmp_path / "notes.jsonl", columns=Columns(household_id="household_id"))
    individuals = split_individuals(corpus, SplitConfig(heldout=0.5, by=by))
    config = DiagnosesConfig(terms=str(tmp_path / "terms.toml"), num_individuals=2)
    found = make_questions(corpus, individuals, config, k=2, ids="stop", seed=0)
    assert len(found.codes) == 4
    assert ["cat" in cue for cue in found.cues[2]] == [by == "household"] * 4
    assert found.templates == ["All of them were seen by one team."] * 4


def test_a_fragment_that_a_colleague_has_read_is_not_asked_for() -> None:
    read = "One two three four five six seven. And more."
    unread = "Nine ten eleven twelve thirteen fourteen fifteen."
    assert _last_unseen_sentence([unread, "One two three four five six seven."], read) == unread
    assert _last_unseen_sentence(["One two three four five six seven."], read) == ""


def test_a_rung_on_which_nothing_is_known_has_no_cell(scored: dict[str, Scores]) -> None:
    questions = asked()
    none = [""] * len(questions.codes)
    found = ladder(replace(questions, cues=(none, none, *questions.cues[2:])), scored["members"], None, seed=0)
    assert list(found.sensitive) == list(found.other) == ["fragment", "colleague"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 [[diagnosis]]; at least two"),
        ('[[diagnosis]]\nname = "gout"', "1 [[diagnosis]]; at least two"),
        ('[diagnosis]\nname = "gout"', "expected tables, each under [[diagnosis]]"),
        ('diagnosis = ["gout", "flu"]', "expected tables, each under [[diagnosis]]"),
        ("diagnosis = 3", "expected tables, each under [[diagnosis]]"),
        ('[[diagnosis]]\nsynonyms = ["gout"]', "diagnosis 1: expected name"),
        ('[[diagnosis]]\nname = "gout"\nicd = "M10"', "diagnosis 1: expected name"),
        (LIST.replace("lupus", "GOUT"), "1 names stand for two diagnoses"),
    ],
)
def test_a_list_that_cannot_be_asked_about_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "terms.toml").write_text(text)
    with pytest.raises(PolicyError) as error:
        read_terms(tmp_path / "terms.toml")
    assert said in str(error.value)
