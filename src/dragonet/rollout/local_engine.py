"""The rollout engine of one process: batches what waits through a transformers model.

Requests that arrive together are answered together, in order of arrival and within a budget of tokens, never by the
clock: the same calls in the same order make the same batches. Sessions keep token ids alone and are read anew each
turn. Owns the queue, admission and sessions; the model's steps are in `decode`, the choice of tokens in `sampling`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import OutOfMemoryError, Tensor, nn

from dragonet.errors import RolloutError
from dragonet.models import load_adapter_tensors
from dragonet.rollout.decode import CausalForward, Ends, Row, decode_rows, evaluating
from dragonet.rollout.sampling import check_sampling
from dragonet.types import Sample, SampleRequest

QUIET_TURNS = 8  # turns of the event loop without a new request after which the loop counts as idle
REMEMBERED_ENDS = 100_000  # ended sessions whose names are still refused


@dataclass(slots=True, eq=False)
class _Job:
    """A request that waits: its rows, how many of them were admitted, and who is told."""

    rows: list[Row]
    future: asyncio.Future[list[Sample]]
    admitted: int = 0


class LocalEngine:
    """Sample from a transformers or peft model in this process.

    `decode` makes text of sampled ids, to find stop strings. `max_tokens` bounds the tokens in flight: rows times the
    longest prompt plus the longest answer of a batch; what does not fit waits for the next one.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        eos_ids: frozenset[int],
        pad_id: int,
        decode: Callable[[Sequence[int]], str],
        context_length: int,
        max_tokens: int = 32_768,
    ) -> None:
        self._model, self._forward = model, CausalForward(model)
        self._ends, self._pad_id = Ends(eos_ids, decode), pad_id
        self._context_length, self._max_tokens = context_length, max_tokens
        self._version = 0
        self._sessions: dict[str, tuple[int, ...]] = {}
        self._busy: set[str] = set()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._queue: list[_Job] = []
        self._arrived = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Task[None] | None = None
        self._closed = False

    async def sample(self, request: SampleRequest) -> list[Sample]:
        """Return `request.n` continuations.

        Raises RolloutError when the request cannot be served or the model failed; a session whose accepted request
        fails or is cancelled is over.
        """
        ids = self._history(request)
        self._check(request, ids)
        rows = [Row(ids, request.sampling, seed) for seed in request.seeds]
        name = request.session
        if name is None:
            return await self._enqueue(rows)
        self._sessions.pop(name, None)
        self._busy.add(name)
        samples: list[Sample] | None = None
        try:
            samples = await self._enqueue(rows)
        finally:
            self._busy.discard(name)
            if samples is not None and not request.last:
                self._sessions[name] = ids + samples[0].token_ids
            else:
                self._forget(name)
        return samples

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy adapter tensors into the model by name; those that share its memory already are left alone.

        Raises ModelError, with nothing changed, when a tensor is missing, unknown or of another shape.
        """
        load_adapter_tensors(self._model, weights)
        self._version = version

    def close(self) -> None:
        """Forget every session and refuse what waits and what comes; closing twice is fine."""
        self._closed = True
        self._sessions.clear()
        waiting, self._queue = self._queue, []
        for job in waiting:
            _fail(job, RolloutError("the engine was closed while the request waited"))

    def _history(self, request: SampleRequest) -> tuple[int, ...]:
        name = request.session
        if name is None:
            if request.new_ids:
                raise RolloutError("sample: new_ids belong to a session; name one, or give the tokens as prompt_ids")
            return request.prompt_ids
        if request.n != 1 or request.prompt_ids:
            raise RolloutError(f"sample: session {name!r} takes n = 1 and its tokens as new_ids, not prompt_ids")
        if name in self._busy:
            raise RolloutError(f"sample: session {name!r} is still sampling; await its answer before the next turn")
        if name in self._ended:
            raise RolloutError(
                f"sample: session {name!r} has ended: its last request said last=True, failed or was cancelled. Pass "
                "last=False to go on, or start a new session with all of its tokens"
            )
        return self._sessions.get(name, ()) + request.new_ids

    def _check(self, request: SampleRequest, ids: tuple[int, ...]) -> None:
        if self._closed:
            raise RolloutError("the engine is closed; build a new one")
        check_sampling(request.sampling)
        if request.n < 1 or request.n != len(request.seeds):
            raise RolloutError(f"sample: n is {request.n}, but there are {len(request.seeds)} seeds; give one for each")
        if not ids:
            raise RolloutError("sample: there are no tokens to continue; give prompt_ids, or new_ids with a session")
        new = request.sampling.max_new_tokens
        if len(ids) + new > self._context_length:
            raise RolloutError(
                f"sample: {len(ids)} tokens and max_new_tokens {new} do not fit into the model's context of "
                f"{self._context_length}; shorten the prompt or lower max_new_tokens"
            )
        size = self._forward.vocabulary
        if min(ids) < 0 or max(ids) >= size:
            raise RolloutError(f"sample: token ids must lie between 0 and {size - 1}, got {min(ids)} to {max(ids)}")

    def _forget(self, name: str) -> None:
        self._ended[name] = None
        if len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)

    async def _enqueue(self, rows: list[Row]) -> list[Sample]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._queue and self._loop.is_running():
                raise RolloutError("the engine is in use by another event loop; give each loop an engine of its own")
            self._loop, self._server = loop, None
            self._queue.clear()  # left behind by a loop that was interrupted
        job = _Job(rows, loop.create_future())
        self._queue.append(job)
        self._arrived += 1
        if self._server is None:
            self._server = loop.create_task(self._serve(loop))
        return await job.future

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                await self._settle()
                self._queue = [job for job in self._queue if not job.future.done()]
                if not self._queue:
                    return
                self._run(self._admit())
        finally:
            if self._loop is loop:  # an abandoned loop's task may be collected while another loop is served
                self._server = None

    async def _settle(self) -> None:
        """Wait until the event loop has run idle, so that all who are about to ask are answered together."""
        seen, quiet = self._arrived, 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            quiet = quiet + 1 if seen == self._arrived else 0
            seen = self._arrived

    def _admit(self) -> list[tuple[_Job, Row]]:
        """Take rows in order of arrival while the padded batch stays within the budget, and one row at least."""
        wave: list[tuple[_Job, Row]] = []
        width = new = 0
        for job in self._queue:
            for row in job.rows[job.admitted :]:
                width, new = max(width, len(row.prompt_ids)), max(new, row.sampling.max_new_tokens)
                if wave and (len(wave) + 1) * (width + new) > self._max_tokens:
                    return wave
                wave.append((job, row))
                job.admitted += 1
        return wave

    def _run(self, wave: list[tuple[_Job, Row]]) -> None:
        jobs = dict.fromkeys(job for job, _ in wave)
        rows = [row for _, row in wave]
        try:
            with evaluating(self._model):
                decode_rows(self._forward, rows, self._ends, self._pad_id)
            for row in rows:
                row.version = self._version
            for job in jobs:
                if job.admitted == len(job.rows) and not job.future.done():
                    job.future.set_result([_sample(row) for row in job.rows])
        except Exception as error:  # whatever went wrong in the model must not leave anybody waiting
            text = str(error) if isinstance(error, RolloutError) else _explain(error, len(rows))
            for job in jobs:
                _fail(job, RolloutError(text), error)


def _sample(row: Row) -> Sample:
    assert row.stop_reason is not None
    return Sample(tuple(row.token_ids), tuple(row.logprobs), row.stop_reason, row.version)


def _explain(error: Exception, n_rows: int) -> str:
    text = f"sampling a batch of {n_rows} rows failed: {type(error).__name__}: {error}"
    if isinstance(error, OutOfMemoryError | MemoryError):
        text += "\nLower train.batch_size, group_size or max_new_tokens, so that fewer tokens are in flight"
    return text


def _fail(job: _Job, error: RolloutError, cause: Exception | None = None) -> None:
    error.__cause__ = cause
    if not job.future.done():
        job.future.set_exception(error)
