"""Tokens of each audit with its default options: with shared prefixes, and with every text by itself.

    python studies/tokens_of_an_audit.py smollm2

Only the tokenizer matters, so a small model stands for a large one with the same tokenizer. Audits of several batches count all
items that they may query.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from undertow import audits, models
from undertow.audits.base import Sampling
from undertow.inference.planner import plan
from undertow.models.base import CostEstimate, LoadedModel, ModelRequest, UnsupportedQueryError
from undertow.types import ClozeQuery, ContinuationQuery, GenerateQuery, MultipleChoiceQuery, Query, query_digest

AUDITS: tuple[tuple[str, dict[str, str | int]], ...] = (
    ("spurious-correlation", {}),
    ("spurious-correlation, prompts A, B and C", {"prompts": "A,B,C"}),
    ("task-specification", {}),
    ("bias-identification, no examples", {"shots": "0"}),
    ("occupation-checklist, 10 pairs, 20 occupations", {"n_pairs": 10, "n_occupations": 20}),
)


def main(name: str) -> None:
    """Print the table."""
    model = models.resolve(ModelRequest(name)).open()
    print("| audit | questions | tokens, shared | tokens, each text by itself |")
    print("|---|---|---|---|")
    for title, options in AUDITS:
        audit = audits.load(title.partition(",")[0])
        settings = audit.Settings(**options)
        max_items = getattr(audit, "max_items", None)
        items = max_items(settings, Sampling()) if max_items else next(audit.items(settings, Sampling()))
        queries = list({query_digest(item.query): item.query for item in items}.values())
        print(f"| {title} | {len(queries):,} | {shared(model, queries):,} | {apart(model, queries):,} |")


def shared(model: LoadedModel, queries: Sequence[Query]) -> int:
    """Tokens that the plan feeds."""
    texts = [query for query in queries if isinstance(query, (ClozeQuery, ContinuationQuery))]
    encoded = [one for one in model.encode(texts) if not isinstance(one, UnsupportedQueryError)] if texts else []
    prompts = [query for query in queries if not isinstance(query, (ClozeQuery, ContinuationQuery))]
    cost: CostEstimate | None = model.estimate_cost(prompts, "exact") if prompts else None
    return sum(pack.n_tokens for pack in plan(encoded, model.limits)) + (cost.n_tokens if cost else 0)


def apart(model: LoadedModel, queries: Sequence[Query]) -> int:
    """Tokens of every text whole, once for each option of a sentence; of a prompt once, with the longest answer behind it.

    Raises:
        TypeError: a kind of query whose tokens are not counted here.
    """
    total = 0
    for query in queries:
        if isinstance(query, (ClozeQuery, ContinuationQuery)):
            (encoded,) = model.encode([query])
            total += (
                0 if isinstance(encoded, UnsupportedQueryError) else sum(len(path.tokens) for path in encoded.paths)
            )
        elif isinstance(query, GenerateQuery):
            total += length(model, query.prompt) + query.max_tokens
        elif isinstance(query, MultipleChoiceQuery) and not query.shots:
            total += length(model, query.prompt) + max(length(model, label) for label in query.labels)
        else:
            raise TypeError(f"tokens of {type(query).__name__} with these settings are not counted")
    return total


def length(model: LoadedModel, text: str) -> int:
    """Tokens of a text."""
    return len(model.tokenizer(text)["input_ids"])


if __name__ == "__main__":
    main(sys.argv[1])
