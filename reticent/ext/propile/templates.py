"""Templates of ProPILE's prompts and types of personal items; they are checked before a model is loaded.

The built-in ones are ``propile.toml``; a user's file has the same form, or one template a line (text). A
template with a field that no column fills is refused by name; text of a subject never stands in a message.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reticent.core.errors import PolicyError, cause
from reticent.core.json_toml import read_toml
from reticent.core.names import plain_name

#: Level -> items of the subject in the prompt beside the name.
LEVELS = {"twin": 0, "triplet": 1, "quadruplet": 2}
BUILTIN = Path(__file__).parent / "propile.toml"
#: Tokens that a prompt may generate for a type that the file does not know.
DEFAULT_NEW_TOKENS = 20
#: Tokens that an answer may have before the item: ": ", "is", an article.
LEAD = 4
#: Fields that are no item of the subject: names of types, and the kind of a relative.
NOT_ITEMS = frozenset({"name", "target_pii_type", "pii_1_type", "pii_2_type", "relationship"})
OTHER_ITEMS = ("pii_1", "pii_2")
#: Fields that are filled with any names of columns.
FIXED_FIELDS = frozenset({"target_pii_type", *OTHER_ITEMS, *(f"{item}_type" for item in OTHER_ITEMS)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiType:
    """A type of personal item: its names in prompts by language, the word that initialises a soft prompt, and the
    number of tokens to generate."""

    name: str
    called: dict[str, str]
    word: str
    max_new_tokens: int
    columns: tuple[str, ...] = ()

    def label(self, language: str) -> str:
        """Return the name of the item type in a prompt of this language (English if there is none)."""
        return self.called.get(language) or self.called["en"]


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with fields, which the target item completes; without ``targets`` it fits types that no other names.

    >>> Template("The {target_pii_type} of {name} is ").level
    'twin'
    >>> Template("{name} lives at {address}, {zip} {city}").num_items
    3
    """

    text: str
    language: str = "en"
    targets: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the template's fields, such as ``name`` or ``pii_1``, in order without repeats."""
        try:
            parts = list(string.Formatter().parse(self.text))
        except ValueError as error:
            raise PolicyError(f"template {self.text!r}: {error}") from None
        for _, name, spec, conversion in parts:
            if name is not None and (not name.isidentifier() or spec or conversion):
                raise PolicyError(f"template {self.text!r}: expected fields like {{name}}, got {{{name}}}")
        return tuple(dict.fromkeys(name for _, name, _, _ in parts if name is not None))

    @property
    def num_items(self) -> int:
        """Number of the subject's items in the prompt, without the name."""
        return sum(field not in NOT_ITEMS for field in self.fields)

    @property
    def level(self) -> str:
        """How many of the subject's items the prompt gives besides the name: "twin" (0), "triplet" (1) or "quadruplet"
        (2 or more).
        """
        return list(LEVELS)[min(self.num_items, 2)]


@cache
def _types() -> dict[str, PiiType]:
    """Return name -> built-in item type."""
    return {
        name: PiiType(
            name=name,
            called={language: about[language] for language in ("en", "fr") if language in about},
            word=about["word"],
            max_new_tokens=about["max_new_tokens"],
            columns=tuple(about["columns"]),
        )
        for name, about in read_toml(BUILTIN)["types"].items()
    }


def _known_type(wanted: str) -> PiiType | None:
    """Return the built-in item type with this name or column name; None if there is none."""
    return next((known for known in _types().values() if wanted in (known.name, *known.columns)), None)


def is_known(column: str) -> bool:
    """Return whether a column name is that of a built-in item type."""
    return _known_type(plain_name(column)) is not None


def pii_type(column: str) -> PiiType:
    """Return the item type of a column name: the built-in one that has it, else a new type with this name."""
    if (known := _known_type(plain_name(column))) is not None:
        return known
    wanted = column.lower()
    spoken = wanted.replace("_", " ")
    return PiiType(
        name=wanted, called={"en": spoken}, word=spoken.split()[-1] if spoken.split() else wanted,
        max_new_tokens=DEFAULT_NEW_TOKENS,
    )  # fmt: skip


def new_tokens(target: str, longest: int) -> int:
    """Return how many tokens to generate for an item type: the number published for it, or more if the longest item, of
    ``longest`` tokens, needs more.

    >>> new_tokens("phone", 5), new_tokens("phone", 14)
    (12, 18)
    """
    return max(pii_type(target).max_new_tokens, longest + LEAD)


@cache
def builtin_templates() -> tuple[Template, ...]:
    """Return every built-in template."""
    return tuple(_parse_templates(read_toml(BUILTIN)["template"], BUILTIN.name))


def read_templates(path: Path | str) -> tuple[Template, ...]:
    """Read a user's templates: TOML like the built-in file, or a text file with one template a line (# for comments).

    Raises
    ------
    PolicyError
        The file cannot be read, has no template, or one that is not well formed.
    """
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read ({cause(error)})") from None
    if path.suffix == ".toml":
        found = _parse_templates(read_toml(path).get("template", []), str(path))
    else:
        lines = (line.rstrip("\n") for line in content.splitlines())
        found = [Template(line) for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise PolicyError(f"{path}: no template in it")
    for template in found:
        _ = template.fields
    return tuple(found)


def _parse_templates(groups: Any, where: str) -> list[Template]:
    """Return the templates in parsed [[template]] tables; raise `PolicyError` for unknown keys or types."""
    if not isinstance(groups, list):
        raise PolicyError(f"{where}: expected [[template]] tables")
    found = []
    for group in groups:
        unknown = set(group) - {"language", "targets", "texts"}
        if unknown:
            raise PolicyError(
                f"{where}: unknown key {sorted(unknown)[0]!r} in [[template]]; use language, targets, texts"
            )
        texts, targets = group.get("texts", []), group.get("targets", [])
        if (
            not all(isinstance(t, str) for t in (*texts, *targets))
            or isinstance(texts, str)
            or isinstance(targets, str)
        ):
            raise PolicyError(f"{where}: texts and targets must be lists of strings")
        found += [Template(text, group.get("language", "en"), tuple(targets)) for text in texts]
    return found


def require_fields(templates: Iterable[Template], columns: Sequence[str]) -> None:
    """Raise `PolicyError` if a template has a field that is neither built in nor a column of the subjects."""
    known = FIXED_FIELDS | set(columns)
    for template in templates:
        for field in template.fields:
            if field not in known:
                raise PolicyError(
                    f"template {template.text!r}: unknown field {{{field}}}; expected a column of the subjects "
                    f"({', '.join(sorted(columns))}) or {', '.join(sorted(FIXED_FIELDS))}"
                )


def templates_for(
    templates: Iterable[Template], target: str, level: str, columns: Sequence[str], *, language: str | None = None
) -> list[Template]:
    """Return the templates that ask for an item type (``target``) at a level (number of other items given) and whose
    fields are all among ``columns``. If some of these templates are written for this type alone, return only those.

    If a template names the type, templates for any type are left out. So are templates of another language, and those
    that hold the target.
    """
    known = FIXED_FIELDS | set(columns)
    fitting = [
        t
        for t in templates
        if t.level == level
        and (language is None or t.language == language)
        and (not t.targets or target in t.targets)
        and target not in t.fields
    ]
    usable = [t for t in fitting if t.targets] or fitting
    return [t for t in usable if known.issuperset(t.fields)]
