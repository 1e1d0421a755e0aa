"""Token log-probabilities and generated text from a completions server (OpenAI's API, as of vLLM and llama.cpp).

Each window is sent as token ids and comes back with the log-probability of each token; a prompt comes back continued.
So texts leave this machine: only to the host that was named, never by a redirect or a proxy. Answers (numbers and ids
alone) are cached by the digest of the request, so a run that was stopped requests only what is missing. No text appears
in an error or a log.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from reticent.audit.scoring.token_scores import TokenScores, unscored_arrays
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import read_json
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.base_files import positions_in

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from reticent.trainer.windows import SpecialIds

#: File of a model folder that represents a server; file of a run that caches the server's answers.
ENDPOINT, ANSWERS = "endpoint.json", "endpoint.jsonl"
#: Names of this machine, to which texts may be sent.
HERE = ("localhost", "127.0.0.1", "::1")
#: Environment variable with the server's API key, if it needs one.
KEY = "RETICENT_ENDPOINT_KEY"
TRIES, SECONDS = 3, 120.0
GOES_ON = "what was answered is kept; the same command goes on"
#: Largest value of a log-probability that is still taken for rounding of 0.
ROUNDING = 1e-3


def check_host(url: str, allowed: str | None) -> str:
    """Return the host name in a server's address; raise `PolicyError` unless it is this machine or ``allowed``, the one
    host to which documents may be sent.

    Raises
    ------
    PolicyError
        It is another machine, and was not named as one that texts may be sent to; or the address holds a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise PolicyError("subject.endpoint: expected http(s)://HOST/…/v1, without a name, a password or a query")
    if parts.hostname not in HERE and parts.hostname != allowed:
        raise PolicyError(
            f"subject.endpoint: every document would be sent to {parts.hostname}; name it to allow that "
            "(--allow-sending HOST, subject.allow_sending)"
        )
    return parts.hostname


def is_endpoint(folder: Path) -> bool:
    """Whether a model folder has no weights but a file `ENDPOINT` with the address of a server that runs the model."""
    return (folder / ENDPOINT).is_file()


def _context_length(folder: Path) -> int:
    """Return the context length of the base model, in tokens, from the folder's config; 2^30 if unknown."""
    return positions_in(folder) or 1 << 30


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, so that no redirect is followed."""


def _completions(url: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices in a server's answer to a completions request; raise `ArtifactError` if `TRIES` attempts give
    none. Between them it waits as long as a busy server asks for (``Retry-After``), at most `SECONDS`."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    asked = urllib.request.Request(f"{url.rstrip('/')}/completions", json.dumps(question).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
    for left in reversed(range(TRIES)):
        seconds = 0.2 * 4 ** (TRIES - left)
        try:
            with opener.open(asked, timeout=SECONDS) as answer:
                return [dict(choice) for choice in json.loads(answer.read())["choices"]]
        except urllib.error.HTTPError as error:
            if (error.code < 500 and error.code != 429) or not left:  # 429: too many requests
                raise ArtifactError(f"{urlsplit(url).hostname}: the server answers {error.code}") from None
            wanted = error.headers.get("Retry-After", "")
            seconds = max(seconds, min(SECONDS, int(wanted)) if wanted.isdecimal() else 0)
        except (OSError, HTTPException, ValueError, KeyError, IndexError, TypeError) as error:
            if not left:
                kind = type(error).__name__
                raise ArtifactError(f"{urlsplit(url).hostname}: no usable answer of the server ({kind})") from None
        time.sleep(seconds)
    raise AssertionError("unreachable")


def _token_log_probs(url: str, model: str, ids: list[int]) -> tuple[list[float], list[float]]:
    """Return two lists from a server: the log-probability of each token but the first, and that of the likeliest token
    at the same position; raise `ArtifactError` if it gives none."""
    question = {"model": model, "prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    found = next(iter(_completions(url, question)), {}).get("logprobs")
    own, tops = (found.get(name) if isinstance(found, dict) else None for name in ("token_logprobs", "top_logprobs"))
    if not isinstance(own, list) or len(own) < len(ids):
        raise ArtifactError(
            f"{urlsplit(url).hostname}: the server gives no log-probabilities of the tokens it was sent (echo, "
            "logprobs); without them no test by likelihood can be made"
        )
    values = list(map(_log_prob, own[1 : len(ids)]))
    most = list(values)
    for at, top in enumerate(tops[1 : len(ids)] if isinstance(tops, list) else ()):
        if isinstance(top, dict) and top:
            most[at] = max(most[at], *map(_log_prob, top.values()))
    if not all(map(math.isfinite, values + most)):
        raise ArtifactError(f"{urlsplit(url).hostname}: log-probabilities that are no numbers (NaN or infinite)")
    return values, most


def _log_prob(value: Any) -> float:
    """Return a log-probability in a server's answer as a float; infinity if it is no number, NaN, or above 0 by more
    than rounding."""
    is_one = isinstance(value, int | float) and value < ROUNDING
    return float(value) if is_one else math.inf


def _cached_log_probs(request: dict[str, Any], ids: list[int], cache: dict[str, Any], cache_file: IO[str]) -> Any:
    """Return the result of `_token_log_probs` for these token ids from ``cache``; if it is not there, ask the server
    and add its answer to the cache and its file."""
    digest = hashlib.sha256(json.dumps([request["url"], request["model"], ids]).encode()).hexdigest()
    if digest not in cache:
        cache[digest] = _token_log_probs(request["url"], request["model"], ids)
        cache_file.write(json.dumps([digest, *cache[digest]]) + "\n")
        cache_file.flush()
    return cache[digest]


def score_endpoint(
    folder: Path,
    store: TokenStore,
    special: SpecialIds,
    window_length: int,
    progress: Callable[[int], None] | None = None,
) -> TokenScores:
    """Return the scores of a store's tokens under the model on a server. Entropies are unknown, and so is the likeliest
    token if it is not the true one. All tokens are unscored if the server gives no log-probabilities.

    Parameters
    ----------
    folder : model folder with `ENDPOINT`: the address, the name of the model there, and the cache file of answers
    window_length : largest number of tokens in a window; capped at the base model's positions less one, as a server
        generates one token after it

    Raises
    ------
    ArtifactError
        The server gives no answer, or none with finite log-probabilities; the next run continues from the cache.
    PolicyError
        Texts may not be sent to its host.
    """
    from reticent.trainer.windows import cut_windows  # compiled kernels: a run that judges nothing loads none

    about = read_json(folder / ENDPOINT)
    check_host(about["url"], about["host"])
    file = Path(about["answers"])
    known = dict(_cached_answers(file))
    scores = unscored_arrays(store.num_tokens)
    if not about["log_probs"]:
        return TokenScores(doc_offsets=store.doc_offsets, **scores)
    windows = cut_windows(store, min(window_length, _context_length(folder) - 1), special)  # it writes a token
    file.touch(mode=0o600)
    with file.open("a", encoding="utf-8") as answers:
        for number in range(len(windows)):
            one = np.array([number])
            ids = windows.gather(one).input_ids[0]
            at = windows.token_positions(one, len(ids))[0]
            ids, at = ids[: np.flatnonzero(at >= 0)[-1] + 1].tolist(), at[: np.flatnonzero(at >= 0)[-1] + 1]
            if len(ids) < 2:
                continue
            try:
                found = _cached_log_probs(about, ids, known, answers)
            except ArtifactError as error:
                raise ArtifactError(f"{error}; {number:,} of {len(windows):,} windows are scored; {GOES_ON}") from None
            values, most = (np.array(each, dtype=np.float32) for each in found)
            chosen = at[1:] >= 0
            place, is_top = at[1:][chosen], values[chosen] >= most[chosen]
            true = np.array(ids[1:])[chosen]
            scores["log_probs"][place], scores["top_log_probs"][place] = values[chosen], most[chosen]
            scores["argmax"][place] = np.where(is_top, true, special.pad)  # of another one only that it is another
            scores["rank"][place] = np.where(is_top, 0, 1)
            if progress is not None:
                progress(number + 1)
    return TokenScores(doc_offsets=store.doc_offsets, **scores)


def _cached_answers(file: Path, num: int = 2) -> Iterator[tuple[str, Any]]:
    """Yield (digest of the request, answer) from the cache file of earlier runs; an answer that is not a list of
    ``num`` elements and a truncated line are skipped."""
    for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else ():
        try:
            digest, *answer = json.loads(line)
        except ValueError:
            continue
        if len(answer) == num:
            yield digest, answer


class Server:
    """A server in place of a model for `generate`, `score_continuations` and probes: it continues prompts and, if it
    gives log-probabilities, scores given texts.

    Parameters
    ----------
    folder : model folder with `ENDPOINT`
    tokenizer : tokenizer of the model, for the text that the server generates
    """

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerFast):
        self._about, self._tokenizer = read_json(folder / ENDPOINT), core_tokenizer(tokenizer)
        #: Context length: prompt and continuation together have at most so many tokens.
        self.num_positions = _context_length(folder)
        check_host(self._about["url"], self._about["host"])

    def write(
        self,
        prompts: Sequence[np.ndarray],
        *,
        special: SpecialIds,
        num_tokens: int,
        temperature: float = 0.0,
        top_k: int = 0,
        num_samples: int = 1,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Return the server's continuations of the prompts as token ids, int64 (prompts, num_samples, num_tokens), -1
        after the end. The texts that the server returns are tokenised here.

        A server may end a text where it likes.

        Raises
        ------
        ArtifactError
            The server gives no answer, or too few choices; the next run continues from the cache.
        """
        file, made = Path(self._about["answers"]), np.full((len(prompts), num_samples, num_tokens), -1, dtype=np.int64)
        known = dict(_cached_answers(file, 1))
        first = [] if special.prefix is None else [special.prefix]
        file.touch(mode=0o600)
        with file.open("a", encoding="utf-8") as answers:
            for number, prompt in enumerate(prompts):
                question = {
                    "model": self._about["model"], "prompt": first + prompt.tolist(), "max_tokens": num_tokens,
                    "temperature": temperature, "n": num_samples, "seed": seed,
                    **({"top_k": top_k} if top_k and temperature else {}),
                }  # fmt: skip
                digest = hashlib.sha256(json.dumps([self._about["url"], question]).encode()).hexdigest()
                if digest not in known:
                    try:
                        texts: list[Any] = [choice.get("text") for choice in _completions(self._about["url"], question)]
                    except ArtifactError as error:
                        raise ArtifactError(f"{error}; {GOES_ON}") from None
                    if len(texts) < num_samples or not all(isinstance(text, str) for text in texts):
                        host = self._about["host"]
                        raise ArtifactError(f"{host}: the server writes no text; {GOES_ON}")
                    known[digest] = [[made.ids for made in self._tokenizer.encode(texts)]]
                    answers.write(json.dumps([digest, *known[digest]]) + "\n")
                    answers.flush()
                for sample, ids in enumerate(known[digest][0][:num_samples]):
                    made[number, sample, : len(ids)] = ids[:num_tokens]
                if progress is not None:
                    progress(number + 1)
        return made

    @property
    def gives_log_probs(self) -> bool:
        """Whether the server returns log-probabilities of the tokens that it is sent."""
        return bool(self._about["log_probs"])

    def score(
        self,
        prompts: Sequence[list[int]],
        targets: Sequence[list[int]],
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Return the log-probability of each target after its prompt, both as token ids, float64 (rows,); NaN if either
        is empty or both exceed the context, and for all rows if the server gives no log-probabilities.

        Raises
        ------
        ArtifactError
            As `score_endpoint`; the next run continues from the cache.
        """
        scores, file = np.full(len(prompts), np.nan), Path(self._about["answers"])
        if not self.gives_log_probs:
            return scores
        known = dict(_cached_answers(file))
        file.touch(mode=0o600)
        with file.open("a", encoding="utf-8") as answers:
            for row, (prompt, target) in enumerate(zip(prompts, targets, strict=True)):
                if prompt and target and len(prompt) + len(target) < self.num_positions:  # it writes a token
                    try:
                        values, _ = _cached_log_probs(self._about, [*prompt, *target], known, answers)
                    except ArtifactError as error:
                        raise ArtifactError(f"{error}; {GOES_ON}") from None
                    scores[row] = sum(values[len(prompt) - 1 :])
                if progress is not None:
                    progress(row + 1)
        return scores

    def retokenized(self, ids: np.ndarray, num_prefix: int) -> list[int]:
        """Decode ``ids`` and tokenise again the text after the first ``num_prefix`` of them; return its token ids. They
        may differ from the given ones."""
        before, whole = self._tokenizer.decode([ids[:num_prefix].tolist(), ids.tolist()], skip_special_tokens=False)
        (made,) = self._tokenizer.encode([whole[len(before) :]])
        return made.ids
