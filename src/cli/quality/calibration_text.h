// Calibration text for commands that look at activations.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/types.h"

namespace CLI {
class App;
}

namespace penstock {

class CalibrationText {
 public:
  // --calibration FILE and its settings.
  void add_flags(CLI::App& app);
  bool given() const { return !file_.empty(); }
  const std::string& file() const { return file_; }
  int length() const { return length_; }

  // Sequences of `--calibration-length` tokens of the model's tokenizer, chosen by the seed: a text is cut
  // into pieces of that length, a .jsonl file gives one document per line ("text", or the whole line when it
  // is a string), joined in random order. Errors: kNotFound, kIo, kCorruptFile (with the line),
  // kInvalidArgument for too little text.
  Result<std::vector<std::vector<TokenId>>> samples(const std::filesystem::path& model) const;

 private:
  std::string file_;
  int count_ = 128, length_ = 512;
  uint64_t seed_ = 0;
};

}  // namespace penstock
