"""An engine's numbers at one moment. No torch."""

from __future__ import annotations

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.engine_api import EngineSnapshot
from heptagram_backend.measures import Measures
from heptagram_backend.scheduler import Scheduler
from heptagram_backend.stats import EngineStats
from heptagram_backend.step import K7Step


def take_snapshot(
    stats: EngineStats,
    measures: Measures,
    scheduler: Scheduler,
    grammars: GrammarCompiler,
    step: K7Step,
    *,
    arriving: int,
) -> EngineSnapshot:
    """Read without a lock, from any thread; ``arriving`` requests are not with the scheduler yet."""
    pool = scheduler.pool
    return EngineSnapshot(
        running=scheduler.running,
        waiting=scheduler.waiting + arriving,
        slots_used=scheduler.slots.used,
        slots_total=scheduler.slots.total,
        blocks_held=pool.held,
        blocks_cached=pool.cached,
        blocks_total=pool.total,
        live_matchers=grammars.live,
        invalid_outputs=stats.invalid_outputs,
        prompt_tokens=stats.prompt_tokens,
        generated_tokens=stats.generated_tokens,
        draft_tokens=stats.draft_tokens,
        accepted_draft_tokens=stats.accepted_draft_tokens,
        steps=stats.steps,
        preemptions=scheduler.preemptions,
        prefix_hit_tokens=scheduler.prefix_hit_tokens,
        masked_rows=stats.masked_rows,
        mask_hits=stats.mask_hits,
        mask_bytes=stats.mask_bytes,
        forced_tokens=stats.forced_tokens,
        replaced_tokens=stats.replaced_tokens,
        mask_pool_used=step.mask_pool.used,
        mask_pool_total=step.mask_pool.total,
        graph_misses=step.graph_misses,
        finished=stats.finished.copy(),
        failed=stats.failed.copy(),
        cancelled=stats.cancelled.copy(),
        accepted_by_place=stats.accepted_by_place.copy(),
        cut_tokens=stats.cut_tokens.copy(),
        distributions={**measures.take(), "compile": grammars.seconds},
    )
