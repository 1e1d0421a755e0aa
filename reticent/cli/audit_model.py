"""The command ``reticent audit-model``, which audits a model that was trained elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reticent.audit.membership.names import COVERAGE, STATES
from reticent.cli.options import AsJson, Detector, Out, Quiet, Set, is_job, job_from_source
from reticent.cli.runs import execute_job
from reticent.core.errors import PolicyError
from reticent.job.config.job import BY_LOG_PROBS
from reticent.trainer.given import is_headless, local_folder, objective_of, positions_of

#: Tokens of a whole passage with the longest prefix that is asked for: a model that reads fewer is not asked.
WHOLE = 100
#: A list of members that is a column of the documents.
COLUMN = "column:"


def audit_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder of weights (safetensors, GGUF, an adapter of peft), or a hub name.",
        ),
    ],
    documents: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Documents of people it was trained on and of others: file, folder or glob.",
        ),
    ],
    statement: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Where the list of members comes from and who says so; it is printed on every page. Nothing verifies "
            "the list, and a wrong one only hides leaks.",
        ),
    ],
    out: Out,
    members: Annotated[
        str | None,
        typer.Option(
            metavar="LIST|column:NAME",
            help="Who was trained on, or --others: a text file with the id of one individual a line, or a column of "
            "the documents (true or false).",
        ),
    ] = None,
    others: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="In place of --members: documents of people it was not trained on, where those of --documents all "
            "were.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model that it was trained from: the control of every attack. Without it few attacks can be made, "
            "and less is shown.",
        ),
    ] = None,
    also: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Copies to judge beside it, separated by commas, in one table: merged (rounded as the base is "
            "stored), int8 (eight bits a weight), or NAME=FOLDER.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask a server of completions with log-probabilities, http(s)://HOST/v1, where MODEL is the name of "
            "the model: every document is sent to it. --base gives the tokenizer.",
        ),
    ] = None,
    allow_sending: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="With --endpoint: the host that documents may be sent to."),
    ] = None,
    detector: Detector = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Audit a model that was trained elsewhere, from its files and a list of who it was trained on.

    No training, and no run before it. Attacks that need a training of one's own are not made, each with its reason on
    the page, so the best verdict is "nothing found". Nothing is sent anywhere but to an --endpoint; weights in pickle
    and code of the model are never read.
    """
    if is_job(documents):
        raise PolicyError(
            f"{documents}: has settings of its own; name the model in its table [subject], and use `reticent run`"
        )
    if not endpoint:
        local_folder(model, "MODEL")
    elif base is None:
        raise PolicyError("--endpoint: needs --base, whose tokenizer cuts the texts")
    objective = objective_of(base if endpoint and base else model, base)
    subject: dict[str, Any] = {"model": model, "base": base, "statement": statement, "others": others}
    if objective is None and not any(each.startswith("subject.objective=") for each in settings or []):
        raise PolicyError(
            f"{model}: its files do not say whether it fills in masked words or continues a text: --set "
            "subject.objective=mlm or clm"
        )
    subject["objective"] = objective or "clm"
    subject |= {"endpoint": endpoint, "allow_sending": allow_sending}
    subject["also"] = dict(_parse_copy(each) for each in also.split(",")) if also else {}
    if members is not None:
        is_column = members.startswith(COLUMN)
        subject["column" if is_column else "members"] = members.removeprefix(COLUMN)
    sections: dict[str, dict[str, Any]] = {"subject": subject, "audit": {"inversion": {}}}
    if endpoint:
        sections["audit"] = {"attacks": [*BY_LOG_PROBS, COVERAGE]}
    positions = positions_of(model, base)
    if positions:
        sections["train"] = {"window_length": min(512, positions - bool(endpoint))}  # a server writes a token
    if subject["objective"] == "clm":
        sections["audit"]["generation"] = {}
        if not positions or positions > WHOLE:
            sections["extraction"] = {"prefix_tokens": [10, 50], **({"num_queries": []} if endpoint else {})}
    if not endpoint and is_headless(model):
        sections["audit"] = {"attacks": [STATES]}
        sections.pop("extraction", None)
    job = job_from_source(documents, out, detector, marked=True, sections=sections, settings=settings)
    execute_job(job, "report", quiet, as_json)


def _parse_copy(text: str) -> tuple[str, str]:
    """Return (name, folder) of a copy of the model from a text NAME=FOLDER. A text without "=" is both."""
    name, _, folder = text.strip().partition("=")
    return name, folder or name
