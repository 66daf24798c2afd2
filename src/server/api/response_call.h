// Reads the body of POST /v1/responses, with the stored responses that it continues.
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
  CallForms forms;  // forms of the task's calls
  // fields of the reply that repeat the request, as JSON text without braces: `"name":value,…`
  std::string echoed;
  std::string id;
  bool stream = false, logprobs = false, timings = false;
  bool store = false, background = false;
  bool seals_reasoning = false;  // reasoning has encrypted_content
  // With store: the owner, and the conversation as a JSON list of items that ends with this
  // request's.
  std::string owner, items;
  std::string asker;  // the client whose turns at the store the response uses
  // Id of the conversation in /v1/conversations that is continued and extended; "": none.
  // new_items: the items of this request as a JSON list.
  std::string conversation_id, new_items;
  // Compaction: the user's messages as a list, and the size of its text in bytes.
  nlohmann::ordered_json retained = nlohmann::ordered_json::array();
  size_t retained_bytes = 0;
  // memory of the earlier conversation, which no body accounts for
  std::shared_ptr<BodyBudget> held;

  // With MCP tools: the prompt is made when they are known, see begin_round().
  std::optional<McpRequest> mcp;
  Conversation conversation;  // the conversation so far
  // template for the rounds' calls, without a prompt
  GenerationCall first;
  std::vector<ApprovedCall> approved;
  int64_t max_tool_calls = -1;  // below 0: any number
};

// How to read the body of a route that takes the input of responses.
struct ResponseReading {
  const nlohmann::json& schema;  // schema of the body
  // the prompt may exceed the context, since it is only counted
  bool any_length = false;
  const char* last_turn = nullptr;  // a user message to append to the input
};

// Reads a body. Blocks on the disk if the server stores responses. Errors: kInvalidArgument (also
// for an unknown previous_response_id or conversation), those of the store if the request needs it.
Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request,
                                        const ResponseReading& how);

// Returns the items of a request's input as /input_items lists them: each with id and status,
// messages with parts.
nlohmann::ordered_json listed_items(const nlohmann::ordered_json& input);

// Makes the prompt of the next round from the call's conversation. max_tokens: for this round;
// negative: what fits the context. REQUIRES: the MCP tools are known and shown. Errors: those of
// ChatSetup::read().
Status begin_round(ResponseCall& call, int max_tokens);

}  // namespace penstock
