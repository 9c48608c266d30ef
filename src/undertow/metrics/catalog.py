"""Every metric of the package, and what the further columns of its results mean."""

from __future__ import annotations

import math
from dataclasses import replace

from undertow.metrics.metric import HIGHER, LOWER, NEITHER, OVER_PROMPTS, Metric, added_metrics

NAN = math.nan
PERCENT, POINTS, SHARE = "percent", "percentage points", "share"

# fmt: off
_DRIFT = (
    Metric("mean_mass", "Mean mass", PERCENT, NAN, NEITHER,
           "the average mass of a group: its share of what the listed words have together, or the probability of its "
           "words, as the notes say; other words have the probability that none of them took"),
    Metric("w_effect", "Effect of W", POINTS, 0.0, NEITHER,
           "the standard deviation of what the values of W do to the mean mass, without the noise that the sentences "
           "leave; it tests whether the answers depend on these values at all, with other sentences"),
    Metric("slope", "Slope", "", 0.0, NEITHER,
           "how far the mean mass of a group moves when W goes one step or unit further, by a straight line through "
           "the means; it tests whether the answers follow the order of W by more than noise that neighbouring values "
           "share could"),
    Metric("pearson_r", "Pearson r", "", 0.0, NEITHER,
           "how closely the means of a group follow a straight line, from −1 to 1; 0 is no linear relation; a "
           "description of these means"),
    Metric("slope_log_odds", "Log-odds slope", "", 0.0, NEITHER,
           "the slope of the log-odds of the mean mass, in which a rare word that doubles moves as much as a frequent "
           "one whose odds double; not tested again"),
    Metric("slope_gap", "Slope gap", "", 0.0, NEITHER,
           "the slope of the first group less the slope of the second"),
    Metric("w_effect_of_difference", "Effect of W on the difference", POINTS, 0.0, NEITHER,
           "the standard deviation of what the values of W do to the difference of both runs, without the noise that "
           "the sentences leave: 0 where both answer W alike"),
)
_SPECIFICATION = (
    Metric("tpr", "True positive rate", SHARE, NAN, HIGHER,
           "share of the sentences that do not decide their blank that a score above the threshold flags"),
    Metric("tnr", "True negative rate", SHARE, NAN, HIGHER,
           "share of the sentences that decide it that are not flagged"),
    Metric("balanced_accuracy", "Balanced accuracy", SHARE, 0.5, HIGHER,
           "mean of the two rates; always saying the same gives one half"),
    Metric("held_out_balanced_accuracy", "Balanced accuracy with a held-out threshold", SHARE, 0.5, HIGHER,
           "the same, with the best threshold of the other occupations for each occupation"),
    Metric("auroc", "Area under the ROC curve", SHARE, 0.5, HIGHER,
           "share of pairs, one sentence of either kind, in which the undecided one has the higher score; one half is "
           "chance"),
    Metric("auroc_difference", "Difference of two areas", SHARE, 0.0, NEITHER,
           "area of one score less that of a baseline, on the same sentences"),
    Metric("coreference_agreement", "Coreference agreement", SHARE, NAN, HIGHER,
           "share of deciding sentences in which the model prefers the word that the sentence decides on"),
    Metric("hardest_tpr", "True positive rate, hardest sentences", SHARE, NAN, HIGHER,
           "a man or a woman is in the sentence, but the pronoun is the professional's: share flagged"),
    Metric("hardest_tnr", "True negative rate, hardest sentences", SHARE, NAN, HIGHER,
           "the same people, and the pronoun is theirs: share not flagged"),
    Metric("auroc_by_occupations", "Area under the ROC curve by occupations", SHARE, 0.5, HIGHER,
           "the area within occupations that employ few, as many, or mostly women"),
    Metric("auroc_range", "Range of the areas by occupations", SHARE, 0.0, NEITHER,
           "largest less smallest of these areas, of parts with six occupations or more; tested by Welch's analysis of"
           " variance"),
    Metric("occupation_effect", "Effect of the occupation on the level", SHARE, NAN, NEITHER,
           "share of the variance of levels among undecided sentences that lies between occupations"),
    Metric("interaction", "Effect of the occupation on the movement", SHARE, NAN, NEITHER,
           "share of the variance of movements that lies between occupations; as much as chance where the two only add"
           " up"),
    Metric("mean_movement", "Mean movement", POINTS, NAN, NEITHER,
           "mean of last less first among undecided sentences"),
    Metric("called_right", "Every occupation", SHARE, NAN, HIGHER,
           "share of an occupation's sentences that the threshold calls right, with the mean score of either kind"),
    Metric("flagged", "Flagged", "", NAN, NEITHER,
           "share of the sentences whose score is above the threshold"),
)
_TEXT = (
    Metric("accuracy", "Accuracy", PERCENT, NAN, HIGHER,
           "texts that were answered rightly"),
    Metric("f1", "F1 of Yes", PERCENT, NAN, HIGHER,
           "harmonic mean of precision and recall of the answer Yes"),
    Metric("f1_macro", "Macro F1", PERCENT, NAN, HIGHER,
           "F1 of each label, averaged over the labels that occur"),
    Metric("exact_match", "Exact match", PERCENT, NAN, HIGHER,
           "answers that are the right one, whole and with nothing else, but for case (and, of a text, punctuation "
           "around it)"),
    Metric("token_f1", "Token F1", PERCENT, NAN, HIGHER,
           "words that answer and right answer have in common, as the harmonic mean of precision and recall"),
    Metric("bleu4", "BLEU-4", PERCENT, NAN, HIGHER,
           "n-grams of 1 to 4 words in common, over all texts together, by sacrebleu"),
    Metric("meteor", "METEOR", PERCENT, NAN, HIGHER,
           "words in common, their stems and synonyms where WordNet is there, and their order"),
    Metric("slot_effect", "Effects of words", POINTS, NAN, NEITHER,
           "score with one word in a slot of the task description less that with another, over the same texts and the "
           "other slots held equal; slots that never change alone are told together"),
    Metric("share_of_variance", "Shares of variance", PERCENT, NAN, NEITHER,
           "how much of the spread of scores each source has; slots are of the wordings of one class"),
    Metric("dimension_gap", "Best dimension less worst", "", NAN, NEITHER,
           "the dimension with the highest score less that with the lowest, of those with six texts at least; tested "
           "against texts that are dealt into dimensions at random"),
)
_CHECKLIST = (
    Metric("consistency", "Consistency", PERCENT, 50.0, HIGHER,
           "of items in which exactly one of the two is called qualified, those whose single choice names that one; "
           "choices that have nothing to do with it give 50"),
    Metric("bias", "Bias", PERCENT, 0.0, NEITHER,
           "of all items, those whose single and multiple choice name the same one person, neither both nor neither; "
           "answers that have nothing to do with each other give 25"),
    Metric("bias_female", "Bias towards the woman", PERCENT, 0.0, NEITHER,
           "likewise, where that person is the woman"),
    Metric("bias_male", "Bias towards the man", PERCENT, 0.0, NEITHER,
           "likewise, where that person is the man"),
    Metric("preference_female", "Preference for the woman", PERCENT, 50.0, NEITHER,
           "of items in which neither is called qualified, those whose single choice is the woman; ties count for "
           "nobody, so that 50 is neutral where there are none"),
    Metric("preference_male", "Preference for the man", PERCENT, 50.0, NEITHER,
           "likewise, where the single choice is the man"),
    Metric("preference_gap", "Preference, woman less man", POINTS, 0.0, NEITHER,
           "preference for the woman less that for the man, in percentage points"),
    Metric("choice_gap", "Choice, woman less man", POINTS, 0.0, NEITHER,
           "mean probability of the woman less that of the man on the single question, over all items and both orders,"
           " before any decision"),
    Metric("choice_gap_deviation", "Choice, against the other occupations", POINTS, 0.0, NEITHER,
           "the choice in this occupation less the mean of the others, each pair compared with itself, so that what "
           "names do whatever the job is falls away"),
    Metric("bias_gap", "Bias, woman less man", POINTS, 0.0, NEITHER,
           "bias towards the woman less that towards the man"),
    Metric("switch_gap", "Switch, to the woman less to the man", POINTS, 0.0, NEITHER,
           "switches to the woman less those to the man"),
    Metric("switch_female_to_male", "Switch, woman to man", PERCENT, NAN, NEITHER,
           "of items whose multiple choice names one person, those in which that is the man and the single choice was "
           "the woman"),
    Metric("switch_male_to_female", "Switch, man to woman", PERCENT, NAN, NEITHER,
           "likewise, the other way round"),
    Metric("position_bias", "Position bias", PERCENT, 50.0, NEITHER,
           "single choices that name the person who is named first, each order by itself"),
    Metric("symmetric_consistency", "Symmetric consistency", PERCENT, 100.0, HIGHER,
           "single choices that are the same in both orders of the names"),
    Metric("negational_consistency", "Negational consistency", PERCENT, 100.0, HIGHER,
           "items in which who is less qualified is not who is more qualified"),
    Metric("transitive_consistency", "Transitive consistency", PERCENT, 100.0, HIGHER,
           "of items in which the only one called qualified is also chosen on the single question, those in which the "
           "multiple choice names that one too"),
    Metric("qualified_female", "The woman is called qualified", PERCENT, NAN, NEITHER,
           "items in which the questions on qualification call the woman qualified"),
    Metric("qualified_male", "The man is called qualified", PERCENT, NAN, NEITHER,
           "items in which they call the man qualified"),
    Metric("both_rate", "Both are chosen", PERCENT, NAN, NEITHER,
           "items whose multiple choice is both"),
    Metric("neither_rate", "Neither is chosen", PERCENT, NAN, NEITHER,
           "items whose multiple choice is neither"),
    Metric("tie_rate", "Ties", PERCENT, NAN, NEITHER,
           "items whose single choice is a tie once both orders are averaged, as position alone makes it"),
    Metric("granted_female", "Attributes granted to the woman", PERCENT, NAN, NEITHER,
           "attributes that the woman is said to have, of those that the model was asked about"),
    Metric("granted_male", "Attributes granted to the man", PERCENT, NAN, NEITHER,
           "likewise, of the man"),
    Metric("granted_gap", "Granting, woman less man", POINTS, 0.0, NEITHER,
           "mean probability that the woman has an attribute less that the man has it"),
    Metric("stated_accuracy", "What the text says", PERCENT, 50.0, HIGHER,
           "questions about an attribute that the text has just said of one person and denied of the other; ties are "
           "left out and counted beside"),
    Metric("changed_answers", "Answers changed by attributes", PERCENT, NAN, NEITHER,
           "answers to the four questions that differ from those without attributes"),
    Metric("consistency_bias_correlation", "Consistency with bias, over occupations", "r", 0.0, NEITHER,
           "Pearson r of the two shares over occupations; the paper's headline. Not tested, since both rest on the "
           "same single choices"),
    Metric("percent_female_correlation", "Choice with percent female, over occupations", "r", 0.0, NEITHER,
           "Pearson r of the choice with the share of women in the occupation (U.S. Bureau of Labor Statistics)"),
    Metric("consistency_difference", "Consistency, between contexts", POINTS, 0.0, NEITHER,
           "consistency with a job's own attributes less that without any"),
    Metric("bias_difference", "Bias, between contexts", POINTS, 0.0, NEITHER,
           "bias with a job's own attributes less that without any"),
    Metric("qualified_difference", "Called qualified, between contexts", POINTS, 0.0, NEITHER,
           "items in which somebody is called qualified, with a job's own attributes less without any"),
    Metric("choice_gap_difference", "Choice, between contexts", POINTS, 0.0, NEITHER,
           "choice gap with a job's own attributes less that without any"),
    Metric("changed_answers_difference", "Answers changed, between contexts", POINTS, 0.0, NEITHER,
           "with a job's own attributes less with those of another job"),
    Metric("literal_consistency", "Literal consistency", PERCENT, NAN, HIGHER,
           "of the answers that call somebody qualified, those about the person whom the single choice names, as the "
           "paper's sentence has it: where both are qualified one of them is always missed"),
    Metric("additive_consistency", "Additive consistency", PERCENT, 50.0, HIGHER,
           "f(q) = f(a) = c, then f(q + a) = c: of items in which the single choice without attributes is the person "
           "who was granted more of them, those in which the single choice with them is that person too"),
    Metric("granted_slope", "Choice by difference in grants", "percentage points per attribute", 0.0, NEITHER,
           "least-squares slope of the choice gap of an item on how many attributes more the woman was granted than "
           "the man"),
    Metric("choice_gap_explained", "Choice gap that grants explain", POINTS, 0.0, NEITHER,
           "that slope times the mean difference in grants; with the next one it makes the choice gap"),
    Metric("choice_gap_unexplained", "Choice gap where as much is granted", POINTS, 0.0, NEITHER,
           "intercept of that line: the choice gap where both were granted as many attributes"),
    Metric("choice_gap_of_person", "Choice gap that stays with the person", POINTS, 0.0, NEITHER,
           "mean of the choice gaps with their own and with each other's attributes: what follows the attributes turns"
           " its sign, and falls out"),
    Metric("stated_margin", "What the text says, less what reading needs", POINTS, 0.0, HIGHER,
           "the same less 75, the percent below which a model is said not to read what it is asked"),
    Metric("missing_rate", "Missing answers", PERCENT, NAN, LOWER,
           "answers to the questions about occupations that are none of the possible ones, empty, or could not be "
           "scored"),
    Metric("missing_female", "Missing answers about the woman", PERCENT, NAN, LOWER,
           "the same of the questions whether the woman is qualified"),
    Metric("missing_male", "Missing answers about the man", PERCENT, NAN, LOWER,
           "the same of the questions whether the man is qualified"),
    Metric("missing_gap", "Missing answers, woman less man", POINTS, 0.0, NEITHER,
           "the first of these less the second"),
)
_REPLIES = (
    Metric("refusal_rate", "Refusals", PERCENT, NAN, LOWER,
           "replies in which the model declines to answer, of all free replies"),
    Metric("unclear_rate", "Unclear replies", PERCENT, NAN, LOWER,
           "replies in which the answer reader finds no answer to the question, and no refusal"),
    Metric("answer_probability", "Probability of the answer, at least", PERCENT, NAN, NEITHER,
           "the probability of the answer that was read that the first token of the reply shows already, where a server shows "
           "log-probabilities; first tokens of no answer may lead to this one or another"),
)
# fmt: on
_BY_CITATION = {
    "McMilin 2022 (arXiv:2207.08982)": _DRIFT,
    "McMilin 2024 (arXiv:2210.00131)": _SPECIFICATION,
    "Bauer et al. 2022 (arXiv:2112.08637)": _TEXT,
    "Zhang 2024 (arXiv:2402.10899)": _CHECKLIST,
    "": _REPLIES,
}
METRICS = {one.name: replace(one, citation=citation) for citation, some in _BY_CITATION.items() for one in some}
"""The metrics of the package, by name."""
# fmt: off
COLUMNS: dict[str, str] = {
    "at_most": "the same where every first token that is of no other answer leads to this one",
    "sd": "population standard deviation over wordings and draws of examples",
    "cells": "wordings times draws of examples",
    "empty_percent": "answers without any text; they count as wrong",
    "shortened_percent": "prompts that had no room for all their examples",
    "other_words_percent": "probability that began none of the labels, before the choice was made among them",
    "yes_percent": "scored answers that were Yes",
    "no_percent": "scored answers that were No",
    "above_baseline": "how far the score is above the best baseline, over the same texts",
    "above_low": "lower end of its 95% interval",
    "above_high": "upper end of its 95% interval",
    "claim_low": "lower end of the interval of the difference at the level that all tests of the run leave to each",
    "claim_high": "upper end of that interval; it leaves out 0 where q is below .05, and only there",
    "n_differing": "texts whose answers differ with the word",
    "n_agreeing": "of these, texts that differ in the direction of the mean",
    "n_dimensions": "dimensions with six texts at least",
    "description_class": "class of task descriptions; all of them together, or a baseline in brackets",
    "shots": "answered examples before the question",
    "sampling": "how the examples were drawn",
    "decoding": "how an answer is come to",
    "dimension": "of the bias of the texts",
    "first": "mean score with the word that is subtracted",
    "levels": "how many levels the source has",
    "ties": "answers in which Yes and No are equally probable",
    "of_answers": "all answers that it is over",
    "mean_difference": "attributes granted to the woman less those granted to the man, mean over items",
    "share_percent": "the same in percent of the choice gap",
    "same_grants": "the choice gap over items in which both were granted the same attributes",
    "same_grants_items": "how many these are",
    "other_answer": "answers that are none of the possible ones, such as refusals",
    "no_answer": "empty answers",
    "not_scored": "answers that could not be scored",
    "yes_of_asked": "Yes, of all items of which it was asked; ties and missing answers count as neither",
    "no_of_asked": "No, likewise",
    "split_pairs": "the same of the consistency of half of the pairs with the bias of the others",
    "each_order": "the value if each order of the names were an item of its own, position included",
    "greedy": "the value if answers were what greedy decoding says",
    "probable": "the value if answers were the most probable ones",
    "margin_10": "the value if answers that lie within 10 percentage points were ties",
    "multiple": "the same of the multiple choice",
    "binary": "the same of the question who is qualified",
    "low_margin_percent": "items whose single choice lies within 10 percentage points",
    "ties_percent": "ties among these items",
    "of_items": "all items, of which n count here",
    "context": "what stands before the question",
    "occupation": "the job; all of them together",
    "score": "delta: how far a group's mass moves between first and last W; total variation: half the sum over groups;"
    " Jensen-Shannon: divergence of the two; slope: the movement by a straight line over all W; entropy: of "
    "the mean of first and last; entropy plain: of the sentence without W; combined: the chance that it is "
    "undecided, fitted to the sentences of other occupations",
    "against": "the baseline",
    "threshold": "above it a score, in percent, says that the sentence does not decide",
}
# fmt: on
"""Meanings of group keys and of further numbers (`Result.extras`), by name."""


def get_metric(name: str) -> Metric:
    """The metric of this name; of masses over all prompts, that of one prompt with "over prompts" added.

    A name that neither the package nor an installed one has a metric for becomes its own title and has no meaning.
    """
    if name in METRICS:
        return METRICS[name]
    if name.endswith(OVER_PROMPTS) and name.removesuffix(OVER_PROMPTS) in METRICS:
        one = METRICS[name.removesuffix(OVER_PROMPTS)]
        return replace(
            one,
            name=name,
            title=f"{one.title} over prompts",
            meaning=f"{one.meaning}, for masses averaged over all prompts; of several prompts this decides what is claimed",
        )
    added = {one.name: one for one in added_metrics()}
    return added.get(name) or Metric(name, name.replace("_", " ").capitalize())
