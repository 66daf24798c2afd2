#include "frontend/chat/recipient_formats.h"

#include "frontend/chat/marked_parser.h"

namespace penstock {

// Functionary 3: >>>all and a line end stand before text for the user.
CallFormat functionary_3_calls() {
  return {.open = {">>>"},
          .close = {"<|eot_id|>", "<|eom_id|>"},
          .read = kNamedCalls,
          .written = {{"", ">>>", "\n", "", "", ""}},
          .in_prompt = true,
          .text_begins = {">>>all\n"}};
}

// Functionary 2 and 2.2
CallFormat functionary_2_calls() {
  const std::string mark = "<|recipient|>", turn = "<|from|>assistant";
  return {.open = {mark},
          .close = {turn, "<|stop|>"},
          .read = kWrittenCalls,
          .written = {{"", mark, "\n<|content|>", "", "\n" + turn + "\n", ""}},
          .in_prompt = true,
          .text_begins = {mark + "all\n<|content|>"},
          .text_ends = {turn, "<|stop|>"}};
}

// Functionary 2.4 and 2.5 on Llama 3
CallFormat functionary_2_llama3_calls() {
  const std::string mark = "<|reserved_special_token_249|>";
  return {{mark}, {"<|eot_id|>"}, kNamedCalls, {{"", mark, "\n", "", "", ""}}};
}

// Messages to the user or to a tool, whose name a call repeats.
CallFormat muse_calls() {
  const std::string turn = "<|start|>assistant", message = "<|message|>", end = "<|eom|>",
                    block = "<atem:function_calls>\n", invoke = "<atem:invoke name=\"",
                    invoke_end = "</atem:invoke>", block_end = "\n</atem:function_calls>";
  const ParameterMarks marks{"<atem:parameter name=\"", "\">", "</atem:parameter>\n"};
  return {.open = {turn, "<atem:function_calls>", invoke},
          .close = {"</atem:function_calls>", end, "<|eot|>"},
          .read = kWrittenCalls,
          .written = {{"", turn + " to=", message + block + invoke + "{name}\">\n", invoke_end,
                       block_end + end, block_end, ArgumentForm::kParameters, marks},
                      {block, invoke, "\">\n", invoke_end, "\n", block_end,
                       ArgumentForm::kParameters, marks}},
          .in_prompt = true,
          .text_begins = {turn + " to=user" + message, turn + message},
          .text_ends = {end, "<|eot|>"}};
}

}  // namespace penstock
