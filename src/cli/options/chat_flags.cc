#include "cli/options/chat_flags.h"

#include <CLI/CLI.hpp>
#include <map>

#include "cli/options/models_config.h"
#include "frontend/chat/reply_parser.h"

namespace penstock {
namespace {

template <class Rows>
std::string parser_names(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

void add_chat_flags(CLI::App& app, ModelSettings& model) {
  ChatConfig& chat = model.chat;
  app.add_option("--chat-template", chat.chat_template,
                 "a file, or a template's text, instead of the model's");
  app.add_flag("--trust-request-chat-template", chat.trust_request_template,
               "requests may bring a chat template of their own");
  app.add_option("--tool-call-parser", chat.tool_call_parser,
                 "reads tool calls in replies: auto (by the chat template), none or " +
                     parser_names(tool_parsers()))
      ->capture_default_str();
  app.add_option(
         "--reasoning-parser", chat.reasoning_parser,
         "splits reasoning from answers: auto, none or " + parser_names(reasoning_formats()))
      ->capture_default_str();
  app.add_flag(
      "--ignore-tools-without-place", chat.ignore_tools_without_place,
      "ignore tools if the chat template does not support them, instead of refusing the request");
  app.add_option("--system-prompt", chat.system_prompt,
                 "system prompt of conversations that have none")
      ->type_name("TEXT");
  std::map<std::string, Runner> by_name;
  for (const RunnerRow& row : runners()) by_name.emplace(row.name, row.runner);
  app.add_option("--runner", model.runner,
                 "task of the model: generate (text), pooling (vectors, classes, scores) or auto "
                 "(by the checkpoint)")
      ->transform(CLI::CheckedTransformer(by_name).description(""))
      ->type_name("NAME")
      ->default_str("auto");
}

}  // namespace penstock
