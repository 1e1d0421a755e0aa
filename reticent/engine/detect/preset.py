"""Presets: named choices of detectors for a hospital that has no model of its own.

"fast" is all that needs no other package: rules, the taggers that are shipped, the records and lists that are given,
and what is found once is found wherever else it stands. "thorough" adds another trained model.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

PRESETS: Final = ("fast", "thorough")
_ALWAYS: Final = ("rules", "shipped")
#: They go with a preset where they have options.
_WHERE_GIVEN: Final = ("records", "gazetteer")
_TRAINED: Final = ("spacy", "transformers")


def expand_preset(preset: str, options: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the detectors in a preset ("fast" or "thorough"), in order, and the options of each.

    The NER of "thorough" is the one that has options, ``detect.spacy`` or ``detect.transformers``; else the one
    pipeline of spaCy that is installed. It sees a passage at a time (``passages``), and its names are looked at with
    what the corpus says of their words (``guard``).

    Raises
    ------
    ValueError
        There is no such preset, or "thorough" has no trained NER, or a choice of several.

    >>> expand_preset("fast", {"records": {"table": "r.csv"}})
    (['rules', 'shipped', 'records'], {'records': {'table': 'r.csv'}})
    """
    if preset not in PRESETS:
        raise ValueError(f"preset: expected {' or '.join(PRESETS)}")
    tables: dict[str, Any] = {name: dict(table) for name, table in options.items()}
    trained = [name for name in _TRAINED if name in tables]
    if preset == "thorough" and not trained:
        tables["spacy"] = {"pipeline": _installed_pipeline()}
        trained = ["spacy"]
    if preset == "thorough":
        for name in trained:
            tables[name] = {"passages": True} | ({"guard": True} if name == "spacy" else {}) | tables[name]
    given = [name for name in _WHERE_GIVEN if name in tables]
    more = [name for name in tables if name not in (*_ALWAYS, *given, *trained)]
    return [*_ALWAYS, *given, *trained, *more], tables


def _installed_pipeline() -> str:
    """Return the name of the only installed spaCy pipeline, without importing it, or raise `ValueError`."""
    installed = sorted({point.name for point in entry_points(group="spacy_models")})
    if len(installed) == 1:
        return installed[0]
    some = f"several are installed: {', '.join(installed)}" if installed else "no pipeline of spaCy is installed"
    raise ValueError(
        'preset = "thorough" needs a trained NER, detect.spacy.pipeline = "NAME OR FOLDER" or '
        f'detect.transformers.model = "FOLDER"; {some}. preset = "fast" needs none'
    )
