"""All parts and rows, the most telling first."""

from __future__ import annotations

from studies.reproduction import source1, source2, source3, source4

_PARTS = (*source1.PARTS, *source2.PARTS, *source3.PARTS, *source4.PARTS)
#: In the order in which they are made: the longest last.
PARTS = sorted(_PARTS, key=lambda part: part.name == source1.EXPERIMENT)
_ROWS = (*source1.ROWS, *source2.ROWS, *source3.ROWS, *source4.ROWS)
_PLACES = list(dict.fromkeys((row.source, row.place) for row in _ROWS))
#: A place on another text follows the place.
ROWS = sorted(_ROWS, key=lambda row: _PLACES.index((row.source, row.place)))
TITLES = {
    1: ("The method", "Boutet et al. (2025), Towards the Anonymization of the Language Modeling", source1.ABOUT),
    2: ("Attacks and differential privacy", "a textbook on attacks and differential privacy", source2.ABOUT),
    3: ("Probes", "Kim et al. (2023), ProPILE", source3.ABOUT),
    4: ("Taggers", "Nußbaumer (2023), Identifying Sensitive Information Leakage from Neural Taggers", source4.ABOUT),
}
