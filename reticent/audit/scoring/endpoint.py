"""Log-probabilities of tokens from a server of completions (OpenAI's form, which vLLM and llama.cpp speak).

Each window is sent as ids of tokens and comes back with the log-probability of each. So texts leave this machine: only
to the host that was named, never by a redirect or a proxy. Answers are kept by the digest of their window, numbers
alone, and a run that stops asks for what is missing. No text stands in an error or a log.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from reticent.audit.scoring.token_scores import TokenScores, unscored
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import read_json
from reticent.engine.store import TokenStore

if TYPE_CHECKING:
    from reticent.trainer.windows import SpecialIds

__all__ = ["ANSWERS", "ENDPOINT", "check_host", "is_endpoint", "score_endpoint"]

#: File of a model folder that stands for a server; the file of a run that keeps its answers.
ENDPOINT, ANSWERS = "endpoint.json", "endpoint.jsonl"
#: Hosts that are this machine.
HERE = ("localhost", "127.0.0.1", "::1")
#: Variable with the key of a server, if it wants one.
KEY = "RETICENT_ENDPOINT_KEY"
TRIES, SECONDS = 3, 120.0


def check_host(url: str, allowed: str | None) -> str:
    """Return the host of a server.

    Raises
    ------
    PolicyError
        It is another machine, and was not named as one that texts may be sent to; or the address holds a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise PolicyError("subject.endpoint: expected http(s)://HOST/…/v1, without a name, a password or a query")
    if parts.hostname not in HERE and parts.hostname != allowed:
        raise PolicyError(
            f"subject.endpoint: every document would be sent to {parts.hostname}; name it to allow that "
            "(--allow-sending HOST, subject.allow_sending)"
        )
    return parts.hostname


def is_endpoint(folder: Path) -> bool:
    """Whether a model folder stands for a server."""
    return (folder / ENDPOINT).is_file()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _asked(url: str, model: str, ids: list[int]) -> dict[str, Any]:
    """The log-probabilities of the server's first choice."""
    question = {"model": model, "prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    asked = urllib.request.Request(f"{url.rstrip('/')}/completions", json.dumps(question).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    for left in reversed(range(TRIES)):
        try:
            with opener.open(asked, timeout=SECONDS) as answer:
                found = json.loads(answer.read())["choices"][0]["logprobs"]
                return dict(found) if found else {}
        except urllib.error.HTTPError as error:
            if error.code < 500 or not left:
                raise ArtifactError(f"{urlsplit(url).hostname}: the server answers {error.code}") from None
        except (OSError, HTTPException, ValueError, KeyError, IndexError, TypeError) as error:
            if not left:
                kind = type(error).__name__
                raise ArtifactError(f"{urlsplit(url).hostname}: no usable answer of the server ({kind})") from None
        time.sleep(0.2 * 4 ** (TRIES - left))
    raise AssertionError("unreachable")


def _numbers(url: str, model: str, ids: list[int]) -> tuple[list[float], list[float]]:
    """The log-probability of each token but the first, and that of the likeliest there."""
    found = _asked(url, model, ids)
    own, tops = found.get("token_logprobs"), found.get("top_logprobs")
    if not isinstance(own, list) or len(own) < len(ids):
        raise ArtifactError(
            f"{urlsplit(url).hostname}: the server gives no log-probabilities of the tokens it was sent (echo, "
            "logprobs); without them no test by likelihood can be made"
        )
    values = [float(value) if isinstance(value, int | float) else math.nan for value in own[1 : len(ids)]]
    if not all(map(math.isfinite, values)):
        raise ArtifactError(f"{urlsplit(url).hostname}: log-probabilities that are no numbers (NaN or infinite)")
    most = list(values)
    for at, top in enumerate(tops[1 : len(ids)] if isinstance(tops, list) else ()):
        if isinstance(top, dict) and top:
            most[at] = max(most[at], *map(float, top.values()))
    return values, most


def score_endpoint(
    folder: Path,
    store: TokenStore,
    special: SpecialIds,
    window_length: int,
    progress: Callable[[int], None] | None = None,
) -> TokenScores:
    """Return the scores of a store under the model of a server; see `TokenScores`. Entropies are not known, and of the
    likeliest token only whether it is the true one.

    Parameters
    ----------
    folder : model folder with `ENDPOINT`: the address, the name of the model there, and the file of answers

    Raises
    ------
    ArtifactError
        The server gives no answer, or none with log-probabilities that are numbers; the next run goes on from there.
    PolicyError
        Its host was not named.
    """
    from reticent.trainer.windows import cut_windows  # compiled kernels: a run that judges nothing loads none

    about = read_json(folder / ENDPOINT)
    check_host(about["url"], about["host"])
    file = Path(about["answers"])
    known = dict(_kept(file))
    scores = unscored(store.num_tokens)
    windows = cut_windows(store, window_length, special)
    file.touch(mode=0o600)
    with file.open("a", encoding="utf-8") as answers:
        for number in range(len(windows)):
            one = np.array([number])
            ids = windows.gather(one).input_ids[0]
            at = windows.token_positions(one, len(ids))[0]
            ids, at = ids[: np.flatnonzero(at >= 0)[-1] + 1].tolist(), at[: np.flatnonzero(at >= 0)[-1] + 1]
            if len(ids) < 2:
                continue
            digest = hashlib.sha256(json.dumps([about["url"], about["model"], ids]).encode()).hexdigest()
            if digest not in known:
                try:
                    known[digest] = _numbers(about["url"], about["model"], ids)
                except ArtifactError as error:
                    raise ArtifactError(
                        f"{error}; {number:,} of {len(windows):,} windows are scored and kept; the same command goes on"
                    ) from None
                answers.write(json.dumps([digest, *known[digest]]) + "\n")
                answers.flush()
            values, most = (np.array(each, dtype=np.float32) for each in known[digest])
            chosen = at[1:] >= 0
            place, is_top = at[1:][chosen], values[chosen] >= most[chosen]
            true = np.array(ids[1:])[chosen]
            scores["log_probs"][place], scores["top_log_probs"][place] = values[chosen], most[chosen]
            scores["argmax"][place] = np.where(is_top, true, special.pad)  # of another one only that it is another
            scores["rank"][place] = np.where(is_top, 0, 1)
            if progress is not None:
                progress(number + 1)
    return TokenScores(doc_offsets=store.doc_offsets, **scores)


def _kept(file: Path) -> Iterator[tuple[str, tuple[list[float], list[float]]]]:
    """Answers of earlier runs; a line that a kill cut off is asked for again."""
    for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else ():
        try:
            digest, own, most = json.loads(line)
        except ValueError:
            continue
        yield digest, (own, most)
