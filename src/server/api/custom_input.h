// The text of a custom tool's call, out of the arguments {"input": "…"} that the model writes.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

// Reads the arguments piece by piece. The pieces that it returns add up to the same text however
// the arguments were cut. Arguments that do not begin with {"input": " are read at their end: the
// text is the string `input` of their object, or else what the model wrote.
class CustomInput {
 public:
  // Returns what the piece adds to the text, whole UTF-8 if the piece is. ends: it is the last one.
  std::string add(std::string_view piece, bool ends);
  // Whether the text has come to its end; false of one that was cut.
  bool complete() const { return complete_; }

 private:
  enum class State { kBefore, kInside, kAfter, kOther };
  void begin();
  std::string read_string();
  std::string rest() const;

  State state_ = State::kBefore;
  std::string all_;    // kBefore, kOther: the arguments so far
  std::string ahead_;  // kInside: what is not read yet, less than an escape sequence
  bool complete_ = false;
};

// The same of whole arguments.
std::string custom_input(std::string_view arguments);

}  // namespace penstock
