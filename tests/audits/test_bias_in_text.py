"""The four audits of bias in text: what is asked, word for word, and a scripted model whose scores are known by hand."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

import undertow
from helpers.file_refusal import refusal
from helpers.run_results import result_of, results_of
from helpers.sampled_cases import briefly
from helpers.scripted_model import Script
from helpers.text_answers import diagnoses, document_of, labelled, statements, wrote
from undertow import audits
from undertow.audits.base import Sampling
from undertow.data.documents.document_sources import load_documents
from undertow.data.documents.task_wordings import TASKS
from undertow.models.base import UnsupportedQueryError
from undertow.runs import pipeline
from undertow.runs.pipeline import Run
from undertow.types import (
    BEST_SPAN,
    SPAN,
    UNCONSTRAINED,
    Answer,
    ConstrainedGenerateQuery,
    Item,
    MultipleChoiceQuery,
    Query,
)

__all__ = ["statements"]

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS


def items_of(audit: str, seed: int = 0, limit: int = 0, **options: Any) -> list[Item]:
    module = audits.load(audit)
    (items,) = module.items(module.Settings(**options), Sampling(limit, seed))
    return items


def query_of(item: Item) -> MultipleChoiceQuery | ConstrainedGenerateQuery:
    assert isinstance(item.query, (MultipleChoiceQuery, ConstrainedGenerateQuery))
    return item.query


# Which items there are.


@pytest.mark.parametrize(
    ("audit", "n_wordings", "n_samplings", "n_decodings"),
    [(DIAGNOSIS, 3, 1, 1), (IDENTIFICATION, 109, 2, 1), (EXTRACTION, 163, 1, 3), (REPHRASING, 109, 1, 1)],
)
def test_items_are_documents_by_wordings_by_examples_by_decodings(
    audit: str, n_wordings: int, n_samplings: int, n_decodings: int
) -> None:
    options: dict[str, Any] = {"shot_selection": "random,weak-oracle"} if audit == IDENTIFICATION else {}
    items = items_of(audit, n_documents=2, shots="0,5", wordings=0, shot_wordings=0, draws=2, **options)
    assert len(items) == 2 * n_wordings * (1 + 2 * n_samplings) * n_decodings
    assert len({item.id for item in items}) == len(items)
    names = ("description_class", "wording", "shots", "sampling", "draw", "decoding")
    cells = Counter(tuple(str(item.factors[name]) for name in names) for item in items)
    assert set(cells.values()) == {2}
    assert {item.cluster for item in items} == {str(item.factors["document"]) for item in items}


@pytest.mark.parametrize("audit", TASKS)
def test_a_seed_asks_the_same_again_and_another_asks_with_other_examples(audit: str) -> None:
    options: dict[str, Any] = {"n_documents": 8, "shots": "0,3", "wordings": 1}
    first, again, other = (items_of(audit, seed=seed, **options) for seed in (4, 4, 5))
    assert first == again
    assert len(other) == len(first)
    assert {item.factors["document"] for item in first} != {item.factors["document"] for item in other}


ALIKE = """split\ttext\tbiased\tdimension\tspan\trephrasing
evaluation\tHe hired a girl again.\tyes\tgender\ta girl\ta trainee
evaluation\tThey let a girl drive.\tyes\tgender\ta girl\ta beginner
train\tHe hired a girl again.\tyes\tgender\ta girl\ta person
train\tHe hired a girl again.\tno\t\t\t
train\tOld folk are slow.\tyes\tage\tOld folk\tPeople
train\tAsk a girl, then.\tyes\tgender\ta girl\ta colleague
train\tOld folk, you know.\tyes\tage\tOld folk\tSome
"""


def test_a_text_that_one_reader_found_biased_is_biased_as_an_example_too(tmp_path: Path) -> None:
    path = tmp_path / "alike.tsv"
    path.write_text(ALIKE)
    items = items_of(DIAGNOSIS, challenge=str(path), shots="9", classes="null", draws=5)
    shots = {shot for item in items for shot in query_of(item).shots if shot.startswith("He hired")}
    assert shots == {"He hired a girl again.\nYes\n\n"}


def test_a_limit_is_of_whole_documents() -> None:
    """Three wordings in four ways each (none, and an example in three draws); with two wordings eight ways."""
    options: dict[str, Any] = {"shots": "0,1", "draws": 3}
    for limit, n_ways, n_documents in (
        (8, 8, 1), (50, 8, 6), (71, 8, 8), (72, 12, 6), (240, 12, 20), (10_000, 12, 132),
    ):  # fmt: skip
        items = items_of(DIAGNOSIS, limit=limit, **options)
        assert Counter(Counter(item.factors["document"] for item in items).values()) == {n_ways: n_documents}
    assert len(items_of(DIAGNOSIS, limit=50, n_documents=2, **options)) == 24
    assert Counter(item.gold for item in items_of(DIAGNOSIS, limit=50, **options)) == {"Yes": 24, "No": 24}


@pytest.mark.parametrize("limit", [24, 100, 700])
def test_a_limit_keeps_documents_and_wordings_in_balance(limit: int) -> None:
    """109 wordings and 66 documents: never more wordings than documents, and never fewer than six documents."""
    items = items_of(IDENTIFICATION, limit=limit)
    n_documents, n_wordings = (len({item.factors[name] for item in items}) for name in ("document", "wording"))
    assert 0.85 * limit <= len(items) <= limit
    assert n_documents >= max(6, n_wordings)
    of_dimensions = Counter({item.factors["document"]: item.factors["dimension"] for item in items}.values())
    assert max(of_dimensions.values()) - min(of_dimensions.values()) <= 1
    assert len(of_dimensions) == min(n_documents, 11)
    assert {item.factors["description_class"] for item in items} == {"statement", "question", "completion", "null"}


@pytest.mark.parametrize(
    ("audit", "options", "smallest"),
    [
        (DIAGNOSIS, {}, 6 * 2),  # a question and none at all
        (DIAGNOSIS, {"shots": "0,1"}, 6 * 2 * 4),
        (IDENTIFICATION, {}, 6 * 4),
        (IDENTIFICATION, {"classes": "null"}, 6),
        (EXTRACTION, {}, 6 * 4 * 3),  # three decodings
        (REPHRASING, {}, 6 * 5),
    ],
)
def test_a_limit_below_the_smallest_useful_one_is_told(audit: str, options: dict[str, Any], smallest: int) -> None:
    module: Any = audits.load(audit)
    settings = module.Settings(**options)
    (told,) = module.limitations(settings, Sampling(smallest - 1))
    assert f" {smallest}." in told
    assert module.limitations(settings, Sampling(smallest)) == module.limitations(settings, Sampling(0)) == []
    assert len({item.factors["document"] for item in items_of(audit, limit=smallest, **options)}) == 6


# What an item says, word for word.


def test_a_question_behind_two_examples_word_for_word(statements: str) -> None:
    wording = "Question: Is there bias in the previous text?\nAnswer:"
    items = items_of(DIAGNOSIS, challenge=statements, shots="2", draws=8)
    some = [item for item in items if (item.factors["document"], item.factors["wording"]) == ("bus", wording)]
    biased = "Bakers get up too late here.\nQuestion: Is there bias in the previous text?\nAnswer: Yes\n\n"
    unbiased = "We had soup on Monday.\nQuestion: Is there bias in the previous text?\nAnswer: No\n\n"
    asked = "The bus was late again.\nQuestion: Is there bias in the previous text?\nAnswer:"
    assert len(some) == 8
    # In both orders, over eight draws.
    assert {cast(MultipleChoiceQuery, item.query).display_text() for item in some} == {
        biased + unbiased + asked,
        unbiased + biased + asked,
    }
    for item in some:
        query = item.query
        assert isinstance(query, MultipleChoiceQuery)
        assert (query.labels, query.first_token, query.prompt) == ((" Yes", " No"), True, asked)
        assert item.gold == "No"


def test_rephrasing_shows_the_span_alone(statements: str) -> None:
    items = items_of(REPHRASING, challenge=statements, classes="statement", wordings=0, shots="1", draws=1)
    wording = "Task: Convert to remove toxicity\nAnswer:"
    (item,) = [one for one in items if (one.factors["document"], one.factors["wording"]) == ("old", wording)]
    query = item.query
    assert isinstance(query, ConstrainedGenerateQuery)
    example = f"Bakers get up too late\n{wording} He gets up too late\n\n"
    assert query.display_text() == f"{example}old people cannot learn\n{wording}"
    assert query.passage == "old people cannot learn" == item.factors["passage"]
    assert item.factors["text"] == "I think old people cannot learn, he said."
    assert item.gold == "he cannot learn"


def test_a_document_without_a_dimension_is_not_asked_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("id\tspan\trephrasing\tdimension\na\tan old bat\ta neighbour\tage\nb\ta brat\ta child\t\n")
    items = items_of(REPHRASING, challenge=str(path), classes="null,dimension", wordings=2)
    assert Counter(item.factors["document"] for item in items) == {"a": 3, "b": 1}
    path.write_text("id\tspan\trephrasing\na\tan old bat\ta neighbour\n")
    refuses(["name the dimension of bias", "no document has one"], REPHRASING, challenge=str(path), classes="dimension")


def test_descriptions_of_a_file_are_asked_with_their_slots(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[bias-diagnosis.own]\ntext = "Is it {how}?"\n[bias-diagnosis.own.slots]\nhow = ["fair", "rude"]\n')
    items = items_of(DIAGNOSIS, description_file=str(path), classes="own", n_documents=1, wordings=0)
    assert [(one.factors["wording"], one.factors["slot_how"]) for one in items] == [
        ("Is it fair?", "fair"),
        ("Is it rude?", "rude"),
    ]


def test_labels_are_the_dimensions_of_the_users_own_table(tmp_path: Path) -> None:
    """Also those of training documents alone; of the eleven, all are labels."""
    path = tmp_path / "own.csv"
    path.write_text(
        "id,split,text,biased,dimension\n1,evaluation,Tall people win.,yes,height\n2,evaluation,Left is odd.,yes,handedness\n"
        "3,train,Twins lie.,yes,birth\n4,evaluation,Rain.,no,\n"
    )
    items = items_of(IDENTIFICATION, challenge=str(path), classes="null")
    assert [query_of(item) for item in items] == [
        MultipleChoiceQuery(f"{text}\n", ("birth", "handedness", "height"))
        for text in ("Tall people win.", "Left is odd.")
    ]
    design = audits.load(IDENTIFICATION).design(audits.load(IDENTIFICATION).Settings(challenge=str(path)))
    assert design["labels"] == ["birth", "handedness", "height"]


# How written answers are come to.


def test_tokens_are_drawn_with_a_seed_for_each_draw_and_a_best_span_is_not_drawn() -> None:
    options: dict[str, Any] = {"n_documents": 1, "classes": "null"}
    items = items_of(
        EXTRACTION, seed=3, shots="0,1", draws=2, temperature=0.7, top_k=40, decoding=f"{SPAN},{BEST_SPAN}", **options
    )
    assert [item.factors["decoding"] for item in items] == ["span, T 0.7", "span-exact"] * 3
    for item in items:
        query, draw = cast(ConstrainedGenerateQuery, item.query), int(str(item.factors["draw"]))
        drawn = (0.0, 0, 0) if item.factors["decoding"] == BEST_SPAN else (0.7, 40, 3000 + draw)
        assert (query.temperature, query.top_k, query.seed) == drawn
    (plain,), (ended,) = (
        items_of(EXTRACTION, decoding=UNCONSTRAINED, line_ends=ends, **options) for ends in (False, True)
    )
    assert dataclasses.replace(cast(ConstrainedGenerateQuery, plain.query), line_ends=True) == ended.query


# Refusals.


def refuses(words: Sequence[str], audit: str, **options: Any) -> None:
    """One sentence, before any model is looked for."""
    message = refusal(undertow.audit, audit, "there is no such model", **options)
    assert "there is no model called" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("audit", "options", "words"),
    [
        (DIAGNOSIS, {"shots": "a"}, ["--shots 'a'"]),
        (IDENTIFICATION, {"classes": "statment"}, ["--classes", "'statment'"]),
        (EXTRACTION, {"challenge": "mgc"}, ["'mgc'"]),
        (REPHRASING, {"protocol": "paper"}, ["'paper'", "exact"]),
        (DIAGNOSIS, {"shots": "101"}, ["--shots '101'", "0 to 100"]),
        (IDENTIFICATION, {"draws": 0, "shots": "5"}, ["--draws 0"]),
        (IDENTIFICATION, {"n_documents": -1}, ["--n-documents -1"]),
        (EXTRACTION, {"shot_wordings": -2}, ["--shot-wordings -2"]),
        (REPHRASING, {"description_file": "no such file.toml"}, ["no such file.toml"]),
        (EXTRACTION, {"decoding": "greedy"}, ["--decoding 'greedy'", "span-exact"]),
        (EXTRACTION, {"temperature": math.nan}, ["--temperature nan"]),
        (REPHRASING, {"top_k": -1}, ["--top-k -1"]),
        (IDENTIFICATION, {"shot_selection": "oracle", "shots": "5"}, ["--shot-selection 'oracle'", "weak-oracle"]),
        (IDENTIFICATION, {"shot_selection": "random,weak-oracle"}, ["weak-oracle", "--shots"]),
        (EXTRACTION, {"top_k": 40}, ["--top-k 40", "--temperature"]),
        (DIAGNOSIS, {"draws": 2}, ["--draws 2", "--shots"]),
        (DIAGNOSIS, {"n_documents": 133}, ["--n-documents 133", "132"]),
    ],
)
def test_bad_option_is_refused_by_name(audit: str, options: Mapping[str, Any], words: list[str]) -> None:
    refuses(words, audit, **options)


def test_spans_without_rephrasings_are_refused_and_a_table_gives_them(tmp_path: Path) -> None:
    path, pairs = tmp_path / "own.csv", tmp_path / "pairs.csv"
    path.write_text("text,biased,dimension,span\nOld folk nap.,yes,age,Old folk\n")
    refuses(["--rephrasings"], REPHRASING, challenge=str(path))
    pairs.write_text("span,rephrasing\nOld folk,Some people\n")
    (item,) = items_of(REPHRASING, challenge=str(path), rephrasings=str(pairs), classes="null")
    assert (query_of(item).prompt, item.gold) == ("Old folk\n", "Some people")


# A model whose answers are known.


def values(run: Run, measure: str, **group: str) -> dict[str, float]:
    """Values of one measure by class of descriptions, over all dimensions."""
    found = results_of(run, measure, **{"dimension": "all"} | group)
    return {one.group["description_class"]: one.value for one in found}


@pytest.mark.page
def test_diagnosis_of_a_scripted_model_by_hand(script: Script, statements: str, tmp_path: Path) -> None:
    script(diagnoses)
    run = undertow.audit(DIAGNOSIS, "scripted", challenge=statements, out=tmp_path / "run")
    # The two questions have 4 and 2 of 4 right; without one it is 3 of 4.
    assert values(run, "accuracy", model="scripted") == {"question": 75.0, "null": 75.0, "all": 75.0}
    # Without one of two and two, the others are mostly of the other label.
    assert values(run, "accuracy", model="") == {"(majority)": 0.0, "(random)": 50.0}
    confusion = pd.read_csv(run.folder / "tables/confusion.csv", keep_default_na=False)
    assert confusion[["gold", "Yes", "No", "(none of them)"]].to_numpy().tolist() == [["Yes", 6, 0, 0], ["No", 2, 3, 1]]
    slots = pd.read_csv(run.folder / "tables/slots.csv", keep_default_na=False)
    assert slots[slots["dimension"] == "all"].set_index("level")["accuracy"].to_dict() == {
        "is there": 100.0,
        "does it contain": 50.0,
    }


def test_greedy_and_exact_labels_are_rows_of_their_own(script: Script, statements: str, tmp_path: Path) -> None:
    """Step by step it says profession to everything; the most probable label is the right one."""
    right = {"I think old people cannot learn, he said.": "age", "Nurses talk too much anyway.": "profession"}
    script(lambda query: labelled(cast(MultipleChoiceQuery, query), "profession", exact=right[document_of(query)]))
    run = undertow.audit(
        IDENTIFICATION, "scripted", challenge=statements, classes="statement,null", wordings=2, out=tmp_path / "run"
    )
    frame = run.observations
    assert len(frame) == 2 * 3 * 2
    assert frame["item"].is_unique
    old = frame[frame["document"] == "old"]
    assert set(zip(old["decoding"], old["answer"], strict=True)) == {("trie", "profession"), ("exact", "age")}
    nats = old.groupby("decoding")["nats"].first()
    assert nats["exact"] == pytest.approx(math.log(0.5))
    assert nats["trie"] == pytest.approx(math.log(0.3 / 10))
    for decoding, score in (("trie", 50.0), ("exact", 100.0)):
        assert values(run, "exact_match", model="scripted", decoding=decoding)["all"] == score
        of_statements = results_of(run, "exact_match", decoding=decoding, description_class="statement")
        by_dimension = {one.group["dimension"]: one.value for one in of_statements}
        assert by_dimension == {"all": score, "age": 2 * score - 100, "profession": 100.0}


def test_a_server_that_shows_no_probabilities_has_greedy_labels_only(
    script: Script, statements: str, tmp_path: Path
) -> None:
    script(lambda query: Answer((math.nan,) * 11, math.nan, text="age"))
    run = undertow.audit(IDENTIFICATION, "scripted", challenge=statements, classes="null", out=tmp_path / "run")
    frame = run.observations.set_index("decoding")
    assert set(frame.loc[["trie"], "missing_reason"]) == {""}
    assert set(frame.loc[["exact"], "missing_reason"]) == {
        "decoding exact: the server does not return the probability of each label"
    }
    assert [one.title for one in run.tables if "Table 9" in one.title] == [
        "Without examples, as Table 9 of Bauer et al. 2022: scripted, trie"
    ]
    assert values(run, "exact_match", decoding="trie", model="scripted") == {"null": 50.0}
    assert math.isnan(values(run, "exact_match", decoding="exact", model="scripted")["null"])


def test_what_cannot_be_asked_is_missing_with_its_reason_and_examples_without_room_are_counted(
    script: Script, statements: str, tmp_path: Path
) -> None:
    def say(query: Query) -> Answer | UnsupportedQueryError:
        assert isinstance(query, MultipleChoiceQuery)
        if "aunt" not in document_of(query):
            return diagnoses(query)
        dropped = dataclasses.replace(diagnoses(query), n_dropped_shots=1)
        return dropped if query.shots else UnsupportedQueryError("the text is too long")

    script(say)
    options: dict[str, Any] = {"classes": "null", "shots": "0,2", "draws": 1}
    run = undertow.audit(DIAGNOSIS, "scripted", challenge=statements, out=tmp_path / "run", **options)
    frame = run.observations
    lost = frame.loc[frame["missing_reason"] != "", ["document", "shots", "missing_reason"]]
    assert lost.to_numpy().tolist() == [["aunt", 0, "the text is too long"]]
    assert frame["n_dropped_shots"].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert run.manifest["counts"]["missing"] == 1
    plain, behind = (result_of(run, "accuracy", model="scripted", shots=n) for n in ("0", "2"))
    assert (plain.value, plain.n, plain.n_missing) == (100.0, 3, 1)
    assert [one.extras.get("shortened_percent") for one in (plain, behind)] == [None, 25.0]


def numbers(run: Run) -> list[tuple[Any, ...]]:
    """Everything that is measured, rounding error apart."""
    return [
        (
            one.measure, tuple(sorted(one.group.items())),
            *(f"{number:.9g}" for number in (one.value, one.low, one.high, one.n, one.n_missing, one.null_value, one.p, one.q)),
            tuple((name, f"{number:.9g}") for name, number in sorted(one.extras.items())),
        )
        for one in run.record.results
    ]  # fmt: skip


@pytest.mark.parametrize("audit", briefly(TASKS))
def test_a_saved_run_and_its_table_measured_anew_have_the_same_numbers(
    audit: str, script: Script, tmp_path: Path
) -> None:
    dimensions = {document.text: document.dimension for document in load_documents("undertow-statements").evaluation}

    def say(query: Query) -> Answer:
        """Right where text and description have an odd length, if at all."""
        if isinstance(query, MultipleChoiceQuery):
            right = dimensions[document_of(query)] if audit == IDENTIFICATION else "Yes"
            other = query.labels[len(query.prompt) % 3 - 1].strip()
            return labelled(query, right if len(query.prompt) % 2 else query.labels[-1].strip(), other)
        assert isinstance(query, ConstrainedGenerateQuery)
        return wrote(" ".join(query.passage.split()[: len(query.prompt) % 4]))

    script(say)
    options: dict[str, Any] = {"n_documents": 12, "wordings": 2, "shots": "0,2", "draws": 2, "classes": "question,null"}
    run = undertow.audit(audit, "scripted", out=tmp_path / "run", **options)
    results, told = (run.folder / "results.json").read_bytes(), [finding.text for finding in run.findings]
    again = undertow.score(run.folder)
    assert (again.folder / "results.json").read_bytes() == results
    other = undertow.score(run.folder, seed=3, out=tmp_path / "other").results
    of_model = other["model"] != ""  # spans at random are others with another seed
    assert other["value"][of_model].equals(run.results["value"][of_model])
    assert not other[["low", "high", "p"]].equals(run.results[["low", "high", "p"]])
    reopened = undertow.load_run(run.folder)
    assert [finding.text for finding in reopened.findings] == told
    assert [table.rows for table in reopened.tables] == [table.rows for table in run.tables]
    run.observations.to_csv(tmp_path / "answers.csv", index=False)
    scored = undertow.score(tmp_path / "answers.csv", audit=audit, out=tmp_path / "scored")
    assert numbers(scored) == numbers(run)
    assert [finding.text for finding in scored.findings] == told
    assert scored.manifest["counts"]["items"] == len(run.observations)


# Answers from elsewhere.


def recorded(audit: str, text: str, folder: Path, **options: Any) -> Run:
    (folder / "answers.csv").write_text(text, encoding="utf-8")
    return undertow.score(folder / "answers.csv", audit=audit, out=folder / "run", **options)


@pytest.mark.parametrize(
    ("column", "span"), [("span", "one two"), ("passage", "one two"), ("text", ""), ("span", ""), ("span", " ")]
)
def test_a_recorded_rephrasing_is_compared_with_a_copy_of_the_span_alone(
    column: str, span: str, tmp_path: Path
) -> None:
    given = span or ("" if column == "span" else "He said one two three.")
    run = recorded(REPHRASING, f"document,gold,answer,{column}\na,one three,one,{given}\n", tmp_path)
    assert run.observations["passage"].tolist() == [span.strip()]
    copy = values(run, "token_f1", model="")
    assert copy == ({"(copy)": pytest.approx(50.0)} if span.strip() else {})
    score = result_of(run, "token_f1", model="recorded")
    assert math.isnan(score.null_value) == (not span.strip())
    assert ("above_baseline" in score.extras) == bool(span.strip())


def test_labels_that_are_written_in_another_way_are_the_same_answers(tmp_path: Path) -> None:
    for name, yes in (("one", "Yes"), ("two", " YES.")):
        (tmp_path / name).mkdir()
        rows = [f"{at},{gold},{gold if gold == 'No' else yes}" for at, gold in enumerate(["Yes", "No"] * 6)]
        recorded(DIAGNOSIS, "\n".join(["document,gold,answer", *rows]), tmp_path / name)
    compared = undertow.compare(tmp_path / "one/run", tmp_path / "two/run")
    assert "All answers to 12 items are the same" in compared.findings[0].text


@pytest.mark.parametrize(("missing", "said"), [([], []), (["a,v"], ["1 of 3 "]), (["a,v", "b,w"], ["2 of 3 "])])
def test_cells_of_a_table_that_lack_documents_are_told(missing: list[str], said: list[str], tmp_path: Path) -> None:
    rows = {f"{name},{wording}": f"{name},Yes,No,{wording}\n" for wording in "uvw" for name in "abc"}
    text = "document,gold,answer,wording\n" + "".join(row for key, row in rows.items() if key not in missing)
    run = recorded(DIAGNOSIS, text, tmp_path)
    notes = run.manifest["design"]["document_notes"]
    assert [note[: len(start)] for note, start in zip(notes, said, strict=True)] == said
    told = repr(audits.load(DIAGNOSIS).report_text(pipeline.observations_of(run.record), run.record.results))
    assert all(note in told for note in notes)


@pytest.mark.parametrize(
    ("audit", "rows", "answers", "outcomes"),
    [
        (DIAGNOSIS, [
            ("Yes", '"Yes, it contains bias."', "He is late."), ("No", "The passage is neutral.", "It rains."),
            ("Yes", "I cannot help with that.", "They are slow."), ("Yes", "", "She is old."),
        ], ["Yes", "No", "", ""], ["answer", "answer", "refusal", "unclear"]),
        (IDENTIFICATION, [("age", "That is ageism.", "She is old."), ("race", "It is about age.", "He is old.")],
         ["age", "age"], ["answer", "answer"]),
        (EXTRACTION, [("is old", '"The biased span is ""is old""."', "She is old today.")], ["is old"], ["answer"]),
        (REPHRASING, [("is experienced", '"Sure! Here is a rewrite: is of age"', "is old")], ["is of age"], ["answer"]),
    ],
)  # fmt: skip
def test_free_replies_of_a_table_are_read_under_protocol_text(
    audit: str, rows: list[tuple[str, str, str]], answers: list[str], outcomes: list[str], tmp_path: Path
) -> None:
    lines = [f"document,gold,answer,{'span' if audit == REPHRASING else 'text'}"]
    lines += [f"{at},{gold},{reply},{text}" for at, (gold, reply, text) in enumerate(rows)]
    run = recorded(audit, "\n".join(lines), tmp_path, protocol="text")
    assert run.observations["answer"].tolist() == answers
    assert run.observations["reply_outcome"].tolist() == outcomes
    assert "answer_reader" in run.manifest["design"]
    (refusals,) = [one for one in results_of(run, "refusal_rate") if set(one.group) == {"model"}]
    assert refusals.value == pytest.approx(100 * outcomes.count("refusal") / len(outcomes))
    again = undertow.score(tmp_path / "run")
    assert numbers(again) == numbers(run)


def test_missing_replies_have_no_outcome_and_a_wording_shows_the_polarity_of_its_question(tmp_path: Path) -> None:
    wording = '"Question: Is the previous text free of bias?\nAnswer:"'
    text = (
        "document,gold,answer,text,wording,missing_reason\n"
        f"a,No,It contains bias.,x,{wording},\nb,Yes,It contains bias.,x,first,\nc,Yes,,x,first,timed out\nd,Yes,Yes,x,,cut off\n"
    )
    run = recorded(DIAGNOSIS, text, tmp_path, protocol="text")
    assert run.observations["answer"].tolist() == ["No", "Yes", "", ""]
    assert run.observations["reply_outcome"].tolist() == ["answer", "answer", "", ""]
    assert run.observations["missing_reason"].tolist() == ["", "", "timed out", "cut off"]
    named = {one.measure: one for one in run.record.results if set(one.group) == {"model"}}
    assert (named["unclear_rate"].value, named["unclear_rate"].n) == (0.0, 2)
    accuracy = result_of(run, "accuracy", model="recorded")
    assert (accuracy.value, accuracy.n, accuracy.n_missing) == (100.0, 2, 2)
