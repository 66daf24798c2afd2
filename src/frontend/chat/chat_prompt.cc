#include "frontend/chat/chat_prompt.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/ordered_json.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Limits for one probe conversation: probing a template from a request must not cost more than
// rendering it.
constexpr int64_t kMostProbeSteps = 1'000'000;
constexpr size_t kMostProbeOutput = size_t{1} << 20;

// Returns the final text of a message: its content, or its last part.
std::string last_text(const Json& message) {
  const Json* content = &get_field(message, "content");
  if (content->is_array() && !content->empty()) content = &get_field(content->back(), "text");
  return content->is_string() ? content->get<std::string>() : std::string();
}

// Returns where `part` stands last in the text, or npos. memmem() is linear for every text; rfind()
// is not, and both texts are of a request.
size_t find_last(const std::string& text, const std::string& part) {
  const std::string back(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const void* found = memmem(back.data(), back.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::string::npos;
  return text.size() - part.size() - size_t(static_cast<const char*>(found) - back.data());
}

// Cuts the text after the last message's content, so that the model continues it. Templates may
// have trimmed the content.
Status cut_after_content(std::string& text, const std::string& content) {
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed =
      last == std::string::npos ? std::string() : content.substr(0, last + 1);
  const size_t at = find_last(text, trimmed);
  if (trimmed.empty() || at == std::string::npos) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "continue_final_message: the template does not render the last message's content as it is");
  }
  const bool whole = text.compare(at, content.size(), content) == 0;
  text.resize(at + (whole ? content.size() : trimmed.size()));
  return {};
}

// Passes tools to a template that reads them from a system message.
Status put_tools_in_system(const Json& tools, Json& messages) {
  static const ChatTemplate as_text = *ChatTemplate::parse("{{ functions | tojson }}");
  Json functions = Json::array();
  for (const Json& tool : tools) {
    const Json& function = get_field(tool, "function");
    functions.push_back(function.is_object() ? function : tool);
  }
  Json context = {{"functions", std::move(functions)}};
  const RenderOptions limits = render_options_for(context);
  ASSIGN_OR_RETURN(std::string text, as_text.render(std::move(context), limits));
  if (messages.empty() || messages[0]["role"] != "system") {
    constexpr const char* kPhi = "You are a helpful assistant with some tools.";
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", kPhi}});
  }
  messages[0]["tools"] = std::move(text);
  return {};
}

}  // namespace

Result<ChatPrompter::Template> ChatPrompter::open_template(const Json& specials,
                                                           const std::string& source) {
  ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::parse(source));
  const RenderMessages render = [&](const Json& messages, const Json& tools) {
    Json context = specials;
    context.update({{"messages", messages},
                    {"tools", tools},
                    {"documents", nullptr},
                    {"add_generation_prompt", false}});
    return chat.render(context, {.max_steps = kMostProbeSteps, .max_output = kMostProbeOutput});
  };
  MessageForms forms = find_message_forms(render);
  forms.developer = source.find("developer") != std::string::npos;
  return Template{std::move(chat), forms};
}

Result<ChatPrompter> ChatPrompter::open(const Tokenizer& tokenizer, const std::string& source) {
  const std::string& text = source.empty() ? tokenizer.chat_template() : source;
  if (text.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "the model has no chat template, and none was given");
  Json specials = Json::object();
  for (const auto& [name, text] : tokenizer.named_tokens()) specials[name] = text;
  const std::pair<const char*, TokenId> names[] = {{"bos_token", tokenizer.bos()},
                                                   {"eos_token", tokenizer.eos()},
                                                   {"unk_token", tokenizer.unk()},
                                                   {"pad_token", tokenizer.pad()}};
  for (const auto& [name, id] : names) {
    if (id != kNoToken) specials[name] = std::string(tokenizer.piece(id));
  }
  ASSIGN_OR_RETURN(Template chat, open_template(specials, text));
  std::optional<Template> tool_use;
  const auto found = tokenizer.chat_templates().find("tool_use");
  if (source.empty() && found != tokenizer.chat_templates().end()) {
    ASSIGN_OR_RETURN(tool_use, open_template(specials, found->second));
  }
  return ChatPrompter(std::move(specials), std::move(chat), std::move(tool_use));
}

Result<std::string> ChatPrompter::render(Json messages, Json tools, Json variables,
                                         const ChatPrompt& prompt) const {
  if (prompt.continue_final_message && prompt.add_generation_prompt) {
    return errorf(ErrorCode::kInvalidArgument,
                  "continue_final_message and add_generation_prompt exclude each other");
  }
  const bool with_tools = tools.is_array() && !tools.empty();
  const Template& chosen = tool_use_ && with_tools ? *tool_use_ : default_;
  Json context = specials_;
  reserve_members(context, context.size() + 4 + variables.size());
  ASSIGN_OR_RETURN(context["messages"], in_forms(chosen.forms, std::move(messages)));
  if (chosen.forms.system_tools && with_tools)
    RETURN_IF_ERROR(put_tools_in_system(tools, context["messages"]));
  context["tools"] = with_tools ? std::move(tools) : Json(nullptr);
  context["documents"] = nullptr;
  context["add_generation_prompt"] = prompt.add_generation_prompt;
  if (variables.is_object()) {
    for (auto& [name, value] : variables.get_ref<Json::object_t&>())
      add_member(context, name, std::move(value));
    drop_repeated_members(context);
  }
  std::string last;
  if (prompt.continue_final_message) last = last_text(context["messages"].back());
  const RenderOptions limits = render_options_for(context);
  ASSIGN_OR_RETURN(std::string text, chosen.chat.render(std::move(context), limits));
  if (prompt.continue_final_message) RETURN_IF_ERROR(cut_after_content(text, last));
  return text;
}

}  // namespace penstock
