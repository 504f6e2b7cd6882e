"""One group of the corpus through everything: walker, our two forms, llguidance, and jsonschema as the judge."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from heptagram_backend.errors import RequestError
from tests.differential.corpus import Group, Instance
from tests.differential.counts import Counts, as_is, keyword_of
from tests.differential.grammars import Asked, as_dsml, as_json, by_llguidance, walked
from tests.differential.instances import Drawer, bent
from tests.differential.narrowings import Make, reason
from tests.preprocess.oracle import Oracle, strict_loads, valid

GUIDANCE: Final = "llguidance"
_FORMS: Final[dict[str, Callable[[dict[str, Any]], Asked]]] = {"JSON": as_json, "DSML": as_dsml}
_BYTES: Final = Oracle()


def compare(group: Group, counts: Counts, *, drawn: int) -> None:
    """Ask everyone about the instances of the source, and ``drawn`` drawn, bent and generated ones of each kind."""
    try:
        enforced = walked(group.schema, parameters=group.parameters)
    except RequestError as error:
        counts.walked[group.source, "refused"] += 1
        counts.refused[error.wire.code, keyword_of(error.wire)] += 1
        return
    counts.walked[group.source, "as is" if as_is(group.schema, enforced) else "normalised"] += 1
    asked = _askable(group, enforced, counts)
    for instance in (*group.instances, *_instances(group, enforced, drawn)):
        truth = _truth(group, instance)
        said = {form: ask(instance.value) for form, ask in asked.items()}
        for form, verdict in said.items():
            counts.judged[form, truth and verdict is not None, verdict] += 1
            if form != GUIDANCE and verdict is not None and verdict != truth:
                _wrong(group, instance, form, asked[form], counts, accepted=verdict)
        if None not in (said.get(GUIDANCE), said.get("JSON")):
            _beside(group, instance, said, asked, counts, truth=truth)


def _askable(group: Group, enforced: dict[str, Any], counts: Counts) -> dict[str, Asked]:
    asked: dict[str, Asked] = {}
    for form, make in _FORMS.items() if group.parameters else [("JSON", as_json)]:
        try:
            asked[form] = make(enforced)
        except RequestError as error:
            counts.unwritable[form, keyword_of(error.wire)] += 1
    try:
        asked[GUIDANCE] = by_llguidance(group.schema)
    except RequestError as error:
        counts.unwritable[GUIDANCE, error.wire.message.partition("\n")[0][:60]] += 1
    return asked


def _instances(group: Group, enforced: dict[str, Any], drawn: int) -> Iterator[Instance]:
    chance = random.Random(group.name)
    drawer = Drawer(group.schema, chance)
    for _ in range(drawn):
        value = drawer.value(group.schema)
        yield Instance(value)
        yield Instance(bent(value, chance))
        if (text := _BYTES.sample(enforced, chance, steps=200)) is not None:
            value = strict_loads(text)
            assert finite(value), f"a number that no double holds: {text}"
            yield Instance(value)


def finite(value: Any) -> bool:
    """Are all numbers of ``value`` what a double holds?"""
    if isinstance(value, list | dict):
        return all(map(finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or isfinite(value)


def _truth(group: Group, instance: Instance) -> bool:
    """By jsonschema, and by the source where it knows better. Arguments are objects."""
    fits = isinstance(instance.value, dict) or not group.parameters
    return fits and instance.valid is not False and valid(group.schema, instance.value)


def _wrong(group: Group, instance: Instance, form: str, asked: Asked, counts: Counts, *, accepted: bool) -> None:
    why = None if accepted else reason(group.schema, instance.value, asked, _maker(form, group))
    if why is not None:
        counts.narrowed[form, why] += 1
        return
    fault = "accepted though invalid" if accepted else "refused for no documented reason"
    told = f"{json.dumps(group.schema)} on {json.dumps(instance.value)}"
    counts.faults.append(f"{form}, {fault}: {group.source}, {group.name}: {told}")


def _beside(
    group: Group,
    instance: Instance,
    said: dict[str, bool | None],
    asked: dict[str, Asked],
    counts: Counts,
    *,
    truth: bool,
) -> None:
    """Count agreement; of a disagreement, say who is right and why the other is not."""
    ours, theirs = said["JSON"], said[GUIDANCE]
    right = "valid" if truth else "invalid"
    if ours == theirs:
        counts.beside[f"both {'accept' if ours else 'refuse'} {right}", ""] += 1
    elif truth:
        narrower = GUIDANCE if ours else "JSON"
        why = reason(group.schema, instance.value, asked[narrower], _maker(narrower, group))
        counts.beside[
            f"only {'ours accepts' if ours else 'llguidance accepts'} {right}",
            why or ("a limit of llguidance" if ours else "undocumented"),
        ] += 1
    else:
        counts.beside[
            f"only {'ours accepts' if ours else 'llguidance accepts'} {right}", _violated(group, instance)
        ] += 1


def _violated(group: Group, instance: Instance) -> str:
    checker = Draft202012Validator.FORMAT_CHECKER
    fault = best_match(Draft202012Validator(group.schema, format_checker=checker).iter_errors(instance.value))
    if fault is None:
        return "only the suite calls it invalid"
    detail = f" {fault.validator_value}" if fault.validator == "format" else ""
    return f"{fault.validator}{detail}"


def _maker(form: str, group: Group) -> Make:
    def make(schema: Any) -> Asked | None:
        return _made(form, json.dumps(schema), group.parameters)

    return make


@lru_cache(maxsize=64)
def _made(form: str, schema: str, parameters: bool) -> Asked | None:
    try:
        if form == GUIDANCE:
            return by_llguidance(json.loads(schema))
        return _FORMS[form](walked(json.loads(schema), parameters=parameters))
    except RequestError:
        return None
