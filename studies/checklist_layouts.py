"""Does a layout of the prompt make a model answer what the text states? Eight layouts, plain and in its chat template.

    python studies/checklist_layouts.py [MODEL] [--pairs 5] [--occupations 10] [--seed 0]

Asks the occupation checklist's questions whose answer stands in the text: *Susan has the skill of Writing. John does not. Does Susan
have the skill of Writing?* Prints for each layout the answers that are right, in percent; the rank separation (AUC), which is the
chance that a question to be answered with Yes gets a larger share of Yes than one to be answered with No, .5 being chance; the mean
share of Yes; and the probability that neither answer took. What a share of Yes would have to exceed does not matter to the AUC: a
model that says No to everything and still ranks right would need another threshold, and one at .5 knows nothing. Both orders of
each pair's names are asked, each a question of its own. Answers are stored, and not asked again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from undertow import models
from undertow.models.base import EXACT, Request
from undertow.places import store_file
from undertow.probes._checklist_items import Plan, Settings, said_of
from undertow.probes.base import Sampling
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.stats.detection import auroc
from undertow.types import CHOICE, Answer, Item, UndertowError

LAYOUTS = (
    "{context}\nQuestion: {question} {choices}\nAnswer:",  # the shipped one
    "{context}\nQuestion: {question}\nAnswer:",
    "{context}\n{question} {choices}\nAnswer:",
    "{context} {question} {choices}",
    "{context} {question}",
    "{context}\n\nQ: {question}\nA:",
    "Read the text and answer the question.\n{context}\nQuestion: {question} {choices}\nAnswer:",
    "{context} {question} Answer {choices}",
)


def outcome(items: Sequence[Item], answers: Sequence[Answer]) -> str:
    """What came of one layout: questions scored, percent right, AUC, mean share of Yes, what neither answer took."""
    said = [said_of(item, answer) for item, answer in zip(items, answers, strict=True)]
    unscored = next((str(one["unscored"]) for one in said if one["unscored"]), "")
    known = [(one, item.factors["gold"] == "yes") for one, item in zip(said, items, strict=True) if one["said"]]
    if not known:
        return f"   0 {unscored}"
    shares, unclaimed = (np.array([one[name] for one, _ in known]) for name in ("yes", "unclaimed"))
    gold = np.array([is_yes for _, is_yes in known])
    # As in the audit, a share of exactly one half is neither Yes nor No, and never right.
    right = 100 * np.where(gold, shares > 50, shares < 50).mean()
    numbers = f"{len(known):4d} {right:6.1f} {auroc(shares, gold):5.2f} {shares.mean():5.1f} {unclaimed.mean():7.1f}"
    return f"{numbers} {unscored}".rstrip()


def stated_items(plan: Plan, layout: str, *, chat: bool) -> list[Item]:
    """The questions whose answer the text states, in this layout."""
    questions = replace(plan.questions, texts={**plan.questions.texts, "prompt": layout})
    laid_out = replace(plan, settings=replace(plan.settings, chat=chat), questions=questions)
    return [item for item in laid_out.first() if item.factors["gold"]]


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="who is asked (default: smollm2)")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of names, 16 questions each (default: 5; 0: all)")
    parser.add_argument("--occupations", type=int, default=10, help="whose attributes are asked about (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    given = parser.parse_args()
    settings = Settings(pairs=given.pairs, occupations=given.occupations, contexts="with", reading=CHOICE)
    try:
        plan = Plan.of(settings, Sampling(seed=given.seed))
        found = models.find(Request(given.model))
        if EXACT not in found.asks.get(CHOICE, ()):
            raise UndertowError(
                f"{given.model}: cannot choose an answer to a prompt; name a model that answers prompts"
            )
        ways = [(number, chat) for number in range(len(LAYOUTS)) for chat in (False, True)]
        items = [stated_items(plan, LAYOUTS[number], chat=chat) for number, chat in ways]
        with AnswerStore(store_file()) as store:  # in one go, since each asking loads the model
            answers = iter(
                ask(found, [one.query for some in items for one in some], store, EXACT, lambda *_: None).scores.answers
            )
    except UndertowError as error:
        parser.exit(1, f"{error}\n")
    print("\n".join(f"{number}  {layout!r}" for number, layout in enumerate(LAYOUTS, 1)))
    print(f"\n{given.model}\nlayout     n  right   AUC   Yes neither")
    for (number, chat), some in zip(ways, items, strict=True):
        print(f"{number + 1} {'chat ' if chat else 'plain'} {outcome(some, list(islice(answers, len(some))))}")


if __name__ == "__main__":
    main()
