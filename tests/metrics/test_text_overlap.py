from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.metrics.text import overlap as text_overlap
from undertow.metrics.text.overlap import bleu_stats, meteor_scorer, same_text, token_f1, words
from undertow.stats.classification.agreement import corpus_bleu


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat's 2 mice, RAN!", ["the", "cat's", "2", "mice", "ran"]),
        ("'quoted' dogs' rock'n'roll 'tis", ["quoted", "dogs", "rock'n'roll", "tis"]),
        ("don’t", ["don't"]),
        ("snake_case well-known a''b", ["snake", "case", "well", "known", "a", "b"]),
        ("Œuvre STRASSE Straße", ["œuvre", "strasse", "straße"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("они́ это", ["они́", "это"]),
        ("\N{COMBINING ACUTE ACCENT} — …", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text(alphabet="Aéñ'’ü \u0301İ1_-", max_size=12))
def test_words_are_the_same_however_accents_are_encoded(text: str) -> None:
    found = words(unicodedata.normalize("NFD", text))
    assert found == words(unicodedata.normalize("NFC", text))
    assert words(" ".join(found)) == found


@given(st.text(alphabet="aB1'_ -.", max_size=12))
def test_plain_text_has_the_same_words_beside_other_scripts(text: str) -> None:
    assert words(text + " é") == [*words(text), "é"]


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("the cat sat", "The cat, sat.", 1),
        ("the the the cat", "the dog the", 2 * 2 / 7),  # two of three the are in both
        ("a b", "b c d", 2 / 5),
        ("a", "b", 0),
        ("", "", 1),
        ("...", "", 1),
        ("", "a", 0),
        ("a", "", 0),
    ],
)
def test_token_f1_by_hand(answer: str, reference: str, expected: float) -> None:
    assert token_f1(answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("Gamers have no manners.", "gamers have no manners", True),
        ("\N{LEFT DOUBLE QUOTATION MARK}no manners!\N{RIGHT DOUBLE QUOTATION MARK}", " no manners", True),
        ("no, manners", "no manners", False), ("no", "no manners", False), ("", "no", False), ("...", "", False), (".", "!", False),
        ("$5", "5", False), ("\u0939\u0940", "\u0939\u093f", False),
    ],
)  # fmt: skip
def test_texts_are_the_same_but_for_case_and_punctuation_around_them(answer: str, reference: str, same: bool) -> None:
    assert same_text(answer, reference) is same


SENTENCES = st.lists(
    st.sampled_from(["the", "The", "cat", "isn't", "3.5", "sat", "mat,", "U.S.", "-", "."]), max_size=9
)


@settings(max_examples=50)
@given(st.lists(st.tuples(SENTENCES.map(" ".join), SENTENCES.map(" ".join)), min_size=1, max_size=5))
def test_bleu_is_sacrebleus_corpus_bleu(pairs: list[tuple[str, str]]) -> None:
    import sacrebleu

    answers, references = [one for one, _ in pairs], [one for _, one in pairs]
    expected = sacrebleu.corpus_bleu(answers, [references])
    sums = bleu_stats(answers, references).sum(axis=0)
    assert sums.tolist() == [expected.sys_len, expected.ref_len, *expected.counts, *expected.totals]
    assert corpus_bleu(sums) == pytest.approx(expected.score, abs=1e-9)


@pytest.fixture
def no_wordnet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without WordNet, whatever this one has."""
    data = pytest.importorskip("nltk.data", reason="nltk is not installed")
    monkeypatch.setattr(data, "path", [str(tmp_path / "nltk_data")])
    monkeypatch.setattr(text_overlap, "DEBIAN_WORDNET", str(tmp_path / "wordnet"))


@pytest.mark.usefixtures("no_wordnet")
@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        # Three matches in one chunk, everything found: the penalty is 0.5 (1/3)^3.
        ("one two three", "One two three!", 1 - 0.5 / 27),
        # Four matches in two chunks: 0.5 (2/4)^3.
        ("three four one two", "one two three four", 1 - 0.5 / 8),
        # Three matches in two chunks; precision 1, recall 1/2, of which recall weighs nine to one.
        ("one two five", "one two three four five six", (0.5 / (0.9 * 1 + 0.1 * 0.5)) * (1 - 0.5 * (2 / 3) ** 3)),
        # The same the other way round: precision 1/2, recall 1.
        ("one two three four five six", "one two five", (0.5 / (0.9 * 0.5 + 0.1 * 1)) * (1 - 0.5 * (2 / 3) ** 3)),
        # Two matches by stem alone, in one chunk.
        ("running dogs", "runs dog", 1 - 0.5 / 8),
        ("car", "auto", 0),
        ("", "one", 0),
        ("one", "", 0),
        ("", "", 0),
    ],
)
def test_meteor_by_hand(answer: str, reference: str, expected: float) -> None:
    assert meteor_scorer().score(answer, reference) == pytest.approx(expected)


SYNONYMS = {"noun": [["blick", "dax"], ["wug"]], "verb": [["toma", "dax"]], "adj": [["feppish"]], "adv": []}
LETTER = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def write_wordnet(folder: Path) -> Path:
    """A WordNet of a few words that nobody uses, with the files of Debian's package that nltk reads."""
    folder.mkdir(parents=True)
    notice = "  1 WordNet 3.0 Copyright, of this test\n"
    for kind, synsets in SYNONYMS.items():
        data, places = notice, {}
        for lemmas in synsets:
            listed = " ".join(f"{lemma} 0" for lemma in lemmas)
            frames = " 00" if kind == "verb" else ""
            for lemma in lemmas:
                places[lemma] = len(data)
            data += f"{len(data):08d} 03 {LETTER[kind]} {len(lemmas):02x} {listed} 000{frames} | a thing  \n"
        index = notice + "".join(
            f"{lemma} {LETTER[kind]} 1 0 1 0 {place:08d}  \n" for lemma, place in sorted(places.items())
        )
        for name, text in ((f"data.{kind}", data), (f"index.{kind}", index), (f"{kind}.exc", "")):
            (folder / name).write_text(text)
    return folder


@pytest.mark.usefixtures("no_wordnet")
def test_meteor_takes_synonyms_from_debians_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_wordnet(tmp_path / "wordnet")
    meteor = meteor_scorer()
    assert meteor.used.endswith(", exact, stem and WordNet 3.0 matches")
    assert meteor.score("blick", "dax") == pytest.approx(0.5)  # one match, one chunk
    assert meteor.score("dax", "toma") == pytest.approx(0.5)  # as a verb
    assert meteor.score("blick", "toma") == 0  # synonyms of a synonym are none
    # Three of four, two by synonym or stem, in two chunks.
    assert meteor.score("the blick feppish wugs", "the dax of wug") == pytest.approx(0.75 * (1 - 0.5 * (2 / 3) ** 3))
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def unloaded() -> Iterator[None]:
    """nltk keeps the WordNet of its data from its first use on."""
    corpus = pytest.importorskip("nltk.corpus", reason="nltk is not installed")
    corpus.wordnet._unload()
    yield
    corpus.wordnet._unload()


@pytest.mark.usefixtures("no_wordnet", "unloaded")
def test_meteor_takes_synonyms_from_nltks_data(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "nltk_data" / "corpora" / "wordnet")
    (folder / "lexnames").write_text("".join(f"{number:02d}\tname{number}\t1\n" for number in range(45)))
    (folder / "index.sense").write_text("blick%1:03:00:: 00000040 1 0\n")
    meteor = meteor_scorer()
    assert meteor.used.endswith(", exact, stem and WordNet 3.0 matches")
    assert meteor.score("blick", "dax") == pytest.approx(0.5)


@pytest.mark.usefixtures("no_wordnet")
@pytest.mark.parametrize("missing", ["index.verb", "data.adj", "noun.exc"])
def test_a_wordnet_that_cannot_be_read_is_told(tmp_path: Path, missing: str) -> None:
    folder = write_wordnet(tmp_path / "wordnet")
    (folder / missing).unlink()
    meteor = meteor_scorer()
    assert meteor.used.endswith(f", exact and stem matches (the WordNet in {folder} cannot be read)")
    assert meteor.score("blick", "dax") == 0
