"""What a run can show is said before it: how many individuals *within* needs, what is lowered, what attacks cost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fixtures.command import command

from reticent.audit.judgement.rows import RISKS
from reticent.audit.membership.draws import draw_population
from reticent.audit.texts import Texts
from reticent.core.errors import CorpusError, PolicyError
from reticent.core.json_toml import parse_toml
from reticent.ext.propile.prompts import SoftPromptConfig, SoftPromptStudy, require_subjects
from reticent.job.checks import check_columns, refuse_too_few
from reticent.job.config import Job, load_job, parse_job
from reticent.job.experiment import minimal_job
from reticent.job.pipeline import execute
from reticent.job.reach import expected_sides, reach_lines
from reticent.job.run import Run

MODEL = {"name": "m", "objective": "clm", "base": "folder", "recipes": ["clm", "ppclm"]}


def job(**sections: Any) -> Job:
    return parse_job({"out": "run", "corpus": {"source": "notes"}, "model": [MODEL], **sections})


def test_what_each_risk_needs_follows_from_its_threshold() -> None:
    rates, areas = (146, 146), (300, 1000)
    for name, at_most, needed in (
        ("emission", 0.05, rates), ("context", 0.05, rates), ("words", 0.6, areas), ("individual", 0.6, areas)
    ):  # fmt: skip
        assert RISKS[name].fewest(at_most) == needed
    assert RISKS["passages"].fewest(0.01) == (368, 368)
    assert RISKS["emission"].fewest(0.1) == (37, 37)
    assert RISKS["individual"].fewest(0.52) == (3284, 3284), "a narrow threshold needs more than the share that is told"


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (
            (72, 48),
            "these documents give about 72 and 48, so it cannot be reached: about 74 members and 98 others are missing",
        ),
        ((146, 146), "these documents give about 146 and 146, which can be enough"),
        ((500, 100), "so it cannot be reached: about 0 members and 46 others are missing"),
        (None, "needs about 146 members and 146 others"),
    ],
)
def test_what_is_missing_for_within_is_said(sides: tuple[int, int] | None, said: str) -> None:
    (line,) = (line for line in reach_lines(job(), sides) if line.startswith("identifiers emitted"))
    assert line.endswith(said)


SHADOWS = {"recipes": ["clm", "ppclm"]}


@pytest.mark.parametrize(
    ("shadow", "others", "enough"),
    [(SHADOWS, 1250, 1249), (SHADOWS | {"population": 0.5}, 2000, 1999), (SHADOWS | {"attacks": ["shadow"]}, 1000, 999),
     (SHADOWS | {"attacks": ["rmia_online"]}, 1250, 1249), (None, 1000, 999)],
)  # fmt: skip
def test_others_whom_an_attack_compares_with_and_does_not_attack_are_needed_beside(
    shadow: dict[str, Any] | None, others: int, enough: int
) -> None:
    """Half of the others for a population are no others of a share that is told."""
    own = job(audit={"shadow": shadow})
    for there, said in ((others, "which can be enough"), (enough, "0 members and 1 other are missing")):
        (line,) = (line for line in reach_lines(own, (300, there)) if line.startswith("membership of the person: "))
        assert f"needs about 300 members and {others:,} others" in line
        assert line.endswith(said)
    if own.audit.shadow and others > 1000:
        units, every = np.arange(others, dtype=np.uint32), np.ones(others, dtype=bool)
        assert (~draw_population(units, every, seed=3, share=own.audit.shadow.population)).sum() == 1000


#: Members and others, and the cheaper of the two controls with its cost, with 8 shadow models of its own.
CONTROLS = [
    (None, "trained 4 times as long: it is a control too, about as long as 32 trainings"),
    ((150, 100), "trained 4 times as long: it is a control too, about as long as 32 trainings"),
    ((99, 5000), "trained 4 times as long"),
    ((300, 1250), "repeated = 100, which has 100 members eight times in an epoch: it is a control too, about as long "
     "as 27 trainings"),
    ((3000, 2000), "repeated = 100, which has 100 members eight times in an epoch: it is a control too, about as long "
     "as 10 trainings"),
]  # fmt: skip


@pytest.mark.parametrize(("sides", "said"), CONTROLS)
def test_the_cheaper_control_is_named_with_its_cost(sides: tuple[int, int] | None, said: str) -> None:
    lines = list(reach_lines(job(audit={"shadow": SHADOWS}), sides))
    assert said in lines[-1]
    control = {**MODEL, "name": "control", "recipes": ["clm"], "repeated": 100}
    with_one = list(reach_lines(job(audit={"shadow": SHADOWS}, model=[MODEL, control]), sides))
    assert "control too" not in with_one[-1], "the job has one"
    cost = {None: 20, (150, 100): 51, (99, 5000): 67, (300, 1250): 36, (3000, 2000): 22}[sides]
    assert with_one[-1].endswith(f"24 are trained on half of the individuals each, about as long as {cost} trainings")
    assert "no plain" not in "".join(with_one)


TAG = {"save_model": True}
#: Classifiers of three starts, and taggers of as many beside an unprotected one.
HEADS = {"classify": {"label": "ward", **TAG}, "tag": TAG, "audit": {"heads": {"num_shadows": 4}}}
#: Sections of a job, and what is said of it or not.
PLANS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (
        {},
        [
            "ppclm of m: the training lowers identifiers emitted and membership through identifying words; it does not",
            "membership of the person cannot be within, as this needs 8 shadow models of ppclm and of clm",
            "trains 16 models on half of the individuals each, about as long as 13 trainings",
            "no attack of this job measures it; [audit.inversion] does",
        ],
        ["no plain", "shadow models: "],
    ),
    (
        {"audit": {"shadow": {"recipes": ["clm", "ppclm"]}, "inversion": {}}, "extraction": {}},
        ["shadow models: 16 are trained", "a section [[model]] of the same base", "eight times"],
        ["cannot be within", "measures it"],
    ),
    ({"audit": {"shadow": {"recipes": ["clm", "ppclm"], "num_shadows": 4}}}, ["cannot be within", "8 are trained"], []),
    ({"audit": {"shadow": {"recipes": ["ppclm"]}}}, ["cannot be within"], []),
    (
        HEADS,
        ["shadow heads: 28 are trained on half of the individuals each, about as long as 23 heads"],
        ["shadow models: "],
    ),
    ({**HEADS, "audit": {"heads": {"num_shadows": 0}}}, [], ["shadow heads"]),
    ({**HEADS, "classify": None, "tag": TAG | {"from_recipes": ["base"]}}, ["shadow heads: 8 are trained"], []),
    ({"extraction": {"suffix_tokens": 49}}, ["no whole passages are asked for: [extraction] suffix_tokens = 50"], []),
    ({"extraction": {"suffix_tokens": 50}}, [], ["no whole passages"]),
    ({"model": [MODEL | {"recipes": ["ppclm"]}]}, ["m: no plain clm is trained beside it"], ["cannot be within"]),
    ({"model": [MODEL | {"objective": "mlm", "recipes": ["mlm", "ppmlm"]}]}, ["ppmlm of m"], ["verbatim passages"]),
]


@pytest.mark.parametrize(("sections", "said", "not_said"), PLANS)
def test_what_the_training_lowers_and_what_attacks_cost_is_said(
    sections: dict[str, Any], said: list[str], not_said: list[str]
) -> None:
    text = "\n".join(reach_lines(job(**sections), (500, 1500)))
    assert [part for part in said if part not in text] == []
    assert [part for part in not_said if part in text] == []
    french = "\n".join(reach_lines(job(**sections), (500, 1500), Texts("fr")))
    assert "personnes" in french
    assert "members" not in french


def test_a_new_job_has_shadow_models_where_membership_can_be_within_and_says_so_where_not() -> None:
    corpus = {"source": "notes"}
    large, small, unknown = (minimal_job(corpus=corpus, num_individuals=n) for n in (4000, 200, None))
    assert parse_job(parse_toml(large)).audit.shadow is not None
    for text in (small, unknown):
        assert parse_job(parse_toml(text)).audit.shadow is None
        assert "cannot be within" in " ".join(text.replace("#", "").split())
    assert "these documents give" not in unknown
    assert expected_sides(parse_job(parse_toml(small)), 200) == (80, 80)


def test_a_plan_runs_nothing_and_refuses_what_cannot_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.csv"
    rows = "".join(f"{i},p{i % 10},h{i % 5},a note\n" for i in range(20))
    notes.write_text("doc_id,individual_id,home,text\n" + rows)
    file = tmp_path / "job.toml"
    file.write_text(
        f'out = "{tmp_path}/run"\n[corpus]\nsource = "{notes}"\n[[model]]\nname = "m"\nobjective = "clm"\n'
        f'base = "{tmp_path}/none"\nrecipes = ["clm", "ppclm"]\n'
    )
    assert command("run", file, "--plan", "--set", "corpus.household_id=home") == 0
    assert "these documents give about 3 and 2, so" in capfd.readouterr().out  # households
    assert command("run", file, "--plan") == 0
    assert (
        "these documents give about 6 and 4, so it cannot be reached: about 140 members and 142 others"
        in capfd.readouterr().out
    )
    assert not (tmp_path / "run").exists()
    shadow = 'audit.shadow={recipes=["clm", "ppclm"]}'
    assert command("run", file, "--plan", "--set", shadow) == 2
    assert "4 held-out individuals are too few to attack: 1 are missing" in capfd.readouterr().err
    assert command("run", file, "--plan", "--until", "index") == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["threshold.delta=1e-6"], ["threshold.delta: has no effect without threshold.epsilon"]),
        (['audit.groups=["none.txt"]'], ["none.txt"]),
        (["train.lora={}", 'train.report_to=["tensorboard"]'], ["lora needs peft", "report_to needs tensorboard"]),
    ],
)
def test_a_plan_refuses_settings_files_and_libraries_as_its_run_does(
    settings: list[str],
    said: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reticent.job.checks.find_spec", lambda _: None)
    (tmp_path / "notes.csv").write_text("doc_id,individual_id,text\n1,a,a note\n2,b,a note\n")
    (tmp_path / "job.toml").write_text(
        f'out = "{tmp_path}/run"\n[corpus]\nsource = "{tmp_path}/notes.csv"\n[[model]]\nname = "m"\n'
        f'objective = "clm"\nbase = "{tmp_path}/none"\nrecipes = ["clm"]\n'
    )
    options = [part for each in settings for part in ("--set", each)]
    refused = []
    for more in (["--plan"], []):
        assert command("run", tmp_path / "job.toml", *more, *options) != 0
        refused.append(capfd.readouterr().err.splitlines()[-1])
    assert refused[0] == refused[1]
    assert [part for part in said if part not in refused[0]] == []
    assert not (tmp_path / "run").exists()


def test_a_column_of_classes_that_the_documents_lack_is_refused_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.csv"
    notes.write_text("doc_id,individual_id,text,ward\n" + "".join(f"{i},p{i % 10},a note,w\n" for i in range(20)))
    (tmp_path / "job.toml").write_text(
        f'out = "{tmp_path}/run"\n[corpus]\nsource = "{notes}"\n[classify]\nlabel = "wrd"\n'
        f'[[model]]\nname = "m"\nobjective = "clm"\nrecipes = ["clm"]\n'
        f'foundation = {{kind = "gpt2", text = "{notes}"}}\n'
    )
    for more in (["--plan"], ["--until", "train"], []):
        assert command("run", tmp_path / "job.toml", *more) == 1
        assert "column wrd is missing" in capfd.readouterr().err
        assert not (tmp_path / "run").exists()
    assert command("run", tmp_path / "job.toml", "--plan", "--set", "classify.label=ward") == 0


def test_columns_of_an_export_are_read_before_detection(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = ["MSH|^~\\&|||||||MDM^T02|M{}|P|2.5", "PID|1||{}", "OBX|1|TX|||a note"]
    messages = "".join("\r".join([*lines, ""]).format(i, i % 10) for i in range(20))
    (tmp_path / "a.hl7").write_text(messages, newline="")
    (tmp_path / "job.toml").write_text(
        f'out = "{tmp_path}/run"\n[corpus]\nsource = "hl7://{tmp_path}"\n[classify]\nlabel = "type"\n'
        f'[[model]]\nname = "m"\nobjective = "clm"\nrecipes = ["clm"]\n'
        f'foundation = {{kind = "gpt2", text = "{tmp_path}/a.hl7"}}\n'
    )
    assert command("run", tmp_path / "job.toml", "--until", "train") == 1
    assert "column type: no document has a label" in capfd.readouterr().err
    of_heads = '[tag]\nsave_model = true\n[audit.heads]\nattributes = ["sex"]\n'
    text = (tmp_path / "job.toml").read_text().replace('[classify]\nlabel = "type"\n', of_heads)
    (tmp_path / "job.toml").write_text(text)
    assert command("run", tmp_path / "job.toml", "--until", "train") == 1
    assert "sex" in capfd.readouterr().err
    (tmp_path / "job.toml").write_text(text.replace('"sex"', '"type"'))
    known = load_job(tmp_path / "job.toml")
    execute(Run(known), "corpus")
    check_columns(Run(known))
    assert not (tmp_path / "run/spans").exists()


@pytest.mark.parametrize(("sides", "missing"), [((4, 9), "1 are missing"), ((9, 2), "3 are missing"), ((5, 5), None)])
def test_shadow_models_on_too_few_are_refused_with_what_is_missing(sides: tuple[int, int], missing: str | None) -> None:
    shadowed = job(audit={"shadow": {"recipes": ["clm", "ppclm"]}})
    refuse_too_few(job(), sides)
    if missing is None:
        refuse_too_few(shadowed, sides)
        return
    with pytest.raises(PolicyError, match=missing):
        refuse_too_few(shadowed, sides)


@pytest.mark.parametrize(
    ("sizes", "have", "missing"), [((), 137, 24), ((), 161, None), ((256,), 161, 160), ((16, 64), 161, None)]
)
def test_a_soft_prompt_and_its_sweeps_need_so_many_subjects(
    sizes: tuple[int, ...], have: int, missing: int | None
) -> None:
    subjects: Any = SimpleNamespace(items={"phone": [*(["1"] * have), None]})
    study = SoftPromptStudy(prompt=SoftPromptConfig(), num_subjects=sizes)
    if missing is None:
        require_subjects(subjects, ("phone",), study)
        return
    with pytest.raises(CorpusError, match=f"soft prompt: {have} subjects .* {missing} are missing"):
        require_subjects(subjects, ("phone",), study)
