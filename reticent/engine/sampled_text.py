"""A sample of the documents as numbers, to which tokens are held where they are made.

Text, spans, index and tokenizer are read once (:mod:`reticent.engine.text_sample`). From the numbers the protection by
any k, n and policy is worked out, so a view with another is held to the same documents with no text and no tokenizer.
No character of a text is among them, but where its words, tokens, spans and blanks stand, which words are spelt alike,
supports, and ids of tokens: they are as sensitive as the rest of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.protection import DocumentWords, Seen
from reticent.engine.oracle.tokens import Comparison, Protected, ReadTexts, Spans, TextCheck, TokenisedText

if TYPE_CHECKING:
    from reticent.engine.protect import Policy
    from reticent.engine.store import TokenStore

__all__ = ["SampledText", "open_sampled_text"]

#: Documents of a sample, and characters of them that are looked at.
NUM_DOCUMENTS, NUM_CHARACTERS = 200, 200_000
#: One row, a list in each column.
FILE = "sample.arrow"
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledText:
    """The documents of a sample as numbers.

    Attributes
    ----------
    words, units, seen, spans, supports, num_units : as `Protected.by` takes them; no supports where none protect
    read : their visible characters and their tokens
    store_rows : the documents of the store that they are
    """

    words: DocumentWords
    units: np.ndarray
    seen: Seen
    spans: Spans
    supports: list[np.ndarray]
    num_units: int
    read: ReadTexts
    store_rows: np.ndarray

    def check(self, store: TokenStore, policy: Policy) -> TextCheck:
        """Compare the tokens of these documents with what the policy protects of their text.

        Raises
        ------
        ArtifactError
            The sample has no supports of n-grams as long as the policy looks at.
        """
        supports = self.supports[: policy.n]
        if 0 < len(supports) < policy.n:
            raise ArtifactError(f"a sample of the text with n-grams of up to {len(supports)} words, not {policy.n}")
        protected = Protected.by(policy, self.words, self.units, self.seen, self.spans, supports, self.num_units)
        comparison = Comparison(store)
        comparison.add(self.store_rows, self.read, protected)
        return comparison.result(whole=False)

    def write(self, folder: Path) -> None:
        """Write it to a folder."""
        texts = {"span_names": pa.array(self.spans.names, pa.string()), "doc_ids": self.read.doc_ids.cast(pa.string())}
        lists = {**{name: pa.array(values) for name, values in self._numbers().items()}, **texts}
        row = pa.record_batch({name: pa.ListArray.from_arrays([0, len(items)], items) for name, items in lists.items()})
        with (
            pa.OSFile(str(folder / FILE), "wb") as file,
            pa.ipc.new_stream(file, row.schema, options=COMPRESSED) as writer,
        ):
            writer.write_batch(row)

    def _numbers(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.words, name) for name in DocumentWords.__slots__},
            **{f"seen_{name}": values for name, values in self.seen._asdict().items()},
            **{f"span_{name}": values for name, values in self.spans._asdict().items() if name != "names"},
            **{f"token_{name}": values for name, values in self.read.tokens._asdict().items()},
            **{f"support_{n}": values for n, values in enumerate(self.supports, 1)},
            "is_visible": self.read.is_visible,
            "cut_starts": self.read.cut[0],
            "cut_ends": self.read.cut[1],
            "units": self.units,
            "num_units": [self.num_units],
            "store_rows": self.store_rows,
        }


def open_sampled_text(folder: Path) -> SampledText:
    """Return what `SampledText.write` wrote to a folder.

    Raises
    ------
    ArtifactError
        There is none, or it cannot be read.
    """
    try:
        with pa.memory_map(str(folder / FILE)) as file:
            row = pa.ipc.open_stream(file).read_next_batch()
        lists = {name: column[0].values for name, column in zip(row.schema.names, row.columns, strict=True)}
        names, doc_ids = lists.pop("span_names").to_pylist(), lists.pop("doc_ids")
        values = {name: column.to_numpy(zero_copy_only=False) for name, column in lists.items()}
        taken = partial(_with_prefix, values)
        return SampledText(
            words=DocumentWords(**{name: values[name] for name in DocumentWords.__slots__}),
            units=values["units"],
            seen=Seen(**taken("seen_")),
            spans=Spans(**taken("span_"), names=names),
            supports=list(taken("support_").values()),
            num_units=int(values["num_units"][0]),
            read=ReadTexts(
                doc_ids,
                values["is_visible"],
                (values["cut_starts"], values["cut_ends"]),
                TokenisedText(**taken("token_")),
            ),
            store_rows=values["store_rows"],
        )
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration) as error:
        raise ArtifactError(f"{folder}: a sample that cannot be read ({type(error).__name__})") from None


def _with_prefix(values: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): column for name, column in values.items() if name.startswith(prefix)}
