// POST /v1/responses: what its body asks for, with the stored responses that it goes on from.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "frontend/chat/chat_setup.h"
#include "server/api/generation.h"
#include "server/http/exchange.h"
#include "server/http/http_body.h"

namespace penstock {

struct Services;

struct ResponseCall {
  GenerationCall generation;
  ChatTask task;
  // the fields of the reply that repeat the request
  nlohmann::ordered_json echoed = nlohmann::ordered_json::object();
  std::string id;
  bool stream = false, logprobs = false, timings = false;
  bool store = false, background = false;
  // With store: whose it is, and the conversation as a JSON list of items, this request's last.
  std::string owner, items;
  // for the earlier conversation, which no body holds
  std::shared_ptr<BodyBudget> held;
};

// Waits for the disk where the server keeps responses. Errors: kInvalidArgument, also of a
// previous_response_id that there is not; of the store, when the request needs it.
Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request);

}  // namespace penstock
