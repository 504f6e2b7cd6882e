"""What a step's verdict does to its sequence. Only here does a matcher advance for good; no torch."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.errors import EngineError
from heptagram_backend.logprobs import ScoredToken
from heptagram_backend.plan import Draft
from heptagram_backend.sequence import Sequence
from heptagram_wire.events import FinishReason


def commit(
    sequence: Sequence, tokens: Iterable[int], grammars: GrammarCompiler, scored: Seq[ScoredToken] = ()
) -> FinishReason | None:
    """Commit verified tokens in order, up to what ends the request or opens a call.

    ``scored`` holds one entry a token where the request asks for log probabilities.

    Returns:
        The reason if the request ends here; tokens behind the end are dropped.

    Raises:
        EngineError: the matcher refuses a token that its own mask allowed. The request fails; it is never continued
            without its constraint.
        InvalidOutputError: with stop strings, as :meth:`Emitter.push`.
    """
    for row, token in enumerate(tokens):
        if token in sequence.stop_ids:
            sequence.stats.generated += 1
            return "stop"
        if _opens_call(sequence, token, grammars):
            return None
        if sequence.grammar is not None and not sequence.grammar.accept(token):
            raise EngineError(f"the grammar refused the verified token {token}")
        sequence.append(token)
        sequence.stats.generated += 1
        sequence.unread.append((token, scored[row] if scored else None))
        if sequence.request.stop:
            sequence.read()  # a stop string ends the answer inside the step: all other text is read under the next one
            if sequence.emitter.stopped:
                return "stop"
        if sequence.remaining == 0:
            return "length"
        _leave_finished_call(sequence)
    return None


def account(sequence: Sequence, draft: Draft, accepted: int) -> None:
    """Count a step in which the first ``accepted`` drafts were committed."""
    stats = sequence.stats
    stats.steps += 1
    stats.histogram[accepted] += 1
    stats.drafted += len(draft.tokens)
    stats.forced += sum(origin.is_forced for origin in draft.origins[:accepted])
    stats.replaced += draft.replaced
    stats.cut_by_grammar += draft.cut_by_grammar
    stats.cut_by_width += draft.cut_by_width
    stats.masked_rows += draft.masked_rows
    stats.mask_hits += draft.mask_hits
    stats.mask_bytes += draft.mask_bytes


def _opens_call(sequence: Sequence, token: int, grammars: GrammarCompiler) -> bool:
    """Start the trigger's grammar if ``token`` completes the trigger.

    subtle: that token is dropped, because its tail was sampled freely. The grammar takes up the trigger from the text
    before it, and the next step samples the position again under the mask. What comes out depends on the committed
    tokens alone, so speculation changes nothing. Drawn with noise, the position has the same noise again: a token that
    the mask allows stays, and which of the allowed ones wins otherwise is independent of the one that was dropped.
    """
    if sequence.watch is None or sequence.grammar is not None:
        return False
    piece = sequence.emitter.detokenizer.piece(token)
    prefix = sequence.watch.completes(piece)
    if prefix is None:
        sequence.watch.advance(piece)
        return False
    assert sequence.request.trigger is not None
    sequence.wait_for(grammars.start(sequence.request.trigger.constraint, prefix))
    sequence.triggered = True
    return True


def _leave_finished_call(sequence: Sequence) -> None:
    if sequence.leaves_grammar and sequence.grammar is not None and sequence.grammar.completed:
        sequence.release_grammar()
        sequence.triggered = False
        assert sequence.watch is not None
        sequence.watch.reset()
