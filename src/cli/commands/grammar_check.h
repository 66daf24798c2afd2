// `penstock grammar check`: checks one specification and texts against it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace penstock {

class Tokenizer;

struct GrammarCheck {
  grammar::GrammarSpec spec;
  std::vector<std::string> texts;
};

struct TextResult {
  bool valid = false;
  // !valid: position of the first forbidden token; the number of tokens if only the end is
  // forbidden.
  int at = 0;
  // why the text could not be checked from `at` on; "": it was checked
  std::string failure = {};
};

struct CheckAnswer {
  std::optional<grammar::Refusal> refusal;
  // time from the specification's text to the first available mask
  double compile_us = 0;
  std::vector<TextResult> results;
  std::vector<double> mask_us;
  std::vector<grammar::Note> notes;
  // error of the program: a mask and the following step disagree; "": none
  std::string broken;

  // Returns the answer as one line of JSON. id: "": none.
  std::string json(const std::string& id) const;
};

CheckAnswer check_grammar(const GrammarCheck& check, const Tokenizer& tokenizer,
                          const std::shared_ptr<const grammar::Vocabulary>& vocabulary);

}  // namespace penstock
