// Check of a prompt's length against the model's context.
#pragma once
#include <cstddef>

#include "base/result.h"

namespace penstock {

// Checks that a prompt fits: n_tokens tokens need room for themselves and, if max_tokens is not 0,
// for one token of the reply. Errors: kInvalidArgument (an empty prompt), kContextOverflow with
// both numbers.
inline Status check_prompt_fits(size_t n_tokens, int max_tokens, int max_model_len) {
  const size_t longest = static_cast<size_t>(max_model_len) - (max_tokens > 0 ? 1 : 0);
  if (n_tokens == 0)
    return errorf(ErrorCode::kInvalidArgument, "prompt: expected at least one token, got none");
  if (n_tokens <= longest) return {};
  // Clients search the message for these words.
  return errorf(
      ErrorCode::kContextOverflow,
      "This model's maximum context length is {} tokens. However, the prompt has {} tokens{}.",
      max_model_len, n_tokens,
      n_tokens > static_cast<size_t>(max_model_len) ? "" : ", which leaves none for the reply");
}

}  // namespace penstock
