// POST /v1/responses: what its body asks for, with the stored responses that it goes on from.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "frontend/chat/chat_setup.h"
#include "server/api/generation.h"
#include "server/api/mcp_tools.h"
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

  // With tools of MCP servers: the prompt waits for them, see begin_round().
  std::optional<McpRequest> mcp;
  Conversation conversation;  // as far as it has come
  GenerationCall first;       // what each round is made of, without a prompt
  std::vector<ApprovedCall> approved;
  int64_t max_tool_calls = -1;  // below 0: any number
};

// Waits for the disk where the server keeps responses. Errors: kInvalidArgument, also of a
// previous_response_id that there is not; of the store, when the request needs it.
Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request);

// Makes the prompt of a call with tools of MCP servers, which are known and shown, from its
// conversation. max_tokens: of this round; below 0: what the context has room for. Errors: of
// ChatSetup::read().
Status begin_round(ResponseCall& call, int max_tokens);

}  // namespace penstock
