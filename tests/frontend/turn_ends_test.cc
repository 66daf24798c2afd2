// Which tokens end a reply by the chat template.
#include <gmock/gmock.h>

#include "turn_ends_under_test.h"

namespace penstock::turn_ends_test {
namespace {

using testing::ElementsAre;
using Names = std::set<std::string>;

std::set<std::string> ends_of(const std::string& chat_template, const Names& special,
                              const Names& other = {}) {
  const auto tokenizer = tokenizer_with(chat_template, special, other);
  return names_of(*tokenizer, turn_ends(*tokenizer));
}

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% "
    "endfor %}";

TEST(TurnEnds, AreWhatFollowsAnAnswer) {
  EXPECT_THAT(ends_of(kChatMl, {"<|im_start|>", "<|im_end|>"}), ElementsAre("<|im_end|>"));
  // What only the whole conversation ends with is none of the turn's.
  EXPECT_THAT(ends_of("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>\n' "
                      "}}{% endfor %}<|all|>",
                      {"<|user|>", "<|assistant|>", "<|end|>", "<|all|>"}),
              ElementsAre("<|end|>"));
}

TEST(TurnEnds, TextIsNone) {
  EXPECT_THAT(ends_of(kChatMl, {"<|im_start|>"}, {"<|im_end|>"}), ElementsAre());
  EXPECT_THAT(
      ends_of("{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}", {"</s>"}),
      ElementsAre());
  EXPECT_THAT(ends_of("{{ raise_exception('no') }}", {"</s>"}), ElementsAre());
  EXPECT_THAT(ends_of("", {"</s>"}), ElementsAre());
}

constexpr const char* kMessages = R"(
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- if m.reasoning_content %}{{- '<|begin|>assistant<|think|>' + m.reasoning_content + '<|end|>' }}{% endif %}
        {%- if m.tool_calls %}{{- '<|begin|>assistant' }}
            {%- for call in m.tool_calls %}{{- '<|call|>' + call.function.arguments | tojson + '<|endcall|>' }}{% endfor %}
            {{- '<|calls|>' }}
        {%- else %}{{- '<|begin|>assistant<|content|>' + m.content + '<|end|>' }}{% endif %}
    {%- else %}{{- '<|begin|>' + m.role + '<|content|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %})";

TEST(TurnEnds, AMarkInsideTheTurnIsNone) {
  // <|end|> stands behind thoughts too, <|endcall|> between two calls.
  EXPECT_THAT(ends_of(kMessages, {"<|begin|>", "<|end|>", "<|call|>", "<|endcall|>", "<|calls|>"}),
              ElementsAre("<|calls|>"));
}

TEST(TurnEnds, FilesNameEndsAndNamesAloneDoNot) {
  const Names special = {"<|end|>", "<|eot_id|>", "<|im_end|>", "<eos>"};
  TokenizerFiles files;
  files.tokenizer_config_json = R"({"eos_token": "<eos>"})";
  auto tokenizer = tokenizer_with("", special, {"</s>"}, files);
  const auto names = [&] {
    const auto ids = tokenizer->end_of_generation_ids();
    return names_of(*tokenizer, {ids.begin(), ids.end()});
  };
  EXPECT_THAT(names(), ElementsAre("<eos>"));
  EXPECT_FALSE(tokenizer->is_end_of_generation(*tokenizer->find("</s>")));
  files.generation_config_json =
      fmt::format(R"({{"eos_token_id": [{}]}})", *tokenizer->find("<|eot_id|>"));
  tokenizer = tokenizer_with("", special, {"</s>"}, files);
  EXPECT_THAT(names(), ElementsAre("<eos>", "<|eot_id|>"));
  files.config_json = fmt::format(R"({{"eos_token_id": {}}})", *tokenizer->find("<|im_end|>"));
  tokenizer = tokenizer_with("", special, {"</s>"}, files);
  EXPECT_THAT(names(), ElementsAre("<eos>", "<|eot_id|>", "<|im_end|>"));
  const TokenId more[] = {*tokenizer->find("<|end|>"), 1 << 20, -1, *tokenizer->find("<eos>")};
  tokenizer->add_ends(more);
  EXPECT_THAT(names(), ElementsAre("<eos>", "<|end|>", "<|eot_id|>", "<|im_end|>"));
}

}  // namespace
}  // namespace penstock::turn_ends_test
