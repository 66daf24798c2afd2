#include "server/mcp/json_rpc.h"

#include <algorithm>
#include <charconv>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "frontend/json_fields.h"
#include "server/mcp/mcp_config.h"
#include "server/mcp/tool_result.h"

namespace penstock {
namespace {

std::string line_of(const McpJson& message) {
  return message.dump(-1, ' ', false, McpJson::error_handler_t::replace);
}

McpJson envelope_of(std::string_view method, const McpJson& params) {
  McpJson message = {{"jsonrpc", "2.0"}, {"method", method}};
  if (!params.is_null()) message["params"] = params;
  return message;
}

}  // namespace

std::string rpc_request(int64_t id, std::string_view method, const McpJson& params) {
  McpJson message = envelope_of(method, params);
  message["id"] = id;
  return line_of(message);
}

std::string rpc_notification(std::string_view method, const McpJson& params) {
  return line_of(envelope_of(method, params));
}

McpJson read_rpc(std::string_view text) {
  if (count_values(text) > kMostMcpValues || !nests_within(text, kMostMcpNesting))
    return McpJson(McpJson::value_t::discarded);
  return bounded_json<McpJson>(text);
}

std::string rpc_answer(const McpJson& request) {
  constexpr int kMethodNotFound = -32601;
  McpJson answer = {{"jsonrpc", "2.0"}, {"id", request["id"]}};
  if (get_string(request, "method") == "ping")
    answer["result"] = McpJson::object();
  else
    answer["error"] = {{"code", kMethodNotFound}, {"message", "this client has no such method"}};
  return line_of(answer);
}

std::optional<int64_t> rpc_id(const McpJson& response) {
  const McpJson& id = get_field(response, "id");
  if (id.is_number_integer()) return id.get<int64_t>();
  if (!id.is_string()) return std::nullopt;
  const std::string& text = id.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool seems_rpc(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first != std::string_view::npos && text[first] == '{' &&
         text.find("jsonrpc") != std::string_view::npos;
}

std::vector<int64_t> rpc_ids_in(std::string_view text) {
  std::vector<int64_t> ids;
  const auto skip = [&text](std::string_view set) {
    text.remove_prefix(std::min(text.find_first_not_of(set), text.size()));
  };
  for (size_t at; (at = text.find("id")) != std::string_view::npos;) {
    const bool begins = at > 0 && (text[at - 1] == '"' || text[at - 1] == '\'');
    text.remove_prefix(at + 2);
    if (!begins || text.empty() || (text[0] != '"' && text[0] != '\'')) continue;
    text.remove_prefix(1);
    skip(" \t");
    if (!text.starts_with(':')) continue;
    text.remove_prefix(1);
    skip(" \t\"'");
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc()) ids.push_back(number);
  }
  return ids;
}

tl::unexpected<Error> unreadable_rpc() {
  return errorf(
      ErrorCode::kIo,
      "the answer is no JSON that can be read: expected at most {} values, nested at most {} "
      "deep",
      kMostMcpValues, kMostMcpNesting);
}

Result<McpJson> rpc_outcome(const McpJson& response) {
  const McpJson& error = get_field(response, "error");
  if (!error.is_null()) {
    constexpr size_t kMost = 2000;
    std::string message = get_string(error, "message", "an error without a message");
    return errorf(ErrorCode::kUnsupported, "{} (code {})", cut_text(std::move(message), kMost),
                  get_int(error, "code", 0));
  }
  const McpJson& result = get_field(response, "result");
  if (!result.is_object())
    return errorf(ErrorCode::kCorruptFile, "expected a response with a result or an error");
  return result;
}

}  // namespace penstock
