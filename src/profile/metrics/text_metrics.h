// How alike an answer and a reference are, as texts: 0 nothing in common, 1 the same. Adding one adds
// its file and its line in text_metrics.cc. Pure functions; UTF-8 in, bytes that are no ASCII letters or digits compare
// as they are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// 1 where both are the same words once normalised as SQuAD's evaluation does (Rajpurkar et al. 2016, arXiv 1606.05250):
// lower case, no ASCII punctuation, no articles.
double exact_match(std::string_view answer, std::string_view reference);

// The harmonic mean of precision and recall over the bag of normalised words (the same source). 1 without words on both
// sides, 0 without on one.
double f1(std::string_view answer, std::string_view reference);

// ROUGE-L (Lin 2004): the F-measure over the longest common subsequence of words, lower-cased runs of letters and
// digits, no stemming. Empty texts as f1.
double rouge_l(std::string_view answer, std::string_view reference);

// CodeBLEU (Ren et al. 2020, arXiv 2009.10297): the mean of BLEU-4, of BLEU-4 whose single words count five times where
// they are keywords of a common programming language, and of the matches of syntax trees and of data flow
// (code_match.h). The third is left out where the reference is in no language that is known (code_languages), or is no
// code; the fourth where it has no data flow, too. Tokens are words, numbers and single signs; counts are smoothed (+1
// above single tokens), short answers are penalised as BLEU does.
double code_bleu(std::string_view answer, std::string_view reference);

struct TextMetric {
  std::string_view name;  // as reports write it
  double (*compare)(std::string_view answer, std::string_view reference);
};

// exact_match, f1, rouge_l, codebleu.
std::span<const TextMetric> text_metrics();

// The largest over several accepted references; 0 for none.
double best_of(const TextMetric& metric, std::string_view answer, std::span<const std::string> references);

// ASCII letters and digits and everything beyond ASCII stay in words; all else parts them. Lower case.
std::vector<std::string> words_of(std::string_view text);
// What exact_match and f1 compare.
std::vector<std::string> normalised_words(std::string_view text);

}  // namespace shale
