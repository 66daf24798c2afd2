// POST /v1/responses: what its body asks for, with the stored responses that it goes on from.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "frontend/chat/chat_setup.h"
#include "server/api/asked_tools.h"
#include "server/api/generation.h"
#include "server/api/mcp_tools.h"
#include "server/http/exchange.h"
#include "server/http/http_body.h"

namespace penstock {

struct Services;

struct ResponseCall {
  GenerationCall generation;
  ChatTask task;
  CallForms forms;  // of the task's calls
  // the fields of the reply that repeat the request
  nlohmann::ordered_json echoed = nlohmann::ordered_json::object();
  std::string id;
  bool stream = false, logprobs = false, timings = false;
  bool store = false, background = false;
  bool seals_reasoning = false;  // reasoning has encrypted_content
  // With store: whose it is, and the conversation as a JSON list of items, this request's last.
  std::string owner, items;
  // Id of the conversation of /v1/conversations that it goes on from and adds to; "": none. Then
  // the items of this request, as a JSON list.
  std::string conversation_id, new_items;
  // Of a compaction: the user's messages, as a list.
  nlohmann::ordered_json retained = nlohmann::ordered_json::array();
  // for the earlier conversation, which no body holds
  std::shared_ptr<BodyBudget> held;

  // With tools of MCP servers: the prompt waits for them, see begin_round().
  std::optional<McpRequest> mcp;
  Conversation conversation;  // as far as it has come
  GenerationCall first;       // what each round is made of, without a prompt
  std::vector<ApprovedCall> approved;
  int64_t max_tool_calls = -1;  // below 0: any number
};

// How the body of a route is read that has the input of responses.
struct ResponseReading {
  const nlohmann::json& schema;     // of the body
  bool any_length = false;          // the prompt may be longer than the context: it is only counted
  const char* last_turn = nullptr;  // what the user says at the end, beside the input
};

// Waits for the disk where the server keeps responses. Errors: kInvalidArgument, also of
// a previous_response_id or a conversation that there is not; of the store, when the request needs
// it.
Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request,
                                        const ResponseReading& how);

// Items of a request's input in the form in which they are listed: each with an id and a status,
// messages with parts.
nlohmann::ordered_json listed_items(const nlohmann::ordered_json& input);

// Makes the prompt of a call with tools of MCP servers, which are known and shown, from its
// conversation. max_tokens: of this round; below 0: what the context has room for. Errors: of
// ChatSetup::read().
Status begin_round(ResponseCall& call, int max_tokens);

}  // namespace penstock
