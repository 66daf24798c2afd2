// What `penstock grammar check` answers for one specification.
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
  int at =
      0;  // !valid: the position of the first forbidden token; the number of tokens where only the end is
  std::string failure = {};  // why it cannot be told from `at` on; "": it was
};

struct CheckAnswer {
  std::optional<grammar::Refusal> refusal;
  double compile_us = 0;  // from the specification's text to the first mask that can be asked for
  std::vector<TextResult> results;
  std::vector<double> mask_us;
  std::vector<grammar::Note> notes;
  std::string broken;  // a mask and the step behind it disagree: a defect of the program

  // One line of JSON; id: "" for none.
  std::string json(const std::string& id) const;
};

CheckAnswer check_grammar(const GrammarCheck& check, const Tokenizer& tokenizer,
                          const std::shared_ptr<const grammar::Vocabulary>& vocabulary);

}  // namespace penstock
