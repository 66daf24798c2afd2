#include "server/services/request_record.h"

#include "server/keys/ledger/spending.h"

namespace penstock {

void RequestRecord::count_tokens(int prompt, int completion) {
  use.prompt_tokens += prompt;
  use.completion_tokens += completion;
  if (spending != nullptr) spending->charge(prompt, completion);
}

std::shared_ptr<RequestRecord> RequestRecord::of_same_caller() const {
  auto other = std::make_shared<RequestRecord>();
  other->key = key, other->payer = payer, other->tenant = tenant;
  other->model = model, other->background = background;
  return other;
}

const RequestRecord& record_of(const HttpRequest& request) {
  static const RequestRecord empty;
  return request.record == nullptr ? empty : *request.record;
}

RequestRecord& record_of(Exchange& exchange) {
  auto& record = exchange.record();
  if (record == nullptr) record = std::make_shared<RequestRecord>();
  return *record;
}

}  // namespace penstock
