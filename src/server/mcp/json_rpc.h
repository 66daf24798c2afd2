// JSON-RPC 2.0 as used by the Model Context Protocol.
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

// Return one line of JSON without a line break.
std::string rpc_request(int64_t id, std::string_view method, const McpJson& params);
std::string rpc_notification(std::string_view method, const McpJson& params);
// Returns the answer to a request of the other side: an empty result for a ping, "no such method"
// for all others.
std::string rpc_answer(const McpJson& request);

// Parses a message; discarded: not JSON, nested too deeply, or more than kMostMcpValues values.
McpJson read_rpc(std::string_view text);

// Classify messages; those that are neither are ignored.
inline bool is_rpc_response(const McpJson& message) {
  return message.is_object() && message.contains("id") && !message.contains("method");
}
inline bool is_rpc_request(const McpJson& message) {
  return message.is_object() && message.contains("id") && message.contains("method");
}
// Returns the id of a response; nullopt: not an id of our requests.
std::optional<int64_t> rpc_id(const McpJson& response);
// Returns the result, or kUnsupported with "MESSAGE (code N)" for an error of the other side.
Result<McpJson> rpc_outcome(const McpJson& response);

}  // namespace penstock
