from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from helpers.chatty_server import chatty_server
from helpers.cli_refusal import refused
from helpers.scripted_model import Script, Scripted
from undertow import models
from undertow._folders import cache_file
from undertow.errors import UndertowError
from undertow.inference.doctor import examine, kinds
from undertow.inference.sanity_check import SanityCheck
from undertow.models.base import ModelHandle, ModelRequest, RequestFailedError
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXACT,
    GENERATION,
    PAPER,
    TEXT,
    WRITING,
    Answer,
    ClozeQuery,
    GenerateQuery,
)

Said = Callable[[Any], Answer | RequestFailedError]
Plant = Callable[..., Scripted]


@pytest.fixture
def plant(script: Script) -> Plant:
    def plant(capabilities: Mapping[str, tuple[str, ...]], said: Said, dtype: str = "as served") -> Scripted:
        return script(said, capabilities, name="planted", dtype=dtype, notes=("as in the script",))

    return plant


def shares(**of_group: float) -> Said:
    """Each group has this probability, spread over its options."""

    def said(query: ClozeQuery | GenerateQuery) -> Answer:
        groups = [option.group for option in query.options]
        probs = [of_group[group] / groups.count(group) for group in groups]
        logprobs = tuple(math.log(prob) if prob else -math.inf for prob in probs)
        return Answer(logprobs, max(0.0, 1 - sum(probs)), text=" she.")

    return said


def test_what_the_toy_can_do() -> None:
    checkup = examine(ModelRequest("toy:slope=-5"))
    by_tokens = {BLANK: (EXACT,), CONTINUATIONS: (EXACT,), CHOICE: (EXACT, PAPER), WRITING: (EXACT,)}
    assert dict(checkup.capabilities) == by_tokens | {GENERATION: (EXACT, PAPER)}
    exact, either = "yes, by protocol exact", "yes, by protocol exact or paper"
    assert list(kinds(checkup).values()) == [exact, exact, either, either, exact, "no"]
    # The toy looks at the year alone, and gives the same word whatever a sentence says.
    assert checkup.reading is not None
    assert (checkup.reading.right, checkup.reading.answered, checkup.reading.reads) == (10, 20, False)
    assert set(checkup.items_per_s) == {BLANK}
    assert checkup.load_s >= 0
    # Its arithmetic is the same whatever it is told, and nothing is compared with itself.
    assert checkup.dtype == "float32"
    assert checkup.dtype_note
    assert math.isnan(checkup.dtype_gap_nats)
    assert not cache_file().exists()


def reads(query: ClozeQuery | GenerateQuery) -> Answer:
    """The right word, told from the sentence as a person would."""
    text = query.display_text() if isinstance(query, ClozeQuery) else query.prompt
    women = ["woman", "mother", "sister", "girl", "queen", "aunt", "princess", "lady", "Mrs."]
    probs = {"female": 0.3, "male": 0.1} if any(word in text for word in women) else {"female": 0.1, "male": 0.3}
    answer = shares(**probs)(query)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("kind", [BLANK, GENERATION])
@pytest.mark.parametrize(
    ("said", "right", "low", "high"),
    [
        (reads, 20, 83.16, 100),
        (shares(female=0.5, male=0.2), 10, 27.20, 72.80),
        (shares(female=0.2, male=0.5), 10, 27.20, 72.80),
        (shares(female=0.2, male=0.2), 0, 0, 16.84),
        (shares(female=0.0, male=0.0), 0, 0, 16.84),
    ],
    ids=["reads", "always she", "always he", "equal", "nothing"],
)
def test_who_reads_is_told_from_who_gives_one_word(  # noqa: PLR0917 - a case each
    kind: str, said: Said, right: int, low: float, high: float, plant: Plant
) -> None:
    """Intervals are those of scipy.stats.binomtest(right, 20).proportion_ci(method="exact")."""
    model = plant({kind: (EXACT, PAPER)}, said)
    checkup = examine(ModelRequest("planted"))
    found = checkup.reading
    assert found is not None
    assert (found.right, found.answered) == (right, 20)
    assert [found.low_percent, found.high_percent] == pytest.approx([low, high], abs=0.01)
    assert found.reads == (right == 20)
    assert ("no better than chance" in found.verdict) == (right < 20)
    assert list(checkup.items_per_s) == [kind]
    assert (model.protocols, checkup.notes) == ({EXACT}, ("as in the script",))
    # One word a group at a blank: one that a tokenizer does not know loses the whole sentence.
    assert all(len(query.options) == 2 for query in model.asked if isinstance(query, ClozeQuery))


def test_a_model_that_can_be_asked_neither_or_is_cut_off_has_no_verdict(plant: Plant) -> None:
    model = plant({CHOICE: (EXACT,)}, shares())
    checkup = examine(ModelRequest("planted"))
    assert (list(kinds(checkup).values()).count("no"), checkup.reading, model.asked) == (5, None, [])
    plant({GENERATION: (EXACT,)}, lambda query: RequestFailedError("the line was cut"))
    lost = examine(ModelRequest("planted")).reading
    assert lost is not None
    assert (lost.answered, lost.reads, "the line was cut" in lost.verdict) == (0, False, True)


@pytest.mark.parametrize(
    ("ceiling", "others", "unseen", "could_flip"), [(0.01, 0.0, 0.5, 0), (0.25, 0.0, 0.5, 20), (0.15, 0.15, 0.12, 0)]
)
def test_what_is_not_shown_may_turn_the_verdict(
    ceiling: float, others: float, unseen: float, could_flip: int, plant: Plant
) -> None:
    """A bound on the words, or on all of them, decides whether what is not shown could turn 0.3 for the right word against 0.1."""

    def said(query: Any) -> Answer:
        shown = reads(query)
        least = min(shown.logprobs_nats)
        ceilings = tuple(ceiling if nats == least else others for nats in shown.logprobs_nats)
        return replace(shown, upper_bound_prob=ceilings, truncated_prob=unseen)

    plant({GENERATION: (EXACT,)}, said)
    found = examine(ModelRequest("planted")).reading
    assert found is not None
    assert (found.right, found.could_flip, found.reads) == (20, could_flip, not could_flip)
    verdict = (
        "which is not certainly better than chance (50%); probability that it does not show could change 20 of them"
    )
    assert (verdict in found.verdict) == (could_flip > 0)


def test_wrong_answers_that_could_change_do_not_count_against_the_right_ones() -> None:
    found = SanityCheck(15, 20, 51.0, 91.0, could_flip=5, could_lose=0)
    assert found.reads
    assert not replace(found, could_lose=1).reads


def test_a_precision_that_is_refused_does_not_end_the_check_up(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant({BLANK: (EXACT,)}, reads, "float32")
    planted = models.resolve

    def resolve(request: ModelRequest) -> ModelHandle:
        if request.dtype == "bfloat16":
            raise UndertowError("planted has no weights")
        return planted(request)

    monkeypatch.setattr(models, "resolve", resolve)
    checkup = examine(ModelRequest("planted"), compare_dtypes=True)
    assert checkup.dtype_note == "planted has no weights"
    assert checkup.reading is not None
    assert checkup.reading.reads


def test_a_server_that_only_chats_is_checked_by_its_replies(plant: Plant) -> None:
    with chatty_server(lambda prompt: "I'd say she." if "woman" in prompt or "girl" in prompt else "He.") as seen:
        request = ModelRequest("openai:people-like", settings={"base_url": seen.url})
        checkup = examine(request, chat=True, protocol=TEXT)
        found = checkup.reading
        assert found is not None
        assert (found.right, found.answered) == (12, 20)  # ten of men, two of women
        # It gives no log-probabilities, and names no owner that has grammars.
        assert [answer for answer in kinds(checkup).values() if answer != "no"] == ["yes, by protocol text"] * 3
        assert len(seen.to("/chat/completions")) == len(seen.bodies) >= 20
        with pytest.raises(UndertowError, match="--compare"):
            examine(request, protocol=TEXT, compare_dtypes=True)
        examine(request, chat=True, protocol=TEXT, max_new_tokens=7)
        assert [body.get("max_tokens") or body.get("max_completion_tokens") for body in seen.bodies][-1] == 7
        with pytest.raises(UndertowError, match="add --protocol text"):
            examine(request, max_new_tokens=7)
    plant({BLANK: (EXACT,)}, reads)
    with pytest.raises(UndertowError, match="--chat"):
        examine(ModelRequest("planted"), chat=True)


@pytest.mark.slow
def test_a_masked_model_is_asked_at_its_mask(network: Callable[[str], str], cli: Cli) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    name = network("trained_bert")
    told = checkup_of(cli, "-m", name, "--compare")
    assert (told["identity"]["family"], told["identity"]["scoring_method"]) == ("masked", "mask")
    assert told["capabilities"] == {"blank": ["exact", "paper"]}
    assert list(told["items_per_s"]) == ["blank"]
    assert 0 < told["dtype_gap_nats"] < 5
    assert 0 <= told["dtype_flips"] <= 1
    # It has learned words, and not what a sentence says of them; one pair has a word that it does not know.
    assert (told["reading"]["answered"], told["reading"]["low_percent"] > 50) == (18, False)
    assert told["reading"]["missing_reason"]
    assert told["facts"]["parameters"] > 1000
    assert told["facts"]["objective"]


def checkup_of(cli: Cli, *arguments: str) -> Any:
    """What `undertow doctor` prints as JSON."""
    done = cli("doctor", *arguments, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    return json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_a_model_without_an_answer_is_told_of_in_words_and_json(plant: Plant, cli: Cli) -> None:
    plant({BLANK: (EXACT,)}, lambda query: Answer.missing("it sneezed"), "float32")
    assert cli("doctor", "-m", "planted", "--compare").stdout.count("it sneezed") == 2  # reading and precision
    told = checkup_of(cli, "-m", "planted", "--compare")
    assert "it sneezed" in told["dtype_note"]
    assert (told["reading"]["missing_reason"], told["reading"]["low_percent"]) == ("it sneezed", None)
    assert (told["items_per_s"], told["dtype_gap_nats"]) == ({}, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["-m", "toy", "--concurrency", "3"], ["--concurrency", "openai", "toy"]), (["-m", "./nosuch"], ["nosuch"])],
)
def test_what_cannot_be_examined_is_refused(arguments: list[str], words: list[str], cli: Cli) -> None:
    refused(cli("doctor", *arguments), *words)


AGES = """title = "Ages"
source = "our own"
templates = ["In {w}, the {blank} teacher {verb} late."]
w = ["date"]

gaps = [["young", "old"]]

[groups]
young = ["young"]
old = ["old"]

[slots]
verb = ["was", "is", "came", "left"]
"""


@pytest.mark.page
@pytest.mark.parametrize(
    ("said", "challenge", "reading", "caveat"),
    [
        (reads, "", {"right": 5, "of": 5}, ""),
        (shares(female=0.5, male=0.2, neutral=0.1), "", {"right": 3, "of": 5}, "3 of 5 control sentences right"),
        (shares(young=0.5, old=0.2), AGES, None, ""),
    ],
    ids=["reads", "always she", "other groups"],
)
def test_a_run_says_first_that_a_model_does_not_read(  # noqa: PLR0917 - a case each
    said: Said, challenge: str, reading: Any, caveat: str, plant: Plant, tmp_path: Path
) -> None:
    def also_neutral(query: Any) -> Answer | RequestFailedError:
        three = said is reads and "neutral" in {option.group for option in query.options}
        return shares(female=0.3, male=0.2, neutral=0.1)(query) if three else said(query)

    plant({BLANK: (EXACT,)}, also_neutral, "float32")
    settings: dict[str, Any] = {"w": "date"}
    if challenge:
        settings["challenge"] = str(tmp_path / "ages.toml")
        Path(settings["challenge"]).write_text(challenge, encoding="utf-8")
    run = undertow.audit("spurious-correlation", "planted", out=tmp_path / "run", limit=20, **settings)
    assert run.manifest.get("sanity_check") == (reading and {"planted": reading})
    page = run.report.read_text(encoding="utf-8")
    assert ("control sentences right, which determine" in page) == bool(caveat)
    if caveat:
        assert page.index(caveat) < page.index("The mass of other words is the probability")


OLD, YOUNG = (
    f'[[controls]]\ntext = "She is {age}, so she is {{blank}}."\ngold = "{gold}"\n'
    for age, gold in ((91, "old"), (12, "young"))
)
CONTROLS = AGES + OLD + YOUNG
MORE_OLD = CONTROLS + "".join(OLD.replace("91", str(age)) for age in range(70, 88, 2))
NO_BETTER = "control sentences right, which is no better than chance"
PREFERS = "it prefers young in 'She is 91, so she is ___.'."
ALWAYS_YOUNG = shares(young=0.5, old=0.2)


def reads_ages(query: Any) -> Answer | RequestFailedError:
    return shares(old=0.5 if "91" in query.pieces[0] else 0.1, young=0.3)(query)


def no_control(query: Any) -> Answer | RequestFailedError:
    return Answer.missing("it sneezed") if "She" in query.pieces[0] else ALWAYS_YOUNG(query)


@pytest.mark.parametrize(
    ("said", "text", "right", "of", "chance", "sentence"),
    [
        (ALWAYS_YOUNG, CONTROLS, 1, 2, 50.0, f"gets 1 of 2 {NO_BETTER} (50%); {PREFERS}"),
        (reads_ages, CONTROLS, 2, 2, 50.0, f"gets 2 of 2 {NO_BETTER} (50%)."),
        (no_control, CONTROLS, 0, 0, 50.0, "answers no control sentence of the challenge file"),
        (shares(young=0.2, old=0.5), MORE_OLD, 10, 11, 100 * 10 / 11, f"gets 10 of 11 {NO_BETTER}"),
    ],
    ids=["always young", "reads", "no answer", "always old, which most are"],
)
def test_controls_of_a_challenge_file_take_the_place_of_the_five_sentences(  # noqa: PLR0917 - a case each
    said: Said, text: str, right: int, of: int, chance: float, sentence: str, plant: Plant, tmp_path: Path, cli: Cli
) -> None:
    plant({BLANK: (EXACT,)}, said, "float32")
    (tmp_path / "ages.toml").write_text(text, encoding="utf-8")
    options = ("--challenge", "ages.toml", "--w", "date", "--limit", "20", "--out", "run")
    done = cli("run", "spurious-correlation", "-m", "planted", *options)
    assert done.returncode == 0, done.stderr
    assert f"planted: {sentence}" in done.stdout
    run = undertow.load_run(tmp_path / "run")
    entry = {"right": right, "of": of, "chance_percent": pytest.approx(chance), "better_than_chance": False}
    assert run.manifest["sanity_check"] == {"planted": entry}
    golds = [row["gold"] for row in run.manifest["design"]["controls"]["planted"]]
    assert golds == ["old", "young", *["old"] * (text.count("gold") - 2)]


def test_a_run_that_is_measured_again_copies_no_other_file(plant: Plant, tmp_path: Path) -> None:
    plant({BLANK: (EXACT,)}, shares(young=0.2, old=0.5), "float32")
    path, secret = tmp_path / "ages.toml", tmp_path / "secret.toml"
    path.write_text(AGES, encoding="utf-8")
    secret.write_text("key = 1\n", encoding="utf-8")
    given: dict[str, Any] = {"challenge": str(path), "w": "date", "limit": 20}
    run = undertow.audit("spurious-correlation", "planted", out=tmp_path / "run", **given)
    manifest = run.folder / "manifest.json"
    forged = manifest.read_text(encoding="utf-8").replace(json.dumps(str(path)), json.dumps(str(secret)))
    manifest.write_text(forged, encoding="utf-8")
    again = undertow.score(run.folder, out=tmp_path / "again")
    assert (again.folder / "challenge.toml").read_text(encoding="utf-8") == AGES
