// JSON-RPC 2.0 as used by the Model Context Protocol.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Parses a message; discarded: not JSON, nested deeper than kMostMcpNesting, or more than kMostMcpValues values.
McpJson read_rpc(std::string_view text);

// Classify messages; those that are neither are ignored.
inline bool is_rpc_response(const McpJson& message) {
  return message.is_object() && message.contains("id") && !message.contains("method");
}
inline bool is_rpc_request(const McpJson& message) {
  return message.is_object() && message.contains("id") && message.contains("method");
}
// Calls take(message) for a message, or for each of a batch until it returns false.
template <class Take>
bool for_each_rpc(const McpJson& received, Take&& take) {
  if (!received.is_array()) return take(received);
  for (const McpJson& one : received) {
    if (!take(one)) return false;
  }
  return true;
}
// Returns the id of a response; nullopt: not an id of our requests. A number written as a string
// is the number.
std::optional<int64_t> rpc_id(const McpJson& response);
// An error about a request that the other side could not read, so that it has no id.
inline bool is_rpc_error_without_id(const McpJson& message) {
  return is_rpc_response(message) && message["id"].is_null() && message.contains("error");
}
// Whether a text that read_rpc() discards was meant to be a message.
bool seems_rpc(std::string_view text);
// Returns the ids that occur in such a text, in order.
std::vector<int64_t> rpc_ids_in(std::string_view text);
// The outcome of a request whose answer read_rpc() discards.
tl::unexpected<Error> unreadable_rpc();
// Returns the result, or kUnsupported with "MESSAGE (code N)" for an error of the other side.
Result<McpJson> rpc_outcome(const McpJson& response);

}  // namespace penstock
