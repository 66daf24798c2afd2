#include "server/api/response_call.h"

#include <algorithm>

#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/schemas.h"
#include "server/api/store_call.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// The request's own fields in the reply, with the defaults of those it left out.
json echoed_fields(const json& body, const SamplingParams& params) {
  const auto given = [&](const char* name, json fallback) {
    const json& value = get_field(body, name);
    return value.is_null() ? fallback : value;
  };
  const json& reasoning = get_field(body, "reasoning");
  const json& text = get_field(body, "text");
  const json format = text.is_object() ? get_field(text, "format") : json();
  return {{"instructions", given("instructions", nullptr)},
          {"max_output_tokens", given("max_output_tokens", nullptr)},
          {"metadata", given("metadata", json::object())},
          {"parallel_tool_calls", get_bool(body, "parallel_tool_calls", true)},
          {"reasoning",
           {{"effort", reasoning.is_object() ? get_field(reasoning, "effort") : json()},
            {"summary", nullptr}}},
          {"temperature", params.temperature},
          {"top_p", params.top_p},
          {"text", {{"format", format.is_null() ? json{{"type", "text"}} : format}}},
          {"tool_choice", given("tool_choice", "auto")},
          {"tools", given("tools", json::array())},
          {"top_logprobs", get_int(body, "top_logprobs", 0)},
          {"truncation", "disabled"},
          {"previous_response_id", given("previous_response_id", nullptr)},
          {"background", get_bool(body, "background")},
          {"store", false},
          {"service_tier", "default"},
          {"user", given("user", nullptr)}};
}

bool wants_logprobs(const json& body) {
  const json& include = get_field(body, "include");
  return include.is_array() &&
         std::ranges::find(include, json("message.output_text.logprobs")) != include.end();
}

// Items in the form in which they are listed: each with an id, messages with parts.
json listed_items(const json& input) {
  if (input.is_string()) {
    return listed_items(json::array({{{"type", "message"}, {"role", "user"}, {"content", input}}}));
  }
  json items = json::array();
  for (const json& given : input) {
    json item = given;
    std::string type = get_string(item, "type");
    if (type.empty()) item["type"] = type = "message";
    const json& content = get_field(item, "content");
    if (type == "message" && content.is_string()) {
      const bool reply = get_string(item, "role") == "assistant";
      json parts =
          json::array({{{"type", reply ? "output_text" : "input_text"}, {"text", content}}});
      if (reply) parts[0]["annotations"] = json::array();
      item["content"] = std::move(parts);
    }
    if (get_string(item, "id").empty())
      item["id"] = random_id(type == "message" ? "msg_" : type == "reasoning" ? "rs_" : "fc_");
    if (get_string(item, "status").empty()) item["status"] = "completed";
    items.push_back(std::move(item));
  }
  return items;
}

// A body of a hundred bytes may go on from megabytes: they are bounded as bodies are, one and all
// together.
Status hold_conversation(Services& services, const StoredResponse& stored, ResponseCall& call) {
  const size_t bytes = stored.input.size() + stored.reply.size(),
               most = services.config.http.max_body_bytes;
  if (bytes > most) {
    return errorf(ErrorCode::kInvalidArgument,
                  "previous_response_id: expected a conversation of at most {} bytes, got {}", most,
                  bytes);
  }
  call.held = std::make_shared<BodyBudget>();
  call.held->attach(services.under_way.conversation_bytes,
                    static_cast<int64_t>(services.config.http.max_total_body_bytes));
  if (call.held->take(static_cast<int64_t>(bytes))) return {};
  return errorf(ErrorCode::kResourceExhausted,
                "stored conversations under way hold {} bytes, all that this server allows",
                services.config.http.max_total_body_bytes);
}

// The conversation of a stored response, with its answer.
Result<json> earlier_items(Services& services, const StoreCall& stored, const std::string& id,
                           ResponseCall& call) {
  constexpr const char* kField = "previous_response_id";
  auto found = stored.stores->responses->find(stored.owner, id);
  if (!found && found.error().code == ErrorCode::kNotFound)
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", kField, found.error().message);
  if (!found) return tl::unexpected(found.error());
  found->events = {};
  RETURN_IF_ERROR(hold_conversation(services, *found, call));
  const json reply = bounded_json<json>(found->reply);
  json items = bounded_json<json>(found->input);
  const std::string status = found->ended ? get_string(reply, "status") : "in_progress";
  if (status != "completed" && status != "incomplete") {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a response that is completed, {} is {}", kField, id, status);
  }
  if (!items.is_array())
    return errorf(ErrorCode::kInternal, "{}: what is stored of it cannot be read", id);
  for (const json& item : get_field(reply, "output")) items.push_back(item);
  return items;
}

// What of the request is about stored responses. The input becomes the whole conversation.
Status read_storing(Services& services, const HttpRequest& request, json& body, ResponseCall& call,
                    size_t& n_earlier) {
  const std::string previous = get_string(body, "previous_response_id");
  call.background = get_bool(body, "background");
  const bool must_store = call.background || !previous.empty();
  if (services.config.data_dir.empty()) {
    if (!must_store) return {};
    return errorf(ErrorCode::kInvalidArgument, "{}: {}",
                  previous.empty() ? "background" : "previous_response_id",
                  services.data.stores().error().message);
  }
  call.store = get_bool(body, "store", true);
  if (call.background && !call.store)
    return errorf(ErrorCode::kInvalidArgument, "background: needs store, which is false");
  auto stored = read_store_call(services, request, "/v1/responses");
  if (!stored && (must_store || get_bool(body, "store"))) return tl::unexpected(stored.error());
  call.store = call.store && stored;
  call.echoed["store"] = call.store;
  if (!stored) return {};
  call.owner = stored->owner;
  if (!previous.empty()) {
    ASSIGN_OR_RETURN(json items, earlier_items(services, *stored, previous, call));
    n_earlier = items.size();
    for (json& item : listed_items(body["input"])) items.push_back(std::move(item));
    body["input"] = std::move(items);
  } else if (call.store) {
    body["input"] = listed_items(body["input"]);
  }
  if (call.store) call.items = dump(body["input"]);
  return {};
}

// What of the request is about MCP servers.
Status read_mcp(const Services& services, const HttpRequest& request, json& body, size_t n_earlier,
                ResponseCall& call) {
  ASSIGN_OR_RETURN(McpRequest mcp, McpRequest::take(services.mcp, record_of(request).key, body));
  ASSIGN_OR_RETURN(call.approved, mcp.read_items(body["input"], n_earlier));
  call.max_tool_calls = get_int(body, "max_tool_calls", -1);
  if (!mcp.empty()) call.mcp = std::move(mcp);
  return {};
}

Status make_prompt(ResponseCall& call, Conversation conversation) {
  ASSIGN_OR_RETURN(call.task, read_task(std::move(conversation), call.generation));
  call.generation.prompts.push_back(std::move(call.task.prompt));
  call.generation.fill_context();
  call.generation.keep_markers = call.task.parses();
  return {};
}

}  // namespace

Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, responses_request()));
  json& body = asked.fields;
  ResponseCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, body, -1));
  SamplingParams& params = call.generation.params;
  call.echoed = echoed_fields(body, params);  // before the conversation takes what it needs
  // Every stream repeats it three times, and what is kept of the response once more.
  if (const size_t bytes = dump(call.echoed).size(), most = most_text(services); bytes > most) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "body: expected at most {} bytes of fields that the reply repeats (instructions, tools, "
        "text, ...), got {}",
        most, bytes);
  }
  size_t n_earlier = 0;
  RETURN_IF_ERROR(read_storing(services, request, body, call, n_earlier));
  RETURN_IF_ERROR(read_mcp(services, request, body, n_earlier, call));
  ASSIGN_OR_RETURN(call.conversation, conversation_of_response(body, n_earlier));
  call.generation.tool_schemas = "parameters";
  call.generation.strict_tools = true;
  params.max_tokens = static_cast<int>(get_int(body, "max_output_tokens", -1));
  const auto top = static_cast<int>(get_int(body, "top_logprobs", 0));
  call.logprobs = wants_logprobs(body);
  if (top > 0 && !call.logprobs) {
    return errorf(ErrorCode::kInvalidArgument,
                  "top_logprobs: needs include: [\"message.output_text.logprobs\"]");
  }
  if (call.logprobs) params.logprobs = top;
  const std::string id = get_string(body, "request_id");
  call.id = "resp_" + id;
  if (id.empty() || call.store) call.id = random_id(id.empty() ? "resp_" : "resp_" + id + "_");
  call.stream = get_bool(body, "stream");
  call.timings = get_bool(body, "timings");
  if (call.mcp)
    call.first = call.generation;
  else
    RETURN_IF_ERROR(make_prompt(call, std::move(call.conversation)));
  return call;
}

Status begin_round(ResponseCall& call, int max_tokens) {
  call.generation = call.first;
  call.generation.params.max_tokens = max_tokens;
  return make_prompt(call, call.conversation);
}

}  // namespace penstock
