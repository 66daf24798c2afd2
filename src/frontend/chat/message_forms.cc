#include "frontend/chat/message_forms.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "frontend/chat/call_format.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Content = MessageForms::Content;

// Counts how often a template wrote a part's JSON instead of its text.
int count_of_keys(std::string_view prompt) {
  int n = 0;
  for (const std::string_view key : {"'text'", "\"text\""}) {
    for (size_t at = prompt.find(key); at != std::string_view::npos; at = prompt.find(key, at + 1))
      ++n;
  }
  return n;
}

// Texts of the probe conversations, searched for in the rendered prompts.
constexpr std::string_view kOne = "first-saying", kTwo = "second-saying", kTool = "other_function",
                           kName = "name_of_call", kValue = "value_of_call";

Json text_part(std::string text) {
  Json part = {{"type", "text"}};
  part["text"] = std::move(text);
  return part;
}

class FormsFinder {
 public:
  explicit FormsFinder(const RenderMessages& render) : render_(render) {}

  MessageForms find() {
    forms_.user =
        content_of([](Json content) { return Json::array({message("user", std::move(content))}); });
    forms_.system = forms_.assistant =
        forms_.user == Content::kParts ? Content::kParts : Content::kText;
    forms_.system = content_of(
        [&](Json content) {
          return Json::array({message("system", std::move(content)), somebody()});
        },
        forms_.system);
    forms_.assistant = content_of(
        [&](Json content) {
          return Json::array({somebody(), message("assistant", std::move(content)), somebody()});
        },
        forms_.assistant);
    find_tools();
    find_calls();
    forms_.calling = content_of(
        [&](Json content) { return with_call(std::move(content), "result"); }, forms_.assistant);
    // Results are given as text if the template accepts it.
    find_ids();
    const Content tool =
        content_of([&](Json content) { return with_call(no_content(), std::move(content)); });
    forms_.tool = tool == Content::kParts ? Content::kParts : Content::kText;
    find_turns();
    return forms_;
  }

 private:
  static Json message(const char* role, Json content) {
    return {{"role", role}, {"content", std::move(content)}};
  }
  Json somebody() const {
    return message(
        "user", forms_.user == Content::kParts ? Json::array({text_part("hello")}) : Json("hello"));
  }

  Json no_content() const { return forms_.null_beside_calls ? Json() : Json(""); }
  // Returns a conversation with a call in the forms found so far, the given content beside it, and
  // its result.
  Json with_call(Json content, Json result) const {
    Json arguments = {{"key", kValue}};
    if (forms_.text_arguments) arguments = arguments.dump();
    Json calling = message("assistant", std::move(content));
    calling["tool_calls"] =
        Json::array({{{"id", id_},
                      {"type", "function"},
                      {"function", {{"name", kName}, {"arguments", std::move(arguments)}}}}});
    Json answer = {{"role", "tool"}, {"tool_call_id", id_}, {"name", kName}};
    answer["content"] = std::move(result);
    return Json::array({somebody(), std::move(calling), std::move(answer)});
  }

  // Renders messages; "": the template refuses them. Some templates require tools, others restrict
  // their descriptions.
  std::string shown(const Json& messages, bool tools_first = false) const {
    static const Json tools =
        bounded_json<Json>(R"([{"type": "function", "function": {"name": "other_function",
        "description": "A function.", "parameters": {"type": "object", "properties": {"key": {"type": "string",
        "description": "A key."}}, "required": ["key"]}}}])");
    const Json none = nullptr;
    for (const Json* with : tools_first ? std::array{&tools, &none} : std::array{&none, &tools}) {
      if (auto text = render_(messages, *with)) return std::move(*text);
    }
    return {};
  }

  // Determines whether a template accepts text, parts or both as the content that `conversation`
  // inserts.
  template <class Conversation>
  Content content_of(const Conversation& conversation, Content fallback = Content::kText) const {
    const std::string text = shown(conversation(kOne));
    const std::string parts = shown(
        conversation(Json::array({text_part(std::string(kOne)), text_part(std::string(kTwo))})));
    const bool takes_text = text.find(kOne) != std::string::npos;
    const size_t one = parts.find(kOne), two = parts.rfind(kTwo);
    const bool in_order = one != std::string::npos && two != std::string::npos && one < two;
    const bool takes_parts = in_order && count_of_keys(parts) == count_of_keys(text);
    if (takes_parts) return takes_text ? Content::kEither : Content::kParts;
    return takes_text ? Content::kText : fallback;
  }

  // Finds where the template reads tools.
  void find_tools() {
    const Json from_user = Json::array({somebody()});
    if (shown(from_user, true).find(kTool) != std::string::npos) return;
    Json system = message("system", "hello");
    system["tools"] = kTool;
    forms_.system_tools =
        shown(Json::array({std::move(system), somebody()})).find(kTool) != std::string::npos;
  }

  Json said(const char* role, Content form, std::string_view text) const {
    std::string content(text);
    return message(role,
                   form == Content::kParts ? Json::array({text_part(content)}) : Json(content));
  }

  // Finds which roles may follow each other. Templates that refuse even the usual order keep the
  // defaults.
  void find_turns() {
    const auto prompt_of = [&](const Json::array_t& messages) { return shown(Json(messages)); };
    const auto has_both = [](const std::string& text) {
      return text.find(kOne) != std::string::npos && text.find(kTwo) != std::string::npos;
    };
    const Json user = said("user", forms_.user, kTwo),
               reply = said("assistant", forms_.assistant, "hello");
    const Json system = said("system", forms_.system, kOne);
    if (has_both(prompt_of({system, user}))) {
      const auto runs = [&](const char* role) {
        return has_both(prompt_of({system, said(role, forms_.system, kTwo), somebody()}));
      };
      const auto anywhere = [&](const char* role) {
        // Some templates show only the last system message.
        return has_both(
            prompt_of({system, somebody(), reply, said(role, forms_.system, kTwo), somebody()}));
      };
      forms_.system_runs = runs("system");
      forms_.system_anywhere = anywhere("system");
      forms_.developer_runs = runs("developer");
      forms_.developer_anywhere = anywhere("developer");
    }
    if (!prompt_of({somebody(), reply, user}).empty())
      forms_.user_runs = !prompt_of({somebody(), user}).empty();
  }

  // Selects the first forms for which a call appears in the prompt.
  void find_calls() {
    bool refused = true;
    for (const bool null_content : {false, true}) {
      for (const bool text : {false, true}) {
        forms_.null_beside_calls = null_content;
        forms_.text_arguments = text;
        const std::string prompt = shown(with_call(no_content(), "result"), true);
        refused = refused && prompt.empty();
        if (prompt.find(kName) != std::string::npos && prompt.find(kValue) != std::string::npos)
          return;
      }
    }
    forms_.null_beside_calls = forms_.text_arguments = false;
    forms_.shows_calls = refused;
  }

  // Finds whether the template refuses calls because of the format of their ids.
  void find_ids() {
    const auto takes = [&](const char* id) {
      id_ = id;
      return shown(with_call(no_content(), "result"), true).find(kName) != std::string::npos;
    };
    forms_.short_ids = !takes("call_0123456789abcdef") && takes("call00001");
    id_ = "call00001";
  }

  const RenderMessages& render_;
  MessageForms forms_;
  std::string id_ = "call00001";  // id of the probe's calls
};

Status check_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "messages: expected a list with at least one message");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("role") ||
        !messages[i]["role"].is_string()) {
      return errorf(ErrorCode::kInvalidArgument, "messages[{}]: expected an object with a role", i);
    }
  }
  return {};
}

// Returns the text of a part: a string, {type: text, text}, or an equivalent type.
Result<std::string> text_of_part(Json& part, size_t index) {
  if (part.is_string()) return std::move(part.get_ref<std::string&>());
  const auto type = part.is_object() ? part.find("type") : part.end();
  const std::string name =
      type != part.end() && type->is_string() ? type->get<std::string>() : "text";
  const char* field = name == "refusal" ? "refusal" : "text";
  const bool known =
      name == "text" || name == "refusal" || name == "input_text" || name == "output_text";
  if (known && part.is_object() && part.contains(field) && part[field].is_string())
    return std::move(part[field].get_ref<std::string&>());
  return errorf(ErrorCode::kInvalidArgument,
                "messages[{}].content: only text parts are supported, got {}", index, name);
}

// An image, a video or a sound whose bytes are elsewhere (pictures/message_pictures.h).
bool is_image(const Json& part) {
  return part.is_object() && part.size() == 1 && part.contains("type") &&
         (part["type"] == "image" || part["type"] == "audio" || part["type"] == "video");
}

// Returns the parts of content, which is a string, a list of parts, or none: texts, and images and
// sounds as they are.
Result<std::vector<Json>> parts_of(Json& content, size_t index) {
  std::vector<Json> parts;
  if (content.is_null()) return parts;
  if (content.is_string()) {
    parts.push_back(std::move(content));
    return parts;
  }
  if (!content.is_array()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "messages[{}].content: expected a string or a list of parts", index);
  }
  for (Json& part : content) {
    if (is_image(part)) {
      parts.push_back(std::move(part));
      continue;
    }
    ASSIGN_OR_RETURN(std::string text, text_of_part(part, index));
    parts.emplace_back(std::move(text));
  }
  return parts;
}

// Text content has no place for images, which are left out.
Json content_in_form(Content form, bool was_parts, std::vector<Json> parts) {
  if (form == Content::kParts || (form == Content::kEither && was_parts)) {
    Json content = Json::array();
    for (Json& part : parts) {
      content.push_back(part.is_string() ? text_part(std::move(part.get_ref<std::string&>()))
                                         : std::move(part));
    }
    return content;
  }
  std::erase_if(parts, [](const Json& part) { return !part.is_string(); });
  if (parts.size() == 1) return std::move(parts[0]);
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i)
    joined.append(i == 0 ? "" : "\n").append(parts[i].get_ref<const std::string&>());
  return joined;
}

Content form_of(const MessageForms& forms, const Json& message) {
  const std::string& role = message["role"].get_ref<const std::string&>();
  if (role == "system" || role == "developer") return forms.system;
  if (role == "assistant") return message.contains("tool_calls") ? forms.calling : forms.assistant;
  return role == "tool" ? forms.tool : forms.user;
}

// Limit of values in the arguments of all calls of a conversation, about 100 bytes each.
constexpr size_t kMostArguments = 500'000;

// n_values: remaining number of values.
Status put_arguments_in_form(bool as_text, size_t& n_values, Json& function) {
  Json& arguments = function["arguments"];
  if (arguments.is_string()) {
    const std::string text = std::move(arguments.get_ref<std::string&>());
    const size_t n = count_values(text);
    if (n > n_values)
      return errorf(ErrorCode::kInvalidArgument,
                    "tool_calls: expected at most {} values in the arguments of a conversation",
                    kMostArguments);
    n_values -= n;
    arguments = bounded_json<Json>(text);
  }
  if (!arguments.is_structured()) arguments = Json::object();
  if (as_text) arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  return {};
}

// Replaces an id by nine letters and digits derived from it, unless it has that form.
void shorten_id(Json& object, const char* field) {
  const auto id = object.find(field);
  if (id == object.end() || !id->is_string()) return;
  const auto& text = id->get_ref<const std::string&>();
  if (is_short_call_id(text)) return;
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::string digits;
  for (; !is_short_call_id(digits); hash /= 36)
    digits += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  *id = digits;
}

Status put_calls_in_form(const MessageForms& forms, size_t& n_values, Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return {};
  if (calls->is_array() && calls->empty()) {
    message.erase("tool_calls");
    return {};
  }
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    if (!call.contains("type")) call["type"] = "function";
    if (forms.short_ids) shorten_id(call, "id");
    RETURN_IF_ERROR(put_arguments_in_form(forms.text_arguments, n_values, call["function"]));
  }
  return {};
}

// Sets both names in use: vLLM's and DeepSeek's.
void name_reasoning(Json& message) {
  if (message.contains("reasoning")) {
    if (!message.contains("reasoning_content")) message["reasoning_content"] = message["reasoning"];
  } else if (message.contains("reasoning_content")) {
    message["reasoning"] = message["reasoning_content"];
  }
}

// In work that is linear in the members, of which a request may have any number. Leaves room for two
// more.
void drop_nulls(Json& message) {
  Json kept = Json::object();
  reserve_members(kept, message.size() + 2);
  for (auto field = message.begin(); field != message.end(); ++field) {
    if (!field->is_null() || field.key() == "content")
      add_member(kept, field.key(), std::move(*field));
  }
  message = std::move(kept);
}

// Appends content to a message: texts separated by an empty line, or parts. false: one of them is
// invalid content, which is refused later with its position.
bool append_content(Json& message, Json& content) {
  Json& before = message["content"];
  const auto is_content = [](const Json& one) {
    return one.is_null() || one.is_string() || one.is_array();
  };
  if (!is_content(before) || !is_content(content)) return false;
  if (content.is_null()) return true;
  if (before.is_null()) {
    before = std::move(content);
  } else if (before.is_string() && content.is_string()) {
    before.get_ref<std::string&>().append("\n\n").append(content.get_ref<std::string&>());
  } else {
    for (Json* one : {&before, &content}) {
      if (!one->is_string()) continue;
      *one = Json::array({text_part(std::move(one->get_ref<std::string&>()))});
    }
    for (Json& part : content) before.push_back(std::move(part));
  }
  return true;
}

// Merges messages that the template would omit or refuse.
void merge_turns(const MessageForms& forms, Json& messages) {
  if (forms.system_runs && forms.system_anywhere && forms.developer_runs &&
      forms.developer_anywhere && forms.user_runs)
    return;
  Json merged = Json::array();
  bool beginning = true;
  for (Json& message : messages) {
    const std::string role = message["role"];
    const bool developer = role == "developer", leads = developer || role == "system";
    beginning = beginning && leads;
    const bool one_system = developer ? !forms.developer_runs : !forms.system_runs;
    const bool joins_system = beginning && one_system && !merged.empty();
    if (leads && !beginning && !(developer ? forms.developer_anywhere : forms.system_anywhere))
      message["role"] = "user";
    const bool joins_user = !forms.user_runs && !merged.empty() && message["role"] == "user" &&
                            merged.back()["role"] == "user";
    Json& target = joins_system ? merged.front() : joins_user ? merged.back() : message;
    if ((joins_system || joins_user) && append_content(target, message["content"])) continue;
    merged.push_back(std::move(message));
  }
  messages = std::move(merged);
}

}  // namespace

MessageForms find_message_forms(const RenderMessages& render) { return FormsFinder(render).find(); }

Result<Json> in_forms(const MessageForms& forms, Json messages) {
  RETURN_IF_ERROR(check_messages(messages));
  for (Json& message : messages) {
    if (message["role"] == "developer" && !forms.developer) message["role"] = "system";
  }
  merge_turns(forms, messages);
  size_t n_values = kMostArguments;
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    drop_nulls(message);
    name_reasoning(message);
    RETURN_IF_ERROR(put_calls_in_form(forms, n_values, message));
    if (forms.short_ids) shorten_id(message, "tool_call_id");
    Json& content = message["content"];
    const bool was_parts = content.is_array();
    ASSIGN_OR_RETURN(std::vector<Json> parts, parts_of(content, i));
    content = content_in_form(form_of(forms, message), was_parts, std::move(parts));
    if (forms.null_beside_calls && message.contains("tool_calls") &&
        (content == "" || content.empty())) {
      content = nullptr;
    }
  }
  return messages;
}

}  // namespace penstock
