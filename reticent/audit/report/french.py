"""The report in French: the English page with every text and every alternative text put into French.

The English strings stand in the templates and in the modules that make sentences; ``fr.toml`` has the French of each,
and what the dossier says too comes from the dossier's ``fr.toml``. A key matches a text as a whole, or a sentence of
it. Its placeholders say what may stand there:

- ``{n…}``: a number, which is written the French way;
- ``{name…}``: a name of the evidence, or "A of B" of two of them; ``{names…}``: a list of them;
- ``{text…}``: a text that has its own French;
- ``{source}``: authors and year.

A text without French keeps its English and is marked as English, since a report at the end of a long run is not
withheld for a word; a test holds every string of the templates and of filled pages to this table.
"""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from reticent.audit.language import NO_BREAK, THIN, french, spaced
from reticent.audit.report.figure import printable

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence

__all__ = ["FrenchPage", "french_strings", "names_of"]

NUMBER = r"[−–-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?: %)?"
PATTERNS = {"n": NUMBER, "name": r"\S.*?", "names": r"\S.*?", "text": r"\S.*?", "source": r"[^()]+ \d{4}"}
#: Elements whose texts are no sentences.
VERBATIM = ("style", "code", "script")
SENTENCE = re.compile(r"(?<=[.?!…])(?<!et al\.) ")
#: What sets parts of a text off, and what does so in French.
PARTED = (
    (SENTENCE, " "),
    *((re.compile(each), f"{own}{each}") for each, own in (("; ", THIN), (" · ", ""), (", ", ""))),
)
TAG = re.compile(r"<[^>]*>")
SPOKEN = re.compile(r'(?<= )((?:aria-label|alt|title)=")([^"]*)(?=")')


@cache
def french_strings() -> dict[str, str]:
    """Return English -> French of the report; whole strings of the dossier are among them."""
    own: dict[str, str] = tomllib.loads((files("reticent.audit.report") / "fr.toml").read_text(encoding="utf-8"))
    return {**{english: text for english, text in french().items() if "{" not in english}, **own}


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Keys with placeholders, those with the most text of their own first."""
    keyed = [english for english in french_strings() if "{" in english]
    keyed.sort(key=lambda english: -len(re.sub(r"\{\w+\}", "", english)))
    return [(_pattern(english), french_strings()[english]) for english in keyed]


def _pattern(english: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", english)
    for place in range(1, len(parts), 2):
        kind = re.sub(r"\d*$", "", parts[place])
        parts[place] = f"(?P<{parts[place]}>{PATTERNS[kind]})"
    parts[::2] = [re.escape(part) for part in parts[::2]]
    return re.compile("".join(parts), re.DOTALL)


def names_of(audit: AuditEvidence) -> set[str]:
    """Return the names in a published audit, which no language changes: models, recipes, attacks, detectors, labels."""
    found: set[str | None] = set()
    for model in audit.models:
        attacks = {name for kind in (model.by_kind or {}).values() for name in kind.attacks}
        found |= {model.model, model.recipe, model.objective, *model.membership, *attacks}
    for detected in audit.corpus.detected or ():
        found |= {detected.label, detected.detector}
    for result in audit.classification or ():
        found |= {result.model, *(row.recipe for row in result.results)}
    if audit.sampled_recall:
        found |= set(audit.sampled_recall.categories)
    for extracted in audit.extraction.models if audit.extraction else ():
        found |= {extracted.model, extracted.recipe}
    for probed in audit.probe.models if audit.probe else ():
        found.add(probed.name)
        for row in probed.results:
            asked = row.target.replace("_", " ")
            found |= {asked, row.level, *(name.replace("_", " ") for name in row.counts)}
    names = {name for name in found if name}
    return names | {printable(name) for name in names}


class FrenchPage:
    """Puts a page into French, and keeps the texts for which there is none.

    Parameters
    ----------
    names : names from the evidence, which have no translation: recipes, models, attacks, labels
    """

    def __init__(self, names: Iterable[str] = ()):
        self.names = {name for name in names if name}
        self.missing: list[str] = []
        self._known: dict[str, str | None] = {}

    def __call__(self, page: str) -> str:
        """Return the page in French; its tags, ids and figures are the same."""
        return "".join(self._parts(page)).replace('<html lang="en">', '<html lang="fr">', 1)

    def _parts(self, page: str) -> Iterator[str]:
        end, verbatim = 0, 0
        for tag in TAG.finditer(page):
            before = page[end : tag.start()]
            yield before if verbatim else self._in_place(before)
            end, was_verbatim = tag.end(), verbatim
            name = re.match(r"</?([\w-]+)", tag[0])
            if name and tag[0].startswith("</"):
                verbatim -= bool(verbatim)
            elif name and not tag[0].endswith("/>"):
                # Inside of what stays as it is, every element is counted until it is closed.
                starts = (
                    name[1] in VERBATIM or 'translate="no"' in tag[0] or (' lang="' in tag[0] and name[1] != "html")
                )
                verbatim += bool(verbatim or starts)
            yield tag[0] if was_verbatim else SPOKEN.sub(self._spoken, tag[0])
        yield page[end:]

    def _spoken(self, found: re.Match[str]) -> str:
        english = html.unescape(found[2]).replace(NO_BREAK, " ")
        text = self.translated(english)
        if text is None:
            self.missing.append(english)
        return f"{found[1]}{html.escape(text if text is not None else english)}"

    def _in_place(self, text: str) -> str:
        """A text between two tags, with the blanks around it."""
        bare = text.strip(" \n\t")
        if not bare:
            return text
        english = re.sub(rf"[ \n\t{NO_BREAK}]+", " ", html.unescape(bare))
        own = self.translated(english)
        if own is None:
            self.missing.append(english)
            shown = f'<span lang="en">{bare}</span>'
        else:
            shown = html.escape(own, quote=False)
        start = text.index(bare)
        return text[:start] + shown + text[start + len(bare) :]

    def translated(self, english: str) -> str | None:
        """Return the French of a text, whole or sentence by sentence; None where there is none."""
        if english not in self._known:
            self._known[english] = self._whole(english) or self._by_sentence(english)
        return self._known[english]

    def _whole(self, english: str) -> str | None:
        if english in french_strings():
            return spaced(french_strings()[english])
        if english in self.names:
            return english
        if not re.search(r"[A-Za-z]", re.sub(r"\d[\d.]*e[+-]?\d+", "", english)):
            return _numbers(english)
        for pattern, text in _patterns():
            if (found := pattern.fullmatch(english)) and (values := self._values(found.groupdict())) is not None:
                return spaced(text.format(**values))
        return None

    def _by_sentence(self, english: str) -> str | None:
        for separator, joined in PARTED:
            parts = separator.split(english)
            if len(parts) > 1:
                found = [self.translated(part) for part in parts]
                if None not in found:
                    return joined.join(filter(None, found))
        return None

    def _values(self, groups: dict[str, str]) -> dict[str, str] | None:
        values: dict[str, str] = {}
        for name, value in groups.items():
            kind = re.sub(r"\d*$", "", name)
            if kind == "text":
                text = self.translated(value)
                if text is None:
                    return None
                values[name] = text
            elif kind in ("name", "names"):
                names = [value] if kind == "name" else re.split(r", | and ", value)
                if not all(map(self._is_name, names)):
                    return None
                values[name] = value.replace(" and ", " et ").replace(" of ", " de ")
            else:
                values[name] = _numbers(value) if kind == "n" else value
        return values

    def _is_name(self, text: str) -> bool:
        return text in self.names or all(part in self.names for part in text.split(" of ", 1))


def _numbers(text: str) -> str:
    """Numbers with a decimal comma, and a thin space between thousands."""

    def written(found: re.Match[str]) -> str:
        return found[0].replace(",", THIN).replace(".", ",")

    text = re.sub(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w,])|(?<![\w.])\d+\.\d+(?![\w.])", written, text)
    return re.sub(r"(?<=\d) %", f"{NO_BREAK}%", text)
