// Items of type compaction: summaries of conversations, which stand for what was said before them.
// Their "encrypted_content" is opaque to clients, and here the summary's text in base64.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace penstock {

nlohmann::ordered_json compaction_item(const std::string& summary);
// What such an item says to the model. Error: kInvalidArgument, an item that this server did not
// make.
Result<std::string> text_of_compaction(const nlohmann::ordered_json& item,
                                       const std::string& where);

}  // namespace penstock
