"""Export tasks of lm-evaluation-harness: a YAML file and a data file for every W list.

    In 1801, ___ was a child.    context "In 1801,"    choices " she was a child.", " he was a child.", ...

Its task type `multiple_choice` computes the log-likelihood of each choice after the context, as Undertow does
(docs/decisions/003-what-likelihood-reads.md), and logs it with `--log_samples`; `undertow score` reads that log.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from undertow.errors import on_one_line
from undertow.integrations.export_format import ExportRequest, render
from undertow.integrations.item_codec import COLUMN, carried_texts
from undertow.types import BLANK, ClozeQuery, as_json

SUMMARY = "tasks of lm-evaluation-harness, scored by log-likelihood; undertow score reads their log"
HOLDS = (BLANK,)
TEXTS_ONLY = False
REFUSAL = (
    "a task of lm-evaluation-harness logs log-likelihoods of whole texts only; use sentences with a blank (omit --prompts), "
    "or undertow export inspect or datasets"
)
TAG = "undertow"
"""Tag of all tasks of a folder."""
CONTEXT, CHOICES, GROUPS = "context", "choices", "groups"
"""Columns of the data in addition to the encoded item."""


def context_and_choices(query: ClozeQuery) -> tuple[str, list[str]]:
    """The harness's context and choices: the text before the blank, without its final space, and the continuations [option].

    Tokenizers attach the space to the following word. A sentence that begins with its blank has an empty context.
    """
    context = query.pieces[0].rstrip()
    return context, [text.removeprefix(context) for text in query.texts()]


def write(request: ExportRequest, draft: Path, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Write one task for each challenge and W list."""
    rows: dict[tuple[str, str], list[str]] = {}
    for item, text in zip(request.items, carried_texts(request), strict=True):
        about = (str(item.factors["challenge"]), str(item.factors["w_name"]))
        if not isinstance(item.query, ClozeQuery):
            raise TypeError(f"{type(item.query).__name__} has no choices")
        context, choices = context_and_choices(item.query)
        groups = [option.group for option in item.query.options]
        rows.setdefault(about, []).append(
            as_json({"item": item.id, CONTEXT: context, CHOICES: choices, GROUPS: groups, COLUMN: text})
        )
    tasks: list[str] = []
    for challenge, w_name in rows:
        plain = "_".join(re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") or "x" for part in (challenge, w_name))
        name = plain if plain.startswith(f"{TAG}_") else f"{TAG}_{plain}"
        same = sum(one == name or re.fullmatch(rf"{name}_\d+", one) is not None for one in tasks)
        tasks.append(f"{name}_{same + 1}" if same else name)
    for task, lines in zip(tasks, rows.values(), strict=True):
        (draft / f"{task}.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        columns = {"context": CONTEXT, "choices": CHOICES}
        yaml = render(
            "lm_eval_task.yaml.j2", request, task=task, tag=TAG, data=str(folder / f"{task}.jsonl"), **columns
        )
        (draft / f"{task}.yaml").write_text(yaml, encoding="utf-8")
    run = ["lm_eval", "--model", "hf", "--model_args", "pretrained=MODEL,dtype=float32", "--include_path", str(folder)]
    logged = ["--tasks", ",".join(tasks), "--log_samples", "--output_path", "LOGS"]
    steps = [shlex.join([*run, *logged]), f"undertow score LOGS --audit {request.audit}"]
    first = request.items[0].query
    words = [option.fills[0] for option in first.options] if isinstance(first, ClozeQuery) else []
    facts = {"tasks": tasks, "steps": list(map(on_one_line, steps)), "words": words}
    (draft / "README.md").write_text(render("lm_eval_readme.md.j2", request, **facts), encoding="utf-8")
    return tasks, steps
