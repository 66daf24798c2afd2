// Encodes one word to token ids: the part of a tokenizer that differs by type of vocabulary.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "base/work.h"
#include "penstock/types.h"

namespace penstock {

// Scratch memory that a model reuses between the words of a text; one per Tokenizer::encode() call.
class WordScratch {
 public:
  virtual ~WordScratch() = default;
};

// Bounds the part of a client's text that an algorithm processes as a whole, which takes about 50
// bytes of memory per byte. Ends the work of the thread when the part is longer (base/work.h).
inline void bound_part(std::string_view part) {
  constexpr size_t kMost = size_t{1} << 20;
  if (part.size() <= kMost) return;
  end_work(
      {ErrorCode::kInvalidArgument, fmt::format("text: a stretch of {} bytes has no place where "
                                                "the model's tokenizer splits it, expected at "
                                                "most {}",
                                                part.size(), kMost)});
}

// Immutable and thread-safe.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual std::unique_ptr<WordScratch> make_scratch() const { return nullptr; }
  // Appends the tokens of word. scratch: from make_scratch() of this model.
  virtual void encode(std::string_view word, WordScratch* scratch,
                      std::vector<TokenId>& out) const = 0;
};

}  // namespace penstock
