"""Export tasks of lm-evaluation-harness: a YAML file and a data file for every W list.

    In 1801, ___ was a child.    context "In 1801,"    choices " she was a child.", " he was a child.", ...

Its task type `multiple_choice` asks for the log-likelihood of each choice after the context, which is what Undertow reads
(docs/decisions/003-what-likelihood-reads.md), and logs it with `--log_samples`; `undertow score` reads that log.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from undertow.errors import on_one_line
from undertow.integrations.export_format import ExportedFiles, ExportRequest, code, in_markdown
from undertow.integrations.item_codec import COLUMN, carried_texts
from undertow.types import BLANK, ClozeQuery, as_json

SUMMARY = "tasks of lm-evaluation-harness, read by log-likelihood; undertow score reads their log"
HOLDS = (BLANK,)
REFUSAL = (
    "a task of lm-evaluation-harness logs log-likelihoods of whole texts only; ask sentences with a blank (leave --prompts out), "
    "or use undertow export inspect or datasets"
)
TAG = "undertow"
"""By which all tasks of a folder are asked for at once."""
CONTEXT, CHOICES, GROUPS = "context", "choices", "groups"
"""Columns of the data, beside the one that carries the question."""


def context_and_choices(query: ClozeQuery) -> tuple[str, list[str]]:
    """The harness's context and choices: the text before the blank, without its final space, and the continuations [option].

    Tokenizers attach the space to the word after it. A sentence that begins with its blank has an empty context.
    """
    context = query.pieces[0].rstrip()
    return context, [text.removeprefix(context) for text in query.texts()]


def write(request: ExportRequest, draft: Path, folder: Path) -> ExportedFiles:
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
    tasks = _task_names(list(rows))
    for task, lines in zip(tasks, rows.values(), strict=True):
        (draft / f"{task}.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        (draft / f"{task}.yaml").write_text(_yaml(task, folder / f"{task}.jsonl"), encoding="utf-8")
    run = ["lm_eval", "--model", "hf", "--model_args", "pretrained=MODEL", "--include_path", str(folder)]
    logged = ["--tasks", ",".join(tasks), "--log_samples", "--output_path", "LOGS"]
    steps = [shlex.join([*run, *logged]), f"undertow score LOGS --audit {request.audit}"]
    (draft / "README.md").write_text(_readme(request, tasks, list(map(on_one_line, steps))), encoding="utf-8")
    return ExportedFiles(tasks, steps)


def _task_names(abouts: Sequence[tuple[str, str]]) -> list[str]:
    """Unique names such as `undertow_mgc_date`, of letters, digits and underscores [task]."""
    names: list[str] = []
    for challenge, w_name in abouts:
        plain = "_".join(re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") or "x" for part in (challenge, w_name))
        name = plain if plain.startswith(f"{TAG}_") else f"{TAG}_{plain}"
        same = sum(one == name or re.fullmatch(rf"{name}_\d+", one) is not None for one in names)
        names.append(f"{name}_{same + 1}" if same else name)
    return names


def _yaml(task: str, data: Path) -> str:
    """YAML with JSON values."""
    return f"""\
# Written by undertow export. The harness looks for data from where it is started, hence the whole path.
task: {task}
tag: {TAG}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {as_json(str(data))}
test_split: test
output_type: multiple_choice
doc_to_text: {CONTEXT}
doc_to_choice: {CHOICES}
doc_to_target: 0
target_delimiter: ""
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def _readme(request: ExportRequest, tasks: Sequence[str], steps: Sequence[str]) -> str:
    first = request.items[0].query
    words = ", ".join(in_markdown(option.fills[0]) for option in first.options) if isinstance(first, ClozeQuery) else ""
    named = ", ".join(f"`{task}`" for task in tasks)
    return f"""\
# {in_markdown(request.design.get("title", request.audit))}, for lm-evaluation-harness

{len(request.items):,} sentences of the audit `{request.audit}` of Undertow, in {len(tasks)} task{"s" if tasks[1:] else ""}: {named}.

```sh
{steps[0]}
{steps[1]}
```

**The result is what `undertow score` says.** The `acc` that the harness prints is the share of sentences whose first choice
(of {words}) is the most probable one; it is no score of this audit, and neither high nor low values of it are good.

- Leave few-shot examples, chat templates and system instructions out: the sentences are read as they stand. `undertow score`
  refuses a log in which anything stood around them.
- `--log_samples` is what is measured; the sample files hold all that is needed, wherever they are copied to.
- If this folder is moved, change the path in the YAML files, or export again: {code(request.command)}.
- The word groups are categories of words. They are not categories of people, and a model whose answers do not move is not
  thereby shown to be fair.

Source of the sentences: {in_markdown(request.design.get("source") or "unknown")}.
"""
