// "encrypted_content" of items, which is opaque to clients: a mark, and this server's text as base64.
// Compaction items: summaries that replace the earlier part of a conversation.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

std::string sealed(std::string_view mark, const std::string& text);
// Returns "" if the content does not begin with the mark, or is no base64 of a UTF-8 text.
std::string unsealed(std::string_view mark, std::string_view content);

nlohmann::ordered_json compaction_item(const std::string& summary);
// Returns the text of a compaction item that is shown to the model. Errors: kInvalidArgument (the
// item was not made by this server).
Result<std::string> text_of_compaction(const nlohmann::ordered_json& item,
                                       const std::string& where);

}  // namespace penstock
