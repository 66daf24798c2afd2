#include "frontend/chat/call_history.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "frontend/chat/exact_json.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

void replace_field(std::string& text, const char* field, std::string_view by) {
  if (const size_t at = text.find(field); at != std::string::npos)
    text.replace(at, std::strlen(field), by);
}

// Calls visit(call, name) for every call with a named function in a message.
void visit_calls(Json& message, const auto& visit) {
  const auto calls = message.is_object() ? message.find("tool_calls") : message.end();
  if (!message.is_object() || calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    const std::string name = get_string(get_field(call, "function"), "name");
    if (call.is_object() && !name.empty()) visit(call, name);
  }
}

// Returns a writing's text with its fields filled in.
std::string filled(std::string text, int n, const std::string& id) {
  replace_field(text, "{n}", std::to_string(n));
  replace_field(text, "{id}", id);
  return text;
}

std::string arguments_text(const Json& call) {
  const Json& arguments = get_field(get_field(call, "function"), "arguments");
  const Json object =
      arguments.is_string() ? arguments_object(arguments.get_ref<const std::string&>()) : arguments;
  return object.is_object() ? dump_exact(object) : "{}";
}

std::string written_calls(const CallWriting& writing, Json& message) {
  std::string text;
  int n = 0;
  visit_calls(message, [&](const Json& call, const std::string& name) {
    const std::string id = get_string(call, "id");
    text += filled(n == 0 ? writing.begin : writing.separator, n, id);
    text += filled(writing.name_begin, n, id) + name + filled(writing.name_end, n, id) +
            arguments_text(call) + filled(writing.call_end, n, id);
    ++n;
  });
  return n == 0 ? text : text + filled(writing.end, n, {});
}

}  // namespace

void fit_call_ids(const CallWriting& writing, Json& messages) {
  if (writing.id.find("{name}") == std::string::npos || !messages.is_array()) return;
  std::map<std::string, std::string> ids;  // new ids by replaced id
  int n = 0;
  for (Json& message : messages) {
    visit_calls(message, [&](Json& call, const std::string& name) {
      std::string id = writing.id;
      replace_field(id, "{name}", name);
      const std::string mark = id.substr(0, id.find("{n}"));  // prefix of this tool's ids
      replace_field(id, "{n}", std::to_string(n++));
      const std::string given = get_string(call, "id");
      if (given.starts_with(mark)) return;
      ids[given] = id;
      call["id"] = std::move(id);
    });
    const auto found = ids.find(get_string(message, "tool_call_id"));
    if (found != ids.end() && !found->first.empty()) message["tool_call_id"] = found->second;
  }
}

void calls_into_content(const CallWriting& writing, Json& messages) {
  if (writing.arguments != ArgumentForm::kJson || !messages.is_array()) return;
  for (Json& message : messages) {
    std::string text = written_calls(writing, message);
    if (text.empty()) continue;
    message.erase("tool_calls");
    Json& content = message["content"];
    if (content.is_array()) {
      content.push_back({{"type", "text"}, {"text", std::move(text)}});
    } else {
      content = (content.is_string() ? content.get<std::string>() : std::string()) + text;
    }
  }
}

}  // namespace penstock
