// Python callables that modify a request's logits.
#pragma once
#include <memory>

#include "penstock/logits_processor.h"
#include "python/convert.h"

namespace penstock {

class PythonLogitsProcessor final : public LogitsProcessor {
 public:
  // f(output_token_ids, logits) or f(prompt_token_ids, output_token_ids, logits). logits: a float32
  // array [vocab_size], modified in place.
  explicit PythonLogitsProcessor(nb::list functions) : functions_(std::move(functions)) {}
  ~PythonLogitsProcessor() override;

  void process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) override;
  // Returns the first exception of a function and clears it. After an exception logits are left
  // unchanged. REQUIRES: the GIL.
  nb::object take_exception() { return std::exchange(exception_, nb::object()); }

 private:
  nb::list functions_;  // (function, whether it takes the prompt)
  nb::object exception_;
  bool failed_ = false;
};

}  // namespace penstock
