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
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from undertow import models
from undertow.models.base import EXACT, Found, Request
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one layout.

    Attributes:
        n: questions that were scored.
        right: percent of them.
        separation: AUC of the share of Yes.
        yes: mean share of Yes, in percent.
        unclaimed: mean probability that neither answer took, in percent.
        unscored: why others have no answer; "" where all have.
    """

    n: int
    right: float
    separation: float
    yes: float
    unclaimed: float
    unscored: str

    @classmethod
    def of(cls, items: Sequence[Item], answers: Sequence[Answer]) -> Outcome:
        """From the answers, in the order of the items."""
        said = [said_of(item, answer) for item, answer in zip(items, answers, strict=True)]
        unscored = next((str(one["unscored"]) for one in said if one["unscored"]), "")
        known = [(one, item.factors["gold"] == "yes") for one, item in zip(said, items, strict=True) if one["said"]]
        if not known:
            return cls(0, np.nan, np.nan, np.nan, np.nan, unscored)
        shares, unclaimed = (np.array([one[name] for one, _ in known]) for name in ("yes", "unclaimed"))
        gold = np.array([is_yes for _, is_yes in known])
        # As in the audit, a share of exactly one half is neither Yes nor No, and never right.
        right = np.where(gold, shares > 50, shares < 50)
        return cls(
            len(known),
            100 * float(right.mean()),
            auroc(shares, gold),
            float(shares.mean()),
            float(unclaimed.mean()),
            unscored,
        )


def stated_items(plan: Plan, layout: str, *, chat: bool) -> list[Item]:
    """The questions whose answer the text states, in this layout."""
    laid_out = replace(
        plan,
        settings=replace(plan.settings, chat=chat),
        questions=replace(plan.questions, texts={**plan.questions.texts, "prompt": layout}),
    )
    return [item for item in laid_out.first() if item.factors["gold"]]


def outcomes(found: Found, plan: Plan) -> Iterator[tuple[str, bool, Outcome]]:
    """Layout by layout, plain before chat; all are asked in one go, since each asking loads the model."""
    ways = [(layout, chat) for layout in LAYOUTS for chat in (False, True)]
    items = [stated_items(plan, layout, chat=chat) for layout, chat in ways]
    with AnswerStore(store_file()) as store:
        answers = ask(found, [one.query for some in items for one in some], store, EXACT, tell).scores.answers
    arriving = iter(answers)
    for (layout, chat), some in zip(ways, items, strict=True):
        yield layout, chat, Outcome.of(some, list(islice(arriving, len(some))))


def tell(done: int, total: int) -> None:
    """How far the asking is."""
    print(f"{done} of {total} different questions", file=sys.stderr)


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="who is asked (default: smollm2)")
    parser.add_argument(
        "--pairs", type=int, default=5, help="pairs of names, 16 questions each (default: 5; 0 for all)"
    )
    parser.add_argument(
        "--occupations", type=int, default=10, help="occupations whose attributes are asked about (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    given = parser.parse_args()
    settings = Settings(pairs=given.pairs, occupations=given.occupations, contexts="with", reading=CHOICE)
    try:
        plan = Plan.of(settings, Sampling(seed=given.seed))
        found = models.find(Request(given.model))
        if EXACT not in found.asks.get(CHOICE, ()):
            raise UndertowError(
                f"{given.model}: cannot be asked to choose an answer to a prompt; name a model that answers prompts"
            )
        print("\n".join(f"{number}  {layout!r}" for number, layout in enumerate(LAYOUTS, 1)))
        print(f"\n{given.model}\nlayout     n  right   AUC   Yes neither")
        for layout, chat, one in outcomes(found, plan):
            name = f"{LAYOUTS.index(layout) + 1} {'chat' if chat else 'plain'}"
            numbers = f"{one.n:4d} {one.right:6.1f} {one.separation:5.2f} {one.yes:5.1f} {one.unclaimed:7.1f}"
            print(f"{name:<7} {numbers} {one.unscored}".rstrip(), flush=True)
    except UndertowError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
