// The forms in which a chat template takes messages.
//
// Clients send the same message in several forms: content that is null, missing, text or a list of
// parts; the arguments of a call as an object or as its JSON text. A template supports one or two
// of them; with the others it fails or writes their JSON into the prompt. The supported ones are
// found by rendering small conversations.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace penstock {

struct MessageForms {
  enum class Content : uint8_t { kText, kParts, kEither };

  Content system = Content::kText, user = Content::kText, assistant = Content::kText,
          tool = Content::kText;
  // content of an assistant message that has calls
  Content calling = Content::kText;
  // arguments of calls as JSON text, not as an object
  bool text_arguments = false;
  // a message of calls alone has content null, not empty content
  bool null_beside_calls = false;
  // the template knows the role "developer"; otherwise its messages become "system"
  bool developer = true;
  // ids of calls must be nine letters and digits (Mistral's templates)
  bool short_ids = false;
  bool shows_calls = true;  // false: calls of earlier turns do not appear in the prompt
  // tools are shown only as JSON text in the field `tools` of a system message (Phi-4-mini)
  bool system_tools = false;
  // Whether a second message of such a role, behind the first one and behind other messages, is in
  // the prompt, and whether the template takes two messages of the user in a row.
  bool system_runs = true, system_anywhere = true;
  bool developer_runs = true, developer_anywhere = true;
  bool user_runs = true;
};

// Renders messages with tools (an array or null) and no other variable.
using RenderMessages = std::function<Result<std::string>(const nlohmann::ordered_json& messages,
                                                         const nlohmann::ordered_json& tools)>;

// Returns the forms that the template supports. A form that cannot be determined keeps its default,
// which most templates expect: text, arguments as an object, empty content beside calls.
MessageForms find_message_forms(const RenderMessages& render);

// Messages that the template would leave out or refuse are merged: system and developer messages at
// the beginning into the first one; one behind other messages becomes the user's; the user's in a
// row become one.
//
// Converts OpenAI's messages to the given forms. Content that is null or missing is empty; parts
// are joined by line ends where the template wants text (and always in results of tools, as vLLM
// does it, if it takes text there); arguments that are no JSON object or array become {}; an empty
// list of calls and fields that are null are left out; reasoning is called both reasoning and
// reasoning_content; images, videos and sounds ({"type": "image"}, {"type": "video"}, {"type": "audio"}) stay among parts; ids of calls that the template refuses become others, the same for the call
// and its result. Errors: kInvalidArgument, when an element is no message or a part is not text.
Result<nlohmann::ordered_json> in_forms(const MessageForms& forms, nlohmann::ordered_json messages);

}  // namespace penstock
