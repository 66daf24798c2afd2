// Compaction items: summaries that replace the earlier part of a conversation. "encrypted_content"
// is opaque to clients; this server stores the summary's text in it as base64.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace penstock {

nlohmann::ordered_json compaction_item(const std::string& summary);
// Returns the text of a compaction item that is shown to the model. Errors: kInvalidArgument (the
// item was not made by this server).
Result<std::string> text_of_compaction(const nlohmann::ordered_json& item,
                                       const std::string& where);

}  // namespace penstock
