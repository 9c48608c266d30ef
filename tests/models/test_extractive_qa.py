from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import answering
from helpers.answering import answers, change_json, found_as, told
from helpers.tiny_qa_models import BERT, NAMES, POSITIONS, ROBERTA, SKILLS, STYLES, lesson
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import estimate
from undertow.models.base import UnsupportedQueryError
from undertow.models.families import extractive_qa
from undertow.models.tokens.qa_windows import EncodedQuestion, _pieces, locate_spans
from undertow.types import EXACT, Answer, Query, SpanQuery

torch = pytest.importorskip("torch", reason="the model extra is not installed")

PLAIN = ("Mary met James. Susan has skills in cooking.", "Who met James?")
LONG = (
    " ".join(f"{name} has skills in {skill}." for name, skill in zip(NAMES, (*SKILLS, "sailing"), strict=False)),
    "Who has skills in coding?",
)


# `QuestionAnsweringPipeline` of transformers 4.52.4 and of 4.57.6, which agree here to the last digit, with torch 2.13.0, on what
# `random_reader` saves: pipeline("question-answering", folder, tokenizer=...)(question=..., context=..., align_to_words=False), and
# (probabilities of pieces of the plain passage, of all of it, of no answer; and the long passage's)
#     pieces      top_k=30, of whole words
#     whole       top_k=5000, max_answer_len=60, the first of the whole passage
#     best        nothing more
#     null        top_k=500 (3000 for the long one), handle_impossible_answer=True, the first without words
#     words       align_to_words=True, of 4.52.4 (4.57.6 adds up the pieces that are the same words then)
RECORDED = {
    BERT: SimpleNamespace(
        pieces={
            "has skills in cooking": 0.011139902286231518,
            "has": 0.01110914722084999,
            "skills in cooking": 0.010481485165655613,
            "has skills in cooking.": 0.010430516675114632,
        },
        whole=0.009210171177983284,
        words="has skills in cooking",
        best=0.011139902286231518,
        null=0.007760228123515844,
        long_words="Anna has skills in nursing. Mark has",
        long_best=0.0010409454116597772,
        long_null=0.00031054692226462066,
    ),
    ROBERTA: SimpleNamespace(
        pieces={
            "James. Susan": 0.005739392712712288,
            "Mary": 0.005628307815641165,
            "Mary met James. Susan": 0.005542661063373089,
            "skills": 0.005515012424439192,
        },
        whole=0.004672661889344454,
        words="Mary",  # whose last letter alone is the most probable piece
        best=0.006044835317879915,
        null=0.004815536085516214,
        long_words="skills in teaching. David",
        long_best=0.0004952798481099308,
        long_null=0.00033049064222723246,
    ),
}


@pytest.fixture(scope="module")
def folders(network: Callable[[str], str]) -> dict[str, str]:
    return {style: network(f"{style}_reader") for style in STYLES}


@pytest.fixture(scope="module", params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reader(folders: dict[str, str], style: str) -> Any:
    return opened(folders[style])


opened = partial(answering.opened, extractive_qa)


def probs(answer: Answer) -> list[float]:
    assert not answer.missing_reason
    return [math.exp(nats) for nats in answer.logprobs_nats]


def by_hand(model: Any, query: SpanQuery) -> list[float]:
    """Every pair of tokens of every window by the plainest means: one forward each, probabilities multiplied in Python."""
    windows = {"truncation": "only_second", "max_length": POSITIONS, "stride": POSITIONS // 2}
    told_too = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    coded = model.qa_encoder.tokenizer(query.question, query.passage, **windows, **told_too)
    pieces: dict[tuple[int, int], float] = {}
    best, null = 0.0, 1.0
    for window, tokens in enumerate(coded["input_ids"]):
        names = [name for name in model.qa_encoder.tokenizer.model_input_names if name in coded]
        fed = {name: torch.tensor([coded[name][window]]) for name in names}
        with torch.inference_mode():
            out = model.network(**fed)
        own = [at for at, sequence in enumerate(coded.sequence_ids(window)) if sequence == 1]
        kept = [0, *own]
        starts, ends = (
            dict(zip(kept, logits[0, kept].double().softmax(0).tolist(), strict=True))
            for logits in (out.start_logits, out.end_logits)
        )
        null = min(null, starts[0] * ends[0])
        for start in own:
            for end in range(start, own[-1] + 1):
                prob = starts[start] * ends[end]
                span = coded["offset_mapping"][window][start][0], coded["offset_mapping"][window][end][1]
                pieces[span] = max(pieces.get(span, 0.0), prob)
                if end - start < 15:
                    best = max(best, prob)
        assert tokens[0] == model.qa_encoder.tokenizer.cls_token_id
    candidates = [max(pieces.get(span, 0.0) for span in locate_spans(query.passage, one)) for one in query.candidates]
    return [*candidates, null, best]


def test_the_recorded_scores_of_the_pipeline(reader: Any, style: str) -> None:
    recorded = RECORDED[style]
    plain, long = told(reader, [SpanQuery(*PLAIN, (*recorded.pieces, PLAIN[0])), SpanQuery(*LONG)])
    expected = [*recorded.pieces.values(), recorded.whole, recorded.null, recorded.best]
    assert probs(plain) == pytest.approx(expected, rel=1e-5)
    assert plain.text == recorded.words
    assert probs(long) == pytest.approx([recorded.long_null, recorded.long_best], rel=1e-5)
    assert long.text == recorded.long_words
    assert math.isnan(plain.other_prob)


def test_every_piece_is_what_the_plainest_reading_says(reader: Any) -> None:
    generator = random.Random(1)
    queries = []
    for n_sentences in (1, 2, 3, 5, 8, 16):
        lines = [f"{generator.choice(NAMES)} lives in {generator.choice(SKILLS)}." for _ in range(n_sentences)]
        passage = " ".join(lines)
        queries.append(SpanQuery(passage, "Who lives in coding?", tuple({*passage.split(), *lines})))
    for query, answer in zip(queries, told(reader, queries), strict=True):
        assert probs(answer) == pytest.approx(by_hand(reader, query), rel=1e-5)
    assert any("windows" in note for note in reader.notes)


@pytest.mark.parametrize(
    ("passage", "piece", "expected"),
    [
        ("Alice met Al.", "Al", [(10, 12)]),
        ("Alice", "Al", []),
        ("Mary's hat, Mary", "Mary", [(0, 4), (12, 16)]),
        ("José and Jose", "Jose", [(9, 13)]),
        ("Jose\u0301 left", "Jose", []),
        ("田中さんは医者です", "田中", [(0, 2)]),
        ("no no no", "no no", [(0, 5), (3, 8)]),
    ],
)
def test_where_a_piece_stands(passage: str, piece: str, expected: list[tuple[int, int]]) -> None:
    assert locate_spans(passage, piece) == expected


def test_a_candidate_in_a_later_window_and_one_that_none_holds(reader: Any) -> None:
    last = LONG[0].rstrip(".").rpartition(" ")[2]
    long = "Mary has skills in cooking. " * 12
    in_last = SpanQuery(*LONG, (last,))
    whole, cut = told(reader, [in_last, SpanQuery(long, LONG[1], (long.strip(),))])
    assert probs(whole)[0] == pytest.approx(by_hand(reader, in_last)[0], rel=1e-5)
    assert "no window holds a candidate whole" in cut.missing_reason


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (SpanQuery("Alice lives here.", "Who?", ("Al",)), "within longer words"),
        (SpanQuery(" ", "Who?"), "empty"),
        (SpanQuery(LONG[0], "Who is it " * 8 + "?"), "64 tokens"),
        (SpanQuery("Mary met James.", "Who is it " * 30 + "?"), "64 tokens"),
    ],
)
def test_what_cannot_be_asked_has_its_reason_and_spoils_nothing(reader: Any, query: Query, reason: str) -> None:
    before, refused, after = told(reader, [SpanQuery(*PLAIN), query, SpanQuery(*PLAIN, ("Mary",))])
    assert reason in refused.missing_reason
    assert before.logprobs_nats == after.logprobs_nats[1:]


def test_questions_of_every_length_are_answered_or_refused(reader: Any, style: str) -> None:
    found = told(reader, [SpanQuery(LONG[0], "is " * n) for n in range(POSITIONS)])
    refused = [bool(one.missing_reason) for one in found]
    # From 1 on, 0 being empty: 64 tokens, less 3 around BERT's question or 4 and 2 more in RoBERTa's, must leave more than 32.
    assert refused[0]
    assert refused[1:] == [n >= {BERT: 64 - 3 - 32, ROBERTA: 64 - 6 - 32}[style] for n in range(1, POSITIONS)]


def test_a_token_that_is_two_words_is_no_candidate(folders: dict[str, str]) -> None:
    qa_encoder = opened(folders[BERT]).qa_encoder
    query = SpanQuery("Mary-James met Susan.", "Who met Susan?", ("Mary",))
    (posed,) = qa_encoder.encode([query])
    assert isinstance(posed, EncodedQuestion)
    joined = replace(posed.windows[0], offsets=np.array([[0, 10], [11, 14], [15, 20], [20, 21]]))
    with pytest.raises(UnsupportedQueryError, match="joins a candidate"):
        _pieces(query.passage, "Mary", [joined])


def many(n_queries: int = 60) -> list[SpanQuery]:
    generator = random.Random(2)
    queries = []
    for _ in range(n_queries):
        passage, question, _ = lesson(generator)
        names = tuple(name for name in NAMES if locate_spans(passage, name))
        queries.append(SpanQuery(passage, question, names))
    return [*queries, SpanQuery(*LONG, ("Mary",)), SpanQuery(LONG[0], PLAIN[1], ("Ruth",))]


def test_together_as_one_by_one(reader: Any, tmp_path: Path) -> None:
    """And as in a run that is taken up again, to the last digit."""
    queries = many()
    together = told(reader, queries)
    answers(reader, [queries[place] for place in reader.packs(queries)[0]], tmp_path / "cut")
    again = answers(reader, queries, tmp_path / "cut")
    assert [answer.logprobs_nats for answer in again] == [answer.logprobs_nats for answer in together]
    for query, answer in zip(queries, together, strict=True):
        (alone,) = told(reader, [query])
        assert answer.logprobs_nats == pytest.approx(alone.logprobs_nats, abs=1e-5)
        assert answer.text == alone.text


def test_packs_hold_each_query_once_and_no_padding(reader: Any) -> None:
    queries = [*many(), SpanQuery(" ", "Who?")]
    packs = reader.packs(queries)
    assert packs[0] == [len(queries) - 1]
    assert sorted(place for pack in packs for place in pack) == list(range(len(queries)))
    posed = reader.qa_encoder.encode(queries[:-1])
    for pack in packs[1:]:
        assert len({tuple(len(window.tokens) for window in posed[place].windows) for place in pack}) == 1
        distinct = {posed[place].network_input: posed[place] for place in pack}.values()
        assert sum(len(window.tokens) for one in distinct for window in one.windows) <= reader.limits.budget_tokens


@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        ("config.json", {"model_type": "vilt", "architectures": ["ViltForQuestionAnswering"]}, "vilt"),
        ("tokenizer_config.json", {"model_input_names": ["input_ids", "bbox"]}, "bbox"),
    ],
)
def test_a_model_that_is_asked_by_more_than_a_text_is_refused(
    file: str, changes: dict[str, Any], named: str, folders: dict[str, str], tmp_path: Path
) -> None:
    change_json(shutil.copytree(folders[BERT], tmp_path, dirs_exist_ok=True) / file, **changes)
    with pytest.raises(UndertowError, match=named):
        opened(str(tmp_path))


def test_without_a_token_for_no_answer_that_is_missing(folders: dict[str, str], tmp_path: Path) -> None:
    change_json(
        shutil.copytree(folders[ROBERTA], tmp_path, dirs_exist_ok=True) / "tokenizer_config.json", cls_token=None
    )
    model = opened(str(tmp_path))
    (answer,) = told(model, [SpanQuery(*PLAIN, ("Mary",))])
    assert [math.isnan(nats) for nats in answer.logprobs_nats] == [False, True, False]
    assert any("do not open with" in note for note in model.notes)
    assert not any("do not open with" in note for note in opened(folders[ROBERTA]).notes)


def test_a_text_is_read_once_whatever_is_asked_of_it(reader: Any) -> None:
    rows: list[int] = []
    noted = reader.network.register_forward_pre_hook(
        lambda _, args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    with noted:
        told(reader, [SpanQuery(*PLAIN, (name,)) for name in ("Mary", "James", "Susan")])
    assert rows == [1]


def test_effort(reader: Any, tmp_path: Path) -> None:
    queries = [SpanQuery(*PLAIN, ("Mary",)), SpanQuery(*PLAIN, ("James",)), SpanQuery(*LONG)]
    windows = {window.network_input for posed in reader.qa_encoder.encode(queries) for window in posed.windows}
    with AnswerCache(tmp_path / "store") as store:
        effort = estimate(found_as(reader), queries, store, EXACT)
    assert effort.n_tokens == sum(len(tokens) for tokens, _ in windows)
    assert effort.n_passes == 3  # the plain text once, the full windows of the long one, and its last
    assert effort.seconds > 0
    assert effort.memory_bytes > 4 * reader.facts["parameters"]
    assert reader.estimate_cost([], EXACT).n_passes == 0
