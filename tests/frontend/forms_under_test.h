// A chat template and the forms that were found for it, as ChatPrompter has them, at a fixed time.
#pragma once
#include <nlohmann/json.hpp>

#include "frontend/chat/chat_template.h"
#include "frontend/chat/message_forms.h"

namespace penstock {

class FormsUnderTest {
 public:
  explicit FormsUnderTest(const std::string& source) : chat_(ChatTemplate::parse(source).value()) {
    forms_ = find_message_forms(
        [&](const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools) {
          return render_as_is(messages, tools, false);
        });
  }

  const MessageForms& forms() const { return forms_; }
  // What the template makes of messages as clients send them.
  Result<std::string> render(const nlohmann::ordered_json& messages,
                             const nlohmann::ordered_json& tools) const {
    auto normalized = in_forms(forms_, messages);
    if (!normalized) return tl::unexpected(normalized.error());
    return render_as_is(*normalized, tools, true);
  }

 private:
  Result<std::string> render_as_is(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& tools,
                                   bool add_generation_prompt) const {
    RenderOptions options;
    options.now = std::tm{};
    options.now->tm_year = 126;
    options.now->tm_mday = 2;
    options.now->tm_hour = 3;
    options.now->tm_min = 4;
    options.now->tm_sec = 5;
    options.now->tm_wday = 5;
    options.now->tm_yday = 1;
    return chat_.render({{"messages", messages},
                         {"tools", tools},
                         {"documents", nullptr},
                         {"add_generation_prompt", add_generation_prompt},
                         {"bos_token", "<s>"},
                         {"eos_token", "</s>"}},
                        options);
  }

  ChatTemplate chat_;
  MessageForms forms_;
};

}  // namespace penstock
