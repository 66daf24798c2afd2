// Extracts the text of a custom tool's call from the arguments {"input": "…"} that the model
// writes.
#pragma once
#include <string>
#include <string_view>

namespace penstock {

// Reads the arguments piece by piece; the result does not depend on how they are split. Arguments
// that do not begin with {"input": " are read when they end: the text is then the string `input` of
// the object, or else the arguments unchanged.
class CustomInput {
 public:
  // Returns the text that the piece adds, in whole UTF-8 characters if the piece has only such.
  // ends: this is the last piece.
  std::string add(std::string_view piece, bool ends);
  // Whether the text is complete; false: the arguments were cut off.
  bool complete() const { return complete_; }

 private:
  enum class State { kBefore, kInside, kAfter, kOther };
  void begin();
  std::string read_string();

  State state_ = State::kBefore;
  std::string all_;  // kBefore, kOther: the arguments so far
  // kBefore: bytes of them and parts of {"input": " that need not be read again
  size_t n_read_ = 0, n_parts_ = 0;
  // kInside: an incomplete escape sequence that is not read yet
  std::string ahead_;
  bool complete_ = false;
};

// As CustomInput, for whole arguments.
std::string custom_input(std::string_view arguments);

}  // namespace penstock
