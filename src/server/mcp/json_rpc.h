// JSON-RPC 2.0 as the Model Context Protocol has it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

using McpJson = nlohmann::ordered_json;

inline constexpr const char* kMcpVersion = "2025-06-18";

// One line each, without a line break.
std::string rpc_request(int64_t id, std::string_view method, const McpJson& params);
std::string rpc_notification(std::string_view method, const McpJson& params);
// The answer to a request of the other side: to a ping an empty result; to all else that there is
// no such method.
std::string rpc_answer(const McpJson& request);

// A message as it came; discarded: it is no JSON, nests too deeply or has more values than
// kMostMcpValues.
McpJson read_rpc(std::string_view text);

// What a message is. Neither: it is ignored.
inline bool is_rpc_response(const McpJson& message) {
  return message.is_object() && message.contains("id") && !message.contains("method");
}
inline bool is_rpc_request(const McpJson& message) {
  return message.is_object() && message.contains("id") && message.contains("method");
}
// The id of a response to one of our requests; nullopt: it is none of ours.
std::optional<int64_t> rpc_id(const McpJson& response);
// The result, or the error of the other side: kUnsupported, "MESSAGE (code N)".
Result<McpJson> rpc_outcome(const McpJson& response);

}  // namespace penstock
