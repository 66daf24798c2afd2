// Spending of an exchange: its maximum use is reserved before anything is computed.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "server/http/exchange.h"
#include "server/keys/ledger/token_price.h"

namespace penstock {

// The maximum use of one call: its prompts, and max_tokens for each reply.
struct SpendingClaim {
  TokenPrice price;
  int64_t prompt_tokens = 0, n_replies = 0, max_tokens = 0;
  // max_tokens is a default, so that it may be lowered to what is left
  bool may_be_shorter = false;

  int64_t tokens() const { return prompt_tokens + n_replies * max_tokens; }
};

// The spending of one exchange, used on its executor. The destructor releases what is still
// reserved.
class Spending {
 public:
  virtual ~Spending() = default;
  // Reserves the claim, and may lower its max_tokens if may_be_shorter. Returns a refusal if there
  // is no room.
  struct Refusal {
    HttpRefusal reply;
    // the claim exceeds the whole budget, so that waiting for running requests cannot help
    bool for_good;
  };
  virtual std::optional<Refusal> claim(SpendingClaim& claim) = 0;
  // Charges computed tokens.
  virtual void charge(int prompt_tokens, int completion_tokens) = 0;
  // Releases the unused part of the reservation, when everything claimed is computed; the used part
  // counts as spent from then on.
  virtual void settle() = 0;
  // Returns a new object for another exchange of the same payer.
  virtual std::shared_ptr<Spending> renewed() const = 0;
};

}  // namespace penstock
