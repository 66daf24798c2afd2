// The calibration text of commands that measure activations.
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
  // Adds --calibration FILE and its settings.
  void add_flags(CLI::App& app);
  bool given() const { return !file_.empty(); }
  const std::string& file() const { return file_; }
  int length() const { return length_; }

  // Returns sequences of --calibration-length tokens of the model's tokenizer, chosen by the seed.
  // A text file is cut into pieces of that length; the documents of a .jsonl file, one per line
  // ("text", or the whole line when it is a string), are joined in random order. Errors: kNotFound,
  // kIo, kCorruptFile (names the line), kInvalidArgument (too little text).
  Result<std::vector<std::vector<TokenId>>> samples(const std::filesystem::path& model) const;

 private:
  std::string file_;
  int count_ = 128, length_ = 512;
  uint64_t seed_ = 0;
};

}  // namespace penstock
