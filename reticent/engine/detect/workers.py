"""Worker processes that share one loaded model: one is spawned and loads it, the others are forked from it.

A fork shares the memory of the model, so that each process more costs what it works with, and not the model again. The
first process is spawned, for a fork of a process that has used polars or OpenMP hangs; it forks before it has run
anything.
"""

from __future__ import annotations

import builtins
import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect.passages import Found


class Workers:
    """A pool of worker processes that find spans in texts.

    Parameters
    ----------
    load : function of ``arguments`` that a spawned process can import
        Returns a function from texts to the spans of each.
    num_processes : int

    Raises
    ------
    PolicyError
        ``load`` raised one.
    """

    def __init__(self, load: Callable[..., Any], arguments: tuple[Any, ...], num_processes: int, name: str):
        context = get_context("spawn")
        self._name = name
        pairs = [context.Pipe() for _ in range(num_processes)]
        theirs = [there for _, there in pairs]
        self._process = context.Process(target=_serve_requests, args=(load, arguments, theirs), daemon=True)
        self._process.start()
        for there in theirs:
            there.close()
        self._free: SimpleQueue[Connection] = SimpleQueue()
        first = pairs[0][0]
        error = self._receive(first)
        if error is not None:
            raise PolicyError(error)
        for here, _ in pairs:
            self._free.put(here)
        self._pool = ThreadPoolExecutor(num_processes, thread_name_prefix="reticent")

    def find(self, texts: Sequence[str], batch_size: int) -> list[list[Found]]:
        """Return the spans of each text, computed by worker processes; a free process takes the next ``batch_size``
        texts."""
        shares = [texts[at : at + batch_size] for at in range(0, len(texts), batch_size)]
        return [spans for share in self._pool.map(self._find_in_worker, shares) for spans in share]

    def _find_in_worker(self, texts: Sequence[str]) -> list[list[Found]]:
        """Return the spans of each text, computed by one free worker process; its errors are raised here."""
        connection = self._free.get()
        try:
            connection.send(list(texts))
            result = self._receive(connection)
        except OSError:
            raise CorpusError(f"a process of the detector {self._name} has ended") from None
        finally:
            self._free.put(connection)
        if isinstance(result, str):  # of the same kind as there, for the union to find the document and say the kind
            kind = getattr(builtins, result, None)
            raise kind() if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(result)
        return result

    def _receive(self, connection: Connection) -> Any:
        """Return the next message of a worker process; `CorpusError` if it has ended."""
        try:
            return connection.recv()
        except EOFError:
            raise CorpusError(f"a process of the detector {self._name} has ended") from None


def _serve_requests(load: Callable[..., Any], arguments: tuple[Any, ...], connections: list[Connection]) -> None:
    """Run as the first worker: load the model, fork a process for each further connection, and answer requests."""
    try:
        find = load(*arguments)
    except PolicyError as error:
        connections[0].send(str(error))
        return
    gc.collect()
    gc.freeze()  # or the collector would write to every shared page
    own = 0
    for number in range(1, len(connections)):
        if os.fork() == 0:
            own = number
            break
    for number, connection in enumerate(connections):
        if number != own:
            connection.close()
    if own == 0:
        connections[0].send(None)
    _answer_requests(find, connections[own])
    if own:
        os._exit(0)


def _answer_requests(find: Callable[[list[str]], list[list[Found]]], connection: Connection) -> None:
    """Answer each list of texts received on the connection with ``find(texts)``, until it is closed; an error is
    answered with its type's name, as its message may quote a text."""
    while True:
        try:
            texts = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = find(texts)
        except Exception as error:
            answer = type(error).__name__
        connection.send(answer)
