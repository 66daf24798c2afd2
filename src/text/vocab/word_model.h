// Turns one word into token ids: the part of a tokenizer that differs by kind of vocabulary.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "base/work.h"
#include "penstock/types.h"

namespace penstock {

// Memory a model reuses from word to word; one per encode call.
class WordScratch {
 public:
  virtual ~WordScratch() = default;
};

// What an algorithm that holds all of a text at once, some 50 bytes a byte, takes of one that a client sent. Ends the work of
// its thread when there is more (base/work.h).
inline void bound_part(std::string_view part) {
  constexpr size_t kMost = size_t{1} << 20;
  if (part.size() <= kMost) return;
  end_work({ErrorCode::kInvalidArgument,
            fmt::format(
                "text: a stretch of {} bytes has no place where the model's tokenizer splits it, expected at "
                "most {}",
                part.size(), kMost)});
}

// Immutable; any thread may call it.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual std::unique_ptr<WordScratch> make_scratch() const { return nullptr; }
  // Appends the tokens of word. scratch: from make_scratch() of this model.
  virtual void encode(std::string_view word, WordScratch* scratch, std::vector<TokenId>& out) const = 0;
};

}  // namespace penstock
