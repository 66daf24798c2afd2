// The items of a response's input as messages of a chat.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/api/mcp_items.h"

namespace penstock {

class ResponseItems {
 public:
  // Adds one item of the input list, whose texts are taken. A reply may come as several items:
  // reasoning, a message, calls. Error: kInvalidArgument, what cannot be shown to a model.
  Status add(nlohmann::ordered_json& item, const std::string& where);

  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<std::string> warnings;  // of what is left out

 private:
  Status add_message(nlohmann::ordered_json& item, const std::string& where);
  Status add_call(nlohmann::ordered_json& item, const std::string& where, bool custom);
  Status add_output(nlohmann::ordered_json& item, const std::string& where);
  Status add_reasoning(const nlohmann::ordered_json& item, const std::string& where);
  Status add_other(nlohmann::ordered_json& item, const std::string& type, const std::string& where);
  nlohmann::ordered_json& open_reply();

  bool open_ = false;  // the last message is an assistant's that may still grow
  ToolResults results_;
};

// Reasoning in the form that clients give back without reading it (encrypted_content). It is not a
// secret: the text in base64 behind a mark.
std::string sealed_reasoning(const std::string& text);

}  // namespace penstock
