"""Each value is declared once: what a job gives reaches every section, and an option has no default of its own."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest
import typer.main
from pydantic import BaseModel

from reticent.audit.membership.names import DEFAULT_ATTACKS, DEFAULT_SHADOW_ATTACKS
from reticent.core.errors import PolicyError
from reticent.core.section import Section, shared_fields
from reticent.job.config import Job, parse_job
from reticent.trainer.config import PrivacyConfig, TrainConfig

VALUES: dict[str, Any] = {"out": "run", "corpus": {"source": "notes.parquet"}}


def sections(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The classes of the sections of a class, and of those in them."""

    def inside(annotation: Any) -> Iterator[type[BaseModel]]:
        is_class = isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias)
        if is_class and issubclass(annotation, BaseModel):
            yield annotation
            yield from sections(annotation)
        for part in get_args(annotation):
            yield from inside(part)

    for field in kind.model_fields.values():
        yield from inside(field.annotation)


def test_values_that_a_job_gives_once_reach_every_section_and_none_may_repeat_them() -> None:
    values = {**VALUES, "seed": 7, "num_threads": 3, "index": {"surface": "fold"}, "protect": {"k": 4}}
    values |= {"train": {"device": "cpu", "window_length": 64, "bf16": "on"}, "audit": {"num_bootstrap": 100}}
    values |= {"dedup": {}, "canaries": {}, "extraction": {}, "probe": {"soft_prompt": {}}, "classify": {"label": "x"}}
    job = parse_job(values)
    assert job.probe
    assert job.probe.soft_prompt
    assert job.canaries
    assert job.extraction
    assert job.classify
    for section in (job.split, job.train, job.audit, job.extraction, job.probe, job.probe.soft_prompt, job.classify):
        assert section.seed == 7
    assert (job.canaries.job_seed, job.canaries.chosen_seed, job.canaries.k) == (7, 7, 4)
    assert (job.dedup.k, job.dedup.surface, job.dedup.num_threads, job.index.num_threads) == (4, "fold", 3, 3)
    assert (job.audit.device, job.audit.bf16, job.audit.window_length) == ("cpu", "on", 64)
    assert (job.extraction.num_bootstrap, job.probe.num_bootstrap, job.canaries.num_bootstrap) == (100, 100, 100)
    assert (job.classify.window_length, job.classify.device, job.classify.bf16) == (64, "cpu", "on")
    assert parse_job(job.model_dump()) == job
    for wrong, said in (
        ({"split": {"seed": 1}}, r"split\.seed: belongs to the whole job: set seed"),
        ({"probe": {"soft_prompt": {"seed": 1}}}, r"probe\.soft_prompt\.seed: belongs to the whole job: set seed"),
        ({"audit": {"device": "cpu"}}, r"audit\.device: belongs to the whole job: set train\.device"),
        ({"index": {"min_support": 1}}, r"index\.min_support: unknown field"),
    ):
        with pytest.raises(PolicyError, match=said):
            parse_job({**VALUES, **wrong})


def test_every_shared_value_has_its_place_in_the_job() -> None:
    found = 0
    for kind in {*sections(Job)}:
        for path in filter(None, shared_fields(kind).values()):
            where: Any = Job
            for name in path.split("."):
                where = where.model_fields[name].annotation
            found += 1
    assert found > 20


def test_settings_of_the_library_are_refused_with_the_names_of_their_fields() -> None:
    with pytest.raises(PolicyError, match=r"train\.num_epochs: .*; train\.magic: unknown field"):
        TrainConfig(num_epochs=0, magic=1)  # type: ignore[call-arg]
    with pytest.raises(PolicyError, match=r"train\.lora\.r: .*, got 0"):
        TrainConfig(lora={"r": 0})  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"train\.dp: a budget needs both"):
        PrivacyConfig(noise_multiplier=1.0, budget_file="b.json")
    assert TrainConfig(checkpoint_epochs=[2, 3], num_epochs=2).epochs_kept() == (2,)  # type: ignore[arg-type]
    assert TrainConfig(num_epochs=3).replace(seed=4) == TrainConfig(num_epochs=3, seed=4)


def test_default_attacks_are_attacks() -> None:
    from reticent.audit.membership import asking, shadow

    assert set(DEFAULT_ATTACKS) < set(asking.EVERY_ATTACK)
    assert set(DEFAULT_SHADOW_ATTACKS) < set(shadow.SHADOW_ATTACKS)


#: Command and option -> the section and field that it sets.
OPTIONS = {
    ("index", "max_n"): "index.max_n",
    ("probe", "level"): "probe.levels",
    ("probe", "language"): "probe.language",
    ("probe", "beams"): "probe.beam_sizes",
    ("probe", "masking"): "probe.masking",
    ("probe", "soft_subjects"): "probe.soft_prompt.num_subjects",
    ("probe", "soft_tokens"): "probe.soft_prompt.num_tokens",
    ("probe", "soft_epochs"): "probe.soft_prompt.num_epochs",
    ("probe", "soft_init"): "probe.soft_prompt.init",
}


@cache
def tables() -> dict[str, type[Section]]:
    return {kind.section: kind for kind in sections(Job) if issubclass(kind, Section) and kind.section}


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_option_has_no_default_of_its_own_and_its_help_tells_that_of_the_class(command: str, option: str) -> None:
    from reticent.cli import app

    group: Any = typer.main.get_command(app)
    parameter = next(p for p in group.commands[command].params if p.name == option)
    assert parameter.default is None
    table, _, field = OPTIONS[command, option].rpartition(".")
    value = tables()[table].model_fields[field].get_default()
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    assert re.search(rf"\(default: {re.escape(shown)}\)", parameter.help), parameter.help
