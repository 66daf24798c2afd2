// penstock render: applies a chat template to a conversation and prints the prompt.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "frontend/chat/chat_template.h"

namespace penstock {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct RenderCommand {
  explicit RenderCommand(CLI::App& app) {
    app.add_option("--template", template_path, "the template, a Jinja file")->required();
    app.add_option(
           "--context", context_path,
           "JSON object of the template's variables: messages, tools, add_generation_prompt, …")
        ->required();
    app.add_option("--now", now, "the clock of strftime_now, as 2026-01-02T03:04:05; default: now");
  }
  Result<std::string> render() const;
  int run() const;

  std::string template_path, context_path, now;
};

Result<std::tm> parse_time(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') {
    return errorf(ErrorCode::kInvalidArgument,
                  "--now: expected a time like 2026-01-02T03:04:05, got {}", text);
  }
  const std::tm given = time;
  timegm(&time);  // computes tm_wday and tm_yday, normalizes the date
  if (time.tm_mday != given.tm_mday || time.tm_mon != given.tm_mon) {
    return errorf(ErrorCode::kInvalidArgument, "--now: there is no day {}", text);
  }
  return time;
}

Result<std::string> RenderCommand::render() const {
  std::optional<std::tm> clock;
  if (!now.empty()) {
    ASSIGN_OR_RETURN(clock, parse_time(now));
  }
  ASSIGN_OR_RETURN(std::string source, read_text(template_path));
  ASSIGN_OR_RETURN(const std::string text, read_text(context_path));
  ASSIGN_OR_RETURN(OrderedJson context,
                   read_bounded_json<OrderedJson>(text, ErrorCode::kInvalidArgument,
                                                  context_path + ": expected a JSON object"));
  ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::parse(std::move(source)));
  RenderOptions options = render_options_for(context);
  options.now = clock;
  return chat_template.render(std::move(context), options);
}

int RenderCommand::run() const {
  const auto rendered = render();
  if (!rendered) return fail(rendered.error());
  const size_t written = std::fwrite(rendered->data(), 1, rendered->size(), stdout);
  if (written != rendered->size() || std::fflush(stdout) != 0) {
    return fail({ErrorCode::kIo, "cannot write the rendering to the standard output"});
  }
  return kExitOk;
}

}  // namespace

Action add_render(CLI::App& app) {
  auto command = std::make_shared<RenderCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
