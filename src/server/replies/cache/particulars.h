// The particulars that two questions must share to get the same cached answer, however similar
// their embeddings are: numbers, names, negations, what is quoted, words that have an opposite,
// question words, and the order of the words that both have.
//
// The check is strict: a wrong answer costs more than computing one again. It knows English words;
// in other languages every word counts as a name, so that only texts with the same words in the
// same order agree.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Particulars {
  // numbers in text order, as digits: "3", "0.5"
  std::vector<std::string> numbers;
  // Words that are not common English, in lower case and text order, without repetition.
  std::vector<std::string> names;
  std::vector<std::string> negations;  // "not", "never", …, sorted
  std::vector<std::string> quoted;     // quoted texts, verbatim, in text order
  // words that have an opposite, sorted, without repetition
  std::vector<std::string> opposites;
  // question words: "who", "when", …, sorted, without repetition
  std::vector<std::string> asked;
  // words in text order, without numbers, genitives and function words
  std::vector<std::string> words;
};

Particulars particulars_of(std::string_view text);
// Whether the two questions may share an answer: all particulars are equal, except that words which
// only one of them has are ignored.
bool agree(const Particulars& a, const Particulars& b);

}  // namespace penstock
