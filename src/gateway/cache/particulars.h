// What two questions must have in common to have one answer, however near their meanings are said to be: numbers, names,
// negations, what is quoted, which of two opposites, what is asked for, and the order of the words that both have.
//
// It is made to refuse: a wrong answer costs more than one that is computed again. English; of other languages every word
// counts as a name, so that only texts with the same words, in their order, have the same answer.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct Particulars {
  std::vector<std::string> numbers;  // in their order, digits: "3", "0.5"
  std::vector<std::string>
      names;  // what is no common word of English, in small letters, in its order, each once
  std::vector<std::string> negations;  // "not", "never", …, sorted
  std::vector<std::string> quoted;     // in their order, as they are
  std::vector<std::string> opposites;  // words that have one, sorted, each once
  std::vector<std::string> asked;      // "who", "when", …, sorted, each once
  std::vector<std::string> words;      // in their order, without numbers, genitives and function words
};

Particulars particulars_of(std::string_view text);
// Whether the questions may have one answer: all of it is equal, but words that only one has do not matter.
bool agree(const Particulars& a, const Particulars& b);

}  // namespace penstock
