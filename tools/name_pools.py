"""Makes `reticent/engine/names.toml`, the realistic names of surrogates, from the lists of Faker (development group).

The pools are part of the package: a run needs no Faker, and another version of Faker changes no run. They are made
without any corpus. A pool keeps single words of three letters and more that begin with a capital and whose letters are
Latin, accents included; of a longer list it keeps a random sample by a fixed seed. Nothing is looked up, and nothing is
left out because somebody bears the name.

    python -m tools.name_pools            # writes the file
    python -m tools.name_pools --check    # compares it with what this version of Faker gives
"""

from __future__ import annotations

import argparse
import importlib
import textwrap
import unicodedata
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "reticent" / "engine" / "names.toml"
SEED = 20_261_123
#: Most names of a pool, and towns that are drawn for a locale without a list of real ones.
MOST = {"women": 600, "men": 600, "surnames": 2000, "places": 1000}
NUM_TOWNS = 4000
#: Language -> locales of individuals' names, and locales of towns.
LOCALES = {
    "de": (("de_DE", "de_AT", "de_CH"), ("de_DE", "de_AT")),
    "en": (("en_US", "en_GB", "en_IE", "en_NZ"), ("en_US", "en_GB")),
    "es": (("es_ES", "es_MX", "es_AR", "es_CO", "es_CL"), ("es_ES", "es_CO")),
    "fr": (("fr_FR", "fr_BE", "fr_CA", "fr_CH"), ("fr_FR", "fr_CA")),
    "it": (("it_IT",), ("it_IT",)),
    "nl": (("nl_NL", "nl_BE"), ("nl_NL",)),
    "pt": (("pt_PT", "pt_BR"), ("pt_PT", "pt_BR")),
}
LISTS = {"women": "first_names_female", "men": "first_names_male", "surnames": "last_names"}
HEAD = """\
# Realistic names for surrogates, by language; made by `python -m tools.name_pools`, not by hand.
# Taken from the lists of Faker {version} (https://github.com/joke2k/faker), which has this licence:
#
{licence}
"""


def main() -> int:
    """Write the file, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 where the file differs")
    made = made_text()
    if not parser.parse_args().check:
        FILE.write_text(made, encoding="utf-8")
        return 0
    same = FILE.read_text(encoding="utf-8") == made
    print("the same" if same else "Faker gives other names than the file holds")
    return 0 if same else 1


def made_text() -> str:
    """Return the text of the file: a table a language, in it a list of words a kind of name."""
    from importlib.metadata import distribution

    faker = distribution("faker")
    licence = next(file for file in faker.files or () if file.name.startswith("LICENSE")).read_text()
    quoted = "\n".join(f"# {line}".rstrip() for line in licence.strip().splitlines())
    parts = [HEAD.format(version=faker.version, licence=quoted)]
    for language, (locales, towns) in LOCALES.items():
        pools = {kind: _of_persons(locales, attribute) for kind, attribute in LISTS.items()}
        pools["places"] = _of_towns(towns)
        parts.append(f"\n[{language}]\n")
        parts += [f'{kind} = """\n{_wrapped(_sample(names, MOST[kind]))}\n"""\n' for kind, names in pools.items()]
    return "".join(parts)


def _of_persons(locales: tuple[str, ...], attribute: str) -> set[str]:
    providers = (importlib.import_module(f"faker.providers.person.{locale}").Provider for locale in locales)
    return {name for provider in providers for name in getattr(provider, attribute) if _fits(name)}


def _of_towns(locales: tuple[str, ...]) -> set[str]:
    from faker import Faker

    found = set()
    for locale in locales:
        faker = Faker(locale)
        faker.seed_instance(SEED)
        provider = importlib.import_module(f"faker.providers.address.{locale}").Provider
        towns = getattr(provider, "cities", None) or (faker.city() for _ in range(NUM_TOWNS))
        # French towns are mostly of several words ("Saint-Émile-sur-Mer"); elsewhere such words are articles.
        words = (town.replace("-", " ").split() if locale.startswith("fr") else [town] for town in towns)
        found |= {word for each in words for word in each if _fits(word) and word[1:].islower()}
    return found


def _fits(name: str) -> bool:
    plain = "".join(c for c in unicodedata.normalize("NFD", name.lower()) if not unicodedata.combining(c))
    return len(name) >= 3 and name.isalpha() and name[0].isupper() and not name.isupper() and plain.isascii()


def _sample(names: set[str], most: int) -> list[str]:
    """At most this many of the names, in the order of their code points."""
    ordered = sorted(names)
    if len(ordered) <= most:
        return ordered
    chosen = np.random.default_rng(SEED).choice(len(ordered), most, replace=False)
    return [ordered[at] for at in sorted(chosen)]


def _wrapped(names: list[str]) -> str:
    return textwrap.fill(" ".join(names), 118, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    raise SystemExit(main())
