"""A party's session: it passes each request to its run and answers with a reply or a refusal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from dperm.errors import DpermError, ProtocolError
from dperm.vertical.identity.keys import Identity
from dperm.vertical.session.party_run import PartyRun
from dperm.vertical.session.spec import PartyHandler
from dperm.vertical.transport.envelope import REQUEST, Envelope, refusal
from dperm.vertical.transport.wire import DEFAULT_LIMIT

__all__ = ["PartySession"]

#: receives an event for the party's own log: (run, step, sentence)
Log = Callable[[str, int, str], None]


class PartySession:
    """Answers the requests of any number of runs, one request at a time in each run.

    Parameters
    ----------
    identity : Identity
        The party that answers.
    root : path
        Folder that contains one folder per run.
    handler : PartyHandler
        The party's data, policy and ledger.
    limit : int
        Largest size of a request in bytes.
    log : callable, optional
        Called with (run, step, what happened).
    """

    def __init__(
        self,
        identity: Identity,
        root: str | os.PathLike[str],
        handler: PartyHandler,
        limit: int = DEFAULT_LIMIT,
        log: Log | None = None,
    ) -> None:
        self.name = identity.name
        self._identity = identity
        self._root = Path(root)
        self._handler = handler
        self._limit = limit
        self._log = log or (lambda run, step, what: None)
        self._runs: dict[str, PartyRun] = {}
        self._lock = threading.Lock()
        #: last error by run; the command takes its exit code from it
        self.refused: dict[str, DpermError] = {}
        self.finished: set[str] = set()

    def handle(self, data: bytes | memoryview) -> bytes:
        """Answer an encoded request with an encoded reply or refusal."""
        return self.answer(Envelope.decode(data, self._limit)).encode()

    def answer(self, request: Envelope) -> Envelope:
        """Answer one request with a reply or a refusal."""
        try:
            if request.kind != REQUEST or request.party != self.name:
                raise ProtocolError(f"{self.name} received a message for {request.party}; it was not answered.")
            with self._lock:
                if request.run not in self._runs:
                    self._runs[request.run] = PartyRun(self._identity, self._root, self._handler, request.run)
                run = self._runs[request.run]
            answer = run.answer(request, self._limit)
        except DpermError as error:
            self.refused[request.run] = error
            self._log(request.run, request.step, f"refused: {error}")
            return refusal(request, error)
        except Exception as error:
            # the message may contain data, so it stays in this party's log
            self.refused[request.run] = DpermError(
                f"an unexpected {type(error).__name__} at step {request.step}: {error}"
            )
            self._log(request.run, request.step, f"failed: {type(error).__name__}: {error}")
            return refusal(request, self.refused[request.run])
        self.refused.pop(request.run, None)
        if run.finished:
            self.finished.add(request.run)
        self._log(request.run, request.step, "answered")
        return answer

    def close(self) -> None:
        """Release all folders and reservations."""
        for run in self._runs.values():
            run.close()
