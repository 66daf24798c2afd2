// Converts the input items of a response to chat messages.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/api/mcp_items.h"

namespace penstock {

class ResponseItems {
 public:
  // Adds one item, whose texts are moved. Reasoning, message and call items of one reply form one
  // message. Errors: kInvalidArgument (an item that cannot be shown to a model).
  Status add(nlohmann::ordered_json& item, const std::string& where);

  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<std::string> warnings;  // about what is left out

 private:
  Status add_message(nlohmann::ordered_json& item, const std::string& where);
  Status add_call(nlohmann::ordered_json& item, const std::string& where, bool custom);
  Status add_output(nlohmann::ordered_json& item, const std::string& where);
  Status add_reasoning(const nlohmann::ordered_json& item, const std::string& where);
  Status add_other(nlohmann::ordered_json& item, const std::string& type, const std::string& where);
  nlohmann::ordered_json& open_reply();

  // the last message is an assistant message that may be extended
  bool open_ = false;
  ToolResults results_;
};

// Returns the reasoning as encrypted_content, which clients send back unread. It is not secret: a
// prefix and the text in base64.
std::string sealed_reasoning(const std::string& text);

}  // namespace penstock
