"""The random half of the individuals that each shadow model is trained on. Light to import, since planning a job needs
it.

Individuals are drawn by unit (the household, if there is one), from the seed and the shadow's number alone. Shadows
come in pairs, a random half and its complement. So each individual is in exactly half of them, and additional shadows
do not change the earlier ones.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, MEMBERS, SPLITS
from reticent.engine.split import Individuals

_STREAM_SEEDS, _STREAM_POPULATION, _STREAM_PAIRS = 1 << 32, (1 << 32) + 1, (1 << 32) + 2


def draw_half(units: np.ndarray, candidates: np.ndarray, *, seed: int, shadow_number: int) -> np.ndarray:
    """Draw a random half of the units (individuals or households) among ``candidates`` to train a shadow model on;
    return whether each individual is in it, bool (I,).

    Parameters
    ----------
    units : uint32 array, shape (I,), unit of each individual
    candidates : bool array, shape (I,), true for an individual who may be drawn
    """
    pool = np.unique(units[candidates])
    keys = generator(seed, _STREAM_PAIRS + shadow_number // 2).random(int(units.max()) + 1)
    shuffled = pool[np.argsort(keys[pool], kind="stable")]
    half = len(shuffled) // 2
    return candidates & np.isin(units, shuffled[:half] if shadow_number % 2 == 0 else shuffled[half:])


def split_for_shadow(individuals: Individuals, *, seed: int, shadow_number: int) -> Individuals:
    """Return the individuals split for one shadow model: a random half of the real members and of the held-out
    individuals become its members, the rest is held out. Reference individuals stay as they are."""
    candidates = individuals.mask(MEMBERS, HELDOUT)
    drawn = draw_half(individuals.units, candidates, seed=seed, shadow_number=shadow_number)
    sides = individuals.table.column("split").combine_chunks().indices.to_numpy().copy()
    sides[candidates] = np.where(drawn, SPLITS.index(MEMBERS), SPLITS.index(HELDOUT))[candidates]
    column = pa.DictionaryArray.from_arrays(pa.array(sides.astype(np.int8)), pa.array(SPLITS))
    at = individuals.table.column_names.index("split")
    return Individuals(individuals.table.set_column(at, individuals.table.schema.field("split"), column))


def draw_population(units: np.ndarray, heldout: np.ndarray, *, share: float, seed: int) -> np.ndarray:
    """Draw RMIA's reference population, a random share of the held-out units (individuals or households), at least one;
    return whether each individual is in it, bool (I,)."""
    pool = np.unique(units[heldout])
    keys = generator(seed, _STREAM_POPULATION).random(int(units.max()) + 1)
    chosen = pool[np.argsort(keys[pool], kind="stable")][: max(1, round(share * len(pool)))]
    return heldout & np.isin(units, chosen)


def training_seed(seed: int, shadow_number: int) -> int:
    """Return the seed for training a shadow model. It differs from that of the attacked model, which an attacker would
    not know."""
    return int(generator(seed, _STREAM_SEEDS).integers(0, 2**63, shadow_number + 1, dtype=np.int64)[shadow_number])
