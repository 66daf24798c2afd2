// Converts Anthropic's messages to chat messages.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

class MessageBlocks {
 public:
  // Adds a message with a list of blocks, whose texts are moved. Tool results become separate
  // messages. Errors: kInvalidArgument (a block that cannot be shown to a model).
  Status add(const std::string& role, nlohmann::ordered_json& content, const std::string& where);

  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<std::string> warnings;  // about what is left out

 private:
  Status add_block(nlohmann::ordered_json& block, const std::string& where);
  Status add_call(nlohmann::ordered_json& block, const std::string& where);
  Status add_result(nlohmann::ordered_json& block, const std::string& type,
                    const std::string& where);
  void flush();

  nlohmann::ordered_json message_;  // collects the blocks
};

// Returns the texts of content: a string, or a list of blocks that contain text (text, document,
// search_result, tool_reference). Errors: kInvalidArgument (another block).
Result<nlohmann::ordered_json> texts_of_blocks(nlohmann::ordered_json content,
                                               const std::string& where);

}  // namespace penstock
