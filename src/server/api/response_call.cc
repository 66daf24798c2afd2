#include "server/api/response_call.h"

#include <algorithm>
#include <set>

#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/counted_text.h"
#include "server/api/earlier_items.h"
#include "server/api/store_call.h"
#include "server/routing/client_reason.h"
#include "server/services/client_warnings.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Returns the request's fields for the reply, with defaults for absent ones, as text: they may be
// megabytes, and events repeat them.
std::string echoed_fields(const json& body, const SamplingParams& params) {
  const auto given = [&](const char* name, json fallback) {
    const json& value = get_field(body, name);
    return value.is_null() ? fallback : value;
  };
  const json& reasoning = get_field(body, "reasoning");
  const json& text = get_field(body, "text");
  const json format = text.is_object() ? get_field(text, "format") : json();
  const json fields = {
      {"instructions", given("instructions", nullptr)},
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
      {"service_tier", "default"},
      {"user", given("user", nullptr)}};
  const std::string object = dump(fields);
  return object.substr(1, object.size() - 2);
}

bool includes(const json& body, const char* what) {
  const json& include = get_field(body, "include");
  return include.is_array() && std::ranges::find(include, json(what)) != include.end();
}

// Returns warnings about requested features that this server ignores.
std::vector<std::string> warnings_of_response(const json& body) {
  std::vector<std::string> warnings;
  const std::string summary = get_string(get_field(body, "reasoning"), "summary", "none");
  if (summary != "none")
    warnings.emplace_back("reasoning.summary: reasoning is given in full, without a summary");
  if (get_string(get_field(body, "text"), "verbosity", "medium") != "medium")
    warnings.emplace_back("text.verbosity: the model is not told");
  if (get_string(body, "truncation", "disabled") != "disabled")
    warnings.emplace_back("truncation: an input that is too long is an error");
  return warnings;
}

// Returns the first field that needs a store; null: none.
const char* field_that_stores(const json& body) {
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (!get_field(body, name).is_null()) return name;
  }
  return get_bool(body, "background") ? "background" : nullptr;
}

// Returns the items that precede the request's. Errors: those of the continued response or
// conversation.
Result<json> read_earlier(Services& services, const StoreCall& stored, const json& body,
                          ResponseCall& call) {
  const std::string previous = get_string(body, "previous_response_id");
  call.conversation_id = conversation_named_in(body);
  if (!previous.empty() && !call.conversation_id.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "conversation: cannot stand beside previous_response_id");
  if (!previous.empty()) return items_of_response(services, stored, previous, call);
  if (call.conversation_id.empty()) return json::array();
  return items_of_conversation(services, stored, call.conversation_id, call);
}

// Checks that items added to a conversation have new ids.
Status check_new_ids(const json& earlier, const json& items) {
  std::set<std::string> ids;
  for (const json& item : earlier) ids.insert(get_string(item, "id"));
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string id = get_string(items[i], "id");
    if (!ids.insert(id).second) {
      return errorf(ErrorCode::kInvalidArgument,
                    "input[{}].id: the conversation has an item {:.80} already", i, id);
    }
  }
  return {};
}

// Reads the fields about stored responses and conversations; prepends earlier items to the input.
Status read_storing(Services& services, const HttpRequest& request, json& body, ResponseCall& call,
                    size_t& n_earlier) {
  const char* const storing = field_that_stores(body);
  call.background = get_bool(body, "background");
  if (services.config.data_dir.empty()) {
    if (storing == nullptr) return {};
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", storing,
                  without_folders(services.data.stores().error().message));
  }
  call.store = get_bool(body, "store", true);
  if (call.background && !call.store)
    return errorf(ErrorCode::kInvalidArgument, "background: needs store, which is false");
  auto stored = read_store_call(services, request, "/v1/responses");
  if (!stored && (storing != nullptr || get_bool(body, "store")))
    return tl::unexpected(stored.error());
  call.store = call.store && stored;
  if (!stored) return {};
  call.owner = stored->owner;
  call.asker = stored->asker;
  ASSIGN_OR_RETURN(json items, read_earlier(services, *stored, body, call));
  n_earlier = items.size();
  if (storing == nullptr && !call.store) return {};
  json news = listed_items(body["input"]);
  if (!call.conversation_id.empty()) {
    RETURN_IF_ERROR(check_new_ids(items, news));
    call.new_items = dump(news);
  }
  for (json& item : news) items.push_back(std::move(item));
  body["input"] = std::move(items);
  if (call.store) call.items = dump(body["input"]);
  return {};
}

// Reads the fields about MCP servers.
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
      item["id"] = random_id(type == "message"            ? "msg_"
                             : type == "reasoning"        ? "rs_"
                             : type == "custom_tool_call" ? "ctc_"
                                                          : "fc_");
    if (get_string(item, "status").empty()) item["status"] = "completed";
    items.push_back(std::move(item));
  }
  return items;
}

Result<ResponseCall> read_response_call(Services& services, const HttpRequest& request,
                                        const ResponseReading& how) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, how.schema));
  json& body = asked.fields;
  if (how.any_length) RETURN_IF_ERROR(check_read_text(services, request, body));
  ResponseCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, body, -1));
  SamplingParams& params = call.generation.params;
  // before the conversation is moved out of the body
  call.echoed = echoed_fields(body, params);
  // The fields are repeated three times in a stream and once in the stored response, so that their
  // size is limited.
  if (const size_t bytes = call.echoed.size(), most = most_text(services); bytes > most) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "body: expected at most {} bytes of fields that the reply repeats (instructions, tools, "
        "text, ...), got {}",
        most, bytes);
  }
  size_t n_earlier = 0;
  RETURN_IF_ERROR(read_storing(services, request, body, call, n_earlier));
  RETURN_IF_ERROR(read_mcp(services, request, body, n_earlier, call));
  if (call.mcp && (how.any_length || how.last_turn != nullptr))
    return errorf(ErrorCode::kInvalidArgument,
                  "tools: those of MCP servers are only known when a response runs");
  if (how.last_turn != nullptr) {
    json items = listed_items(take_field(body, "input"));
    for (const json& item : items) {
      if (get_string(item, "role") == "user") call.retained.push_back(item);
    }
    call.retained_bytes = dump(call.retained).size();
    items.push_back({{"type", "message"}, {"role", "user"}, {"content", how.last_turn}});
    body["input"] = std::move(items);
  }
  ASSIGN_OR_RETURN(AskedConversation conversation, conversation_of_response(body, n_earlier));
  warn_client(request, conversation.warnings);
  warn_client(request, warnings_of_response(body));
  call.forms = std::move(conversation.forms);
  call.conversation = std::move(conversation);
  call.conversation.any_length = how.any_length;
  call.generation.tool_schemas = "parameters";
  call.generation.strict_tools = true;
  params.max_tokens = static_cast<int>(get_int(body, "max_output_tokens", -1));
  const auto top = static_cast<int>(get_int(body, "top_logprobs", 0));
  call.logprobs = includes(body, "message.output_text.logprobs");
  call.seals_reasoning = includes(body, "reasoning.encrypted_content");
  if (top > 0 && !call.logprobs) {
    return errorf(ErrorCode::kInvalidArgument,
                  "top_logprobs: needs include: [\"message.output_text.logprobs\"]");
  }
  if (call.logprobs) {
    RETURN_IF_ERROR(check_logprobs(services, *call.generation.model, top, "top_logprobs"));
    params.logprobs = top;
  }
  const std::string id = get_string(body, "request_id");
  call.id = "resp_" + id;
  if (id.empty() || call.store) call.id = random_id(id.empty() ? "resp_" : "resp_" + id + "_");
  call.stream = get_bool(body, "stream");
  call.timings = get_bool(body, "timings");
  call.generation.repeats_reply = true;  // its last event has all of it
  if (call.mcp)
    call.first = call.generation;
  else
    RETURN_IF_ERROR(make_prompt(call, std::move(call.conversation)));
  warn_client(request, call.task.warning);
  return call;
}

Status begin_round(ResponseCall& call, int max_tokens) {
  call.generation = call.first;
  call.generation.params.max_tokens = max_tokens;
  return make_prompt(call, call.conversation);
}

}  // namespace penstock
