"""Help texts beside the docstrings: paragraphs without line breaks, examples, and replacements of removed options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand


def unwrap_help(app: typer.Typer) -> typer.Typer:
    """Remove line breaks inside paragraphs from the help of an app, its commands and groups; return the app."""
    if isinstance(app.info.help, str):
        app.info.help = _join_lines(app.info.help)
    for command in app.registered_commands:
        command.help = _join_lines(command.help or inspect.getdoc(command.callback) or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            unwrap_help(group.typer_instance)
    return app


def _join_lines(text: str) -> str:
    """Return a help text with the lines of each paragraph joined."""
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in inspect.cleandoc(text).split("\n\n"))


# ------------------------------------------------------------------------------------------------------------ examples
#
# An example of every command, which its --help ends with.


EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "demo": "reticent demo --out demo-run",
        "new-job": "reticent new-job notes.parquet --set corpus.individual_id=patient_id --minimal > job.toml",
        "run": "reticent run job.toml --until index",
        "status": "reticent status run",
        "bench": "reticent bench notes.parquet --set corpus.individual_id=patient_id --model bert-base-cased",
        "reproduce": "reticent reproduce --size cpu",
        "synth": "reticent synth hospital --individuals 200 --language en",
        "detect": "reticent detect notes.parquet --detector rules --evaluate",
        "dedup": "reticent dedup notes.parquet --set dedup.mode=near",
        "scrub": "reticent scrub notes.parquet --out scrubbed --style surrogate",
        "redact": "reticent redact letter.txt --keep letter.json",
        "index": "reticent index notes.parquet --set corpus.individual_id=patient_id --out run",
        "update": "reticent update monday --add new/ --remove gone.txt --out tuesday",
        "stats": "reticent stats run --out figures",
        "protect": "reticent protect run --model gpt2=models/gpt2 --recipe ppclm --set protect.k=3",
        "export": "reticent export run --out results",
        "train": "reticent train run --set train.num_epochs=8",
        "classify": "reticent classify run --set classify.label=diagnosis",
        "audit": "reticent audit run",
        "audit-model": "reticent audit-model partner/model --base gpt2 --documents notes.parquet --members members.txt "
        "--statement 'the export of 3 May, by the registrar' --out judged",
        "report": "reticent report run --set verdict.emission=0.02",
        "dossier": "reticent dossier run --set dossier.key=~/.ssh/id_ed25519 --out to-the-dpo",
        "budget": "reticent budget run",
        "spark": "reticent spark index notes.parquet --out index --master 'local[4]'",
        "score": "reticent score models/gpt2 --texts candidates.txt --base gpt2 --out ranked.jsonl",
        "probe": "reticent probe models/gpt2 --subjects records.parquet --out probe",
        "guard": "reticent guard build run --out guard",
        "guard build": "reticent guard build run --out guard",
        "guard check": "reticent guard check guard answer.txt",
        "tagger train": "reticent tagger train run --set tag.save_model=true",
        "tagger": "reticent tagger attack models/ner --train train.conll --names census --out tagger",
        "tagger attack": "reticent tagger attack models/ner --train train.conll --names census --out tagger",
        "tagger thesis": "reticent tagger thesis base=base.csv large=large.csv",
        "detect sample": "reticent detect sample run --documents 100",
        "detect learn": "reticent detect learn run --marks run/annotation/annotation.json",
        "detect evaluate": "reticent detect evaluate run annotation/annotated.json",
        "dossier rules": "reticent dossier rules run --set dossier.access=named --set dossier.key=key",
        "dossier verify": "reticent dossier verify to-the-dpo --signers allowed_signers --model exported",
        "dossier export": "reticent dossier export run gpt2 ppclm --out to-the-partner",
    }
)


def example_of(command: str) -> str | None:
    """Return the example at the end of a command's help; None if it has none."""
    return f"Example: {EXAMPLES[command]}" if command in EXAMPLES else None


# ----------------------------------------------------------------------------------------------------- removed options


_COLUMNS = {
    "--format": "corpus.format=VALUE",
    "--doc-id": "corpus.doc_id=VALUE",
    "--individual-id": "corpus.individual_id=VALUE",
    "--text": "corpus.text=VALUE",
    "--household-id": "corpus.household_id=VALUE",
}
_SEARCHED = {**_COLUMNS, "--spans": "corpus.spans=VALUE", "--records": "detect.records.table=VALUE"}
_MEMORY = {"--memory-limit": "memory_limit=VALUE"}
_MAX_N = {"--max-n": "index.max_n=VALUE"}
#: Command -> an option that it had -> the setting of the job that says the same.
REMOVED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "new-job": _SEARCHED,
        "run": _MEMORY,
        "detect": _SEARCHED,
        "dedup": {
            **_COLUMNS,
            "--mode": "dedup.mode=VALUE",
            "--scope": "dedup.scope=VALUE",
            "--threshold": "dedup.threshold=VALUE",
            "--passage-words": "dedup.passage_words=VALUE",
            "--k": "protect.k=VALUE",
        },
        "scrub": {**_SEARCHED, "--label": "corpus.label=VALUE"},
        "index": {**_SEARCHED, **_MEMORY, **_MAX_N, "--updatable": "index.updatable=true"},
        "protect": {"--k": "protect.k=VALUE", "--n": "protect.n=VALUE", "--policy": "protect.policy=VALUE"},
        "train": {"--epochs": "train.num_epochs=VALUE", "--learning-rate": "train.learning_rate=VALUE"},
        "classify": {
            **_COLUMNS,
            "--label": "classify.label=VALUE",
            "--from-epoch": "classify.from_epochs=[VALUE]",
            "--epochs": "classify.num_epochs=VALUE",
            "--learning-rate": "classify.learning_rate=VALUE",
            "--windows": "classify.windows=VALUE",
            "--min-individuals": "classify.min_individuals=VALUE",
            "--heldout": "split.heldout=VALUE",
            "--save": "classify.save_model=true",
        },
        "report": {"--language": "dossier.languages=['VALUE']"},
        "dossier": {"--language": "dossier.languages=['VALUE']", "--key": "dossier.key=VALUE"},
        "guard build": _COLUMNS,
        "spark index": {**_COLUMNS, **_MAX_N},
        "spark detect": _SEARCHED,
        "spark protect": _SEARCHED,
        "spark tokens": _SEARCHED,
    }
)


def removed_option_message(command: str, option: str) -> str | None:
    """Return the error message for an option that was removed from a command, with the setting that replaces it; None
    if the option was not removed."""
    setting = REMOVED.get(command, {}).get(option)
    if setting is None:
        return None
    quote = '"' if "[" in setting else ""
    return f"{option}: is no option any more; use --set {quote}{setting}{quote}"


# --------------------------------------------------------------------------------------------------------------- below
#
# Commands that are one themselves and have others below them.
#
# ``reticent detect SOURCE`` is a command of its own, so a first word that names one of those below goes to it; a file
# of that name is ``./sample``.


def subcommands_app() -> typer.Typer:
    """Return an empty typer app to hold the subcommands of a command that can also be run by itself."""
    return typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode="rich")


class CommandWithOthers(TyperCommand):
    """A command that runs itself and also has subcommands."""

    app: ClassVar[typer.Typer]

    @cached_property
    def commands(self) -> dict[str, Any]:
        """The subcommands, by name."""
        group: Any = typer.main.get_command(unwrap_help(self.app))
        return dict(group.commands)

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the click context of the subcommand named by the first argument or, if it names none, of the command
        itself."""
        if args and args[0] in self.commands:
            return self.commands[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)
