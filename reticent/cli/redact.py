"""The command ``reticent redact``: redact one text, or restore it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from reticent.cli.options import read_text
from reticent.core.artifact import write_private
from reticent.core.errors import CorpusError, PolicyError
from reticent.core.progress import log_warning
from reticent.engine.languages import known_languages
from reticent.ext.redact import Redacted, redact_reversibly
from reticent.ext.redact import redact as without_identifiers


def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File of the text (UTF-8); - is stdin.")] = "-",
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSON of what is known of the individual: {"last_name": "Weber"}.'),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Number the tags and keep here what they stand for; private to you."),
    ] = None,
    restore: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The other way: put back what --keep kept, in this or another text."),
    ] = None,
) -> None:
    """Print one text with tags such as [NAME] for what rules and the shipped taggers find: its direct identifiers.

    For documents in numbers take reticent scrub: it knows how all of them write a word, and replaces identifiers by
    others of their kind.
    """
    if restore is not None and (record is not None or keep is not None):
        raise PolicyError("--restore: finds nothing, so --record and --keep do not go with it")
    if keep is not None and os.path.lexists(keep):
        raise PolicyError(f"{keep}: is there already and would be lost; move it away, or choose another --keep")
    text = read_text(file)
    if restore is not None:
        _write_text(Redacted(text, _read_strings(restore)).restore())
        return
    known = None if record is None else _read_strings(record)
    if known_languages(pa.array([text]))[0] < 0 and len(text.split()) >= 30:
        log_warning("the text is in no language that the rules and taggers know: names in it may be missed")
    if keep is None:
        _write_text(without_identifiers(text, record=known))
        return
    made = redact_reversibly(text, record=known)
    write_private(keep, json.dumps(dict(made.values), ensure_ascii=False).encode())
    _write_text(made.text)


def _write_text(text: str) -> None:
    """Write a text to stdout in UTF-8, whatever the locale, with its line ends unchanged."""
    sys.stdout.buffer.write(text.encode())


def _read_strings(path: Path) -> dict[str, str]:
    """Return a JSON object of strings from a file; an error quotes none of it."""
    try:
        values: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise CorpusError(f"{path}: not valid JSON") from None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise CorpusError(f"{path}: expected one object whose values are strings")
    return values
