#include "server/api/message_blocks.h"

#include "server/api/api_request.h"
#include "server/api/conversation_parts.h"

namespace penstock {
namespace {

// Returns "title" and "context" of a document, or "title" and "source" of a search result, which
// precede its text.
std::string heading(const json& block, std::initializer_list<const char*> fields) {
  std::string text;
  for (const char* field : fields) {
    const std::string value = get_string(block, field);
    if (!value.empty()) text += (text.empty() ? "" : "\n") + value;
  }
  return text.empty() ? text : text + "\n\n";
}

// Joins a string or a list of text blocks.
Result<std::string> joined(json content, const std::string& where) {
  ASSIGN_OR_RETURN(const json parts, text_parts(std::move(content), {"text"}, where));
  if (parts.is_string()) return parts.get<std::string>();
  std::string text;
  for (const json& part : parts) text += (text.empty() ? "" : "\n") + get_string(part, "text");
  return text;
}

Result<std::string> document_text(json& block, const std::string& where) {
  json source = take_field(block, "source");
  const std::string type = get_string(source, "type");
  const std::string head = heading(block, {"title", "context"});
  if (type == "text") return head + get_string(source, "data");
  if (type == "content") {
    ASSIGN_OR_RETURN(const std::string text,
                     joined(take_field(source, "content"), where + ".source.content"));
    return head + text;
  }
  return errorf(ErrorCode::kInvalidArgument,
                "{}.source.type: expected \"text\" or \"content\" (documents are text here), got "
                "\"{}\"",
                where, type);
}

// Returns the part of a block that is or contains text, or is a picture.
Result<json> part_of(json& block, const std::string& where) {
  const std::string type = get_string(block, "type");
  if (type == "text" && get_field(block, "text").is_string()) return text_part_of(block);
  if (type == "image") {
    json source = take_field(block, "source");
    const std::string kind = get_string(source, "type");
    if (kind == "base64" && get_field(source, "data").is_string())
      return image_part(data_url(get_string(source, "media_type"), take_string(source, "data")),
                        where);
    if (kind == "url") return image_part(take_string(source, "url"), where);
    return errorf(ErrorCode::kInvalidArgument, "{}.source.type: expected \"base64\", got \"{}\"",
                  where, kind);
  }
  if (type == "document") {
    ASSIGN_OR_RETURN(std::string text, document_text(block, where));
    return text_part(std::move(text));
  }
  if (type == "search_result") {
    const std::string head = heading(block, {"title", "source"});
    ASSIGN_OR_RETURN(const std::string text, joined(take_field(block, "content"), where));
    return text_part(head + text);
  }
  if (type == "tool_reference")
    return text_part("The tool " + get_string(block, "tool_name") + " is available.");
  if (type == "compaction" && get_field(block, "content").is_string())
    return text_part(take_string(block, "content"));
  return cannot(where, type);
}

// Returns the result of a server tool as JSON, without fields that only Anthropic's server reads.
std::string server_result(json content) {
  if (content.is_string()) return content.get<std::string>();
  const auto drop = [](json& one) {
    if (one.is_object()) one.erase("encrypted_content");
  };
  drop(content);
  if (content.is_array()) {
    for (json& one : content) drop(one);
  }
  return dump(content);
}

}  // namespace

Result<json> texts_of_blocks(json content, const std::string& where) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a string or a list of parts", where);
  json parts = json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    ASSIGN_OR_RETURN(json part, part_of(content[i], fmt::format("{}[{}]", where, i)));
    parts.push_back(std::move(part));
  }
  return parts;
}

Status MessageBlocks::add(const std::string& role, json& content, const std::string& where) {
  const size_t n_before = messages.size();
  message_ = message_of(role, json::array());
  for (size_t i = 0; i < content.size(); ++i)
    RETURN_IF_ERROR(add_block(content[i], fmt::format("{}[{}]", where, i)));
  flush();
  if (messages.size() == n_before) messages.push_back(std::move(message_));
  return {};
}

// Adds the pending message unless it is empty, and starts another one with the same role.
void MessageBlocks::flush() {
  const std::string role = get_string(message_, "role");
  const bool says = !message_["content"].empty() || message_.contains("tool_calls") ||
                    message_.contains("reasoning_content");
  if (says) messages.push_back(std::move(message_));
  message_ = message_of(role, json::array());
}

Status MessageBlocks::add_block(json& block, const std::string& where) {
  const std::string type = get_string(block, "type");
  const std::string role = get_string(message_, "role");
  const bool of_server = type == "server_tool_use" || type == "mcp_tool_use";
  if (role == "assistant" && (type == "tool_use" || of_server)) return add_call(block, where);
  if (role == "user" && type == "tool_result") return add_result(block, type, where);
  if (role == "assistant" && type.ends_with("_tool_result")) return add_result(block, type, where);
  if (role == "assistant" && type == "thinking") {
    message_["reasoning_content"] =
        take_string(message_, "reasoning_content") + take_string(block, "thinking");
    return {};
  }
  if (role == "assistant" && type == "redacted_thinking") {
    warnings.push_back(where + ": another server sealed this thinking, it is left out");
    return {};
  }
  ASSIGN_OR_RETURN(json part, part_of(block, where));
  message_["content"].push_back(std::move(part));
  return {};
}

Status MessageBlocks::add_call(json& block, const std::string& where) {
  if (get_string(block, "name").empty())
    return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", where);
  json input = take_field(block, "input");
  if (!input.is_object())
    return errorf(ErrorCode::kInvalidArgument, "{}.input: expected an object", where);
  message_["tool_calls"].push_back(
      tool_call(take_string(block, "id"), take_string(block, "name"), std::move(input)));
  return {};
}

Status MessageBlocks::add_result(json& block, const std::string& type, const std::string& where) {
  json result = take_field(block, "content");
  if (type == "tool_result") {
    ASSIGN_OR_RETURN(result, texts_of_blocks(std::move(result), where + ".content"));
    if (result.is_null()) result = "";
  } else {
    result = server_result(std::move(result));
    flush();  // a call must precede its result
  }
  messages.push_back(tool_message(take_string(block, "tool_use_id"), std::move(result)));
  return {};
}

}  // namespace penstock
