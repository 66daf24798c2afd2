// penstock generate: generates one or n completions of a prompt and streams them.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/options/structured_flags.h"
#include "penstock/llm.h"

namespace penstock {
namespace {

struct GenerateCommand {
  explicit GenerateCommand(CLI::App& app) : sampling(app) {
    add_engine_flags(app, config);
    prompt_option = app.add_option("-p,--prompt", prompt, "text to continue");
    app.add_option("-f,--file", file, "read the prompt from this file; - is standard input")
        ->excludes(prompt_option);
    app.add_flag("--chat", chat,
                 "treat the prompt as a user's message: apply the model's chat template");
    app.add_option(
           "--image", images,
           "image file (JPEG, PNG, WebP, GIF or BMP) in front of the prompt, for models that "
           "see; may be repeated; the prompt is a user's message (--chat)")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_option(
           "--audio", sounds,
           "sound file (WAV, FLAC, Ogg or MP3) in front of the prompt, for models that hear")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_flag("--json", json,
                 "print one JSON object {text, tokens, prompt_tokens, completion_tokens, "
                 "finish_reason, timings}");
    app.add_flag("--no-echo", no_echo, "do not print the prompt before the text");
    app.add_flag("--no-bos", no_bos, "no begin-of-sequence token, also where the model wants one");
    app.add_flag("--no-parse-special", no_parse_special,
                 "special tokens in the prompt are plain text");
    structured.add_to(app);
    app.add_option(
        "--session", session,
        "file of the computed state: loaded at the start if it exists, saved at the end");
    app.add_flag("-q,--quiet", quiet, "no statistics on stderr");
    app.footer(
        "The built-in model writes with --temperature 1 and --min-p 0.1, unless one of the two is "
        "given, and at most 400 tokens;\nother models as their files say, and at most 256.\n" +
        app.get_footer());
  }

  int run();
  Result<std::string> read_prompt() const;
  Status load_session(Engine& engine) const;
  Status save_session(Engine& engine, const RequestOutput& result) const;
  Result<RequestOutput> generate(LLM& llm, const SamplingParams& params,
                                 const ChatMessage& message) const;

  EngineConfig config;
  SamplingFlags sampling;
  StructuredFlags structured;
  CLI::Option* prompt_option = nullptr;
  std::string prompt, file, session;
  std::vector<std::string> images, sounds;
  bool chat = false, json = false, no_echo = false, no_bos = false, no_parse_special = false,
       quiet = false;
};

Result<std::string> GenerateCommand::read_prompt() const {
  if (prompt_option->count() > 0) return prompt;
  return file.empty() ? Result<std::string>(kStoryPrompt) : read_text(file);
}

nlohmann::json timings_json(const RequestStats& stats) {
  const int decoded = std::max(stats.completion_tokens - 1, 0);
  const auto rate = [](double tokens, double seconds) {
    return seconds > 0 ? tokens / seconds : 0.0;
  };
  return {{"queued_seconds", stats.queued_seconds},
          {"prefill_seconds", stats.prefill_seconds},
          {"decode_seconds", stats.decode_seconds},
          {"cached_tokens", stats.cached_tokens},
          {"prompt_tokens_per_second",
           rate(stats.prompt_tokens - stats.cached_tokens, stats.prefill_seconds)},
          {"decode_tokens_per_second", rate(decoded, stats.decode_seconds)}};
}

nlohmann::json speculation_json(const RequestStats& stats) {
  const auto per_draft = [&](int n) { return static_cast<double>(n) / stats.drafts; };
  return {
      {"drafts", stats.drafts},
      {"draft_tokens", stats.draft_tokens},
      {"accepted_tokens", stats.accepted_tokens},
      {"acceptance", static_cast<double>(stats.accepted_tokens) / std::max(stats.draft_tokens, 1)},
      {"tokens_per_round", 1 + per_draft(stats.accepted_tokens)}};
}

nlohmann::json logprobs_json(const CompletionOutput& output) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : output.logprobs) {
    nlohmann::json alternatives = nlohmann::json::array();
    for (size_t i = 1; i < row.size(); ++i) {
      alternatives.push_back({{"token", row[i].token}, {"logprob", row[i].logprob}});
    }
    rows.push_back({{"token", row[0].token},
                    {"logprob", row[0].logprob},
                    {"rank", row[0].rank},
                    {"top", alternatives}});
  }
  return rows;
}

nlohmann::json output_json(const RequestOutput& result, const CompletionOutput& output) {
  nlohmann::json object = {{"text", output.text},
                           {"tokens", output.token_ids},
                           {"prompt_tokens", result.prompt_token_ids.size()},
                           {"completion_tokens", output.token_ids.size()},
                           {"finish_reason", finish_reason_name(output.finish_reason)},
                           {"timings", timings_json(output.stats)}};
  if (output.stats.drafts > 0) object["speculation"] = speculation_json(output.stats);
  if (!output.logprobs.empty()) object["logprobs"] = logprobs_json(output);
  return object;
}

void print_stats(const RequestOutput& result) {
  int completion_tokens = 0, decoded = 0;
  double decode_seconds = 0;
  for (const CompletionOutput& output : result.outputs) {
    completion_tokens += output.stats.completion_tokens;
    decoded += std::max(output.stats.completion_tokens - 1, 0);
    decode_seconds = std::max(decode_seconds, output.stats.decode_seconds);
  }
  const RequestStats& stats = result.outputs[0].stats;
  const double prefill = stats.prefill_seconds;
  std::string speculation;
  if (stats.drafts > 0) {
    speculation =
        fmt::format(", {} of {} guesses right", stats.accepted_tokens, stats.draft_tokens);
  }
  fmt::print(stderr, "{}\n",
             dim(fmt::format(
                 "prompt: {} tokens, {:.1f} tokens/s; decode: {} tokens, {:.1f} tokens/s{} ({})",
                 stats.prompt_tokens,
                 prefill > 0 ? (stats.prompt_tokens - stats.cached_tokens) / prefill : 0.0,
                 completion_tokens, decode_seconds > 0 ? decoded / decode_seconds : 0.0,
                 speculation, finish_reason_name(result.outputs[0].finish_reason))));
}

Result<RequestOutput> GenerateCommand::generate(LLM& llm, const SamplingParams& params,
                                                const ChatMessage& message) const {
  const std::string& text = message.content;
  const bool stream = !json && params.n == 1;
  GenerateOptions options;
  options.add_bos = !no_bos;
  options.parse_special = !no_parse_special;
  options.should_stop = interrupted;
  // Prints the prompt before the first piece of text, not earlier: the engine may still reject the
  // request.
  bool begun = false;
  const auto begin = [&] {
    if (!std::exchange(begun, true) && !chat && !no_echo)
      std::fwrite(text.data(), 1, text.size(), stdout);
  };
  if (stream) {
    options.on_text = [&](const TextDelta& delta) {
      begin();
      std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
      std::fflush(stdout);
      return !interrupted() && std::ferror(stdout) == 0;
    };
  }
  auto result = chat ? llm.chat(std::span(&message, 1), params, options)
                     : llm.generate(text, params, options);
  if (result && stream) begin();
  if (!result && begun) std::fputs("\n", stdout);
  return result;
}

Status GenerateCommand::load_session(Engine& engine) const {
  std::error_code ignored;
  if (session.empty() || !std::filesystem::exists(session, ignored)) return {};
  RETURN_IF_ERROR(engine.load_session(session));
  return {};
}

Status GenerateCommand::save_session(Engine& engine, const RequestOutput& result) const {
  if (session.empty()) return {};
  std::vector<TokenId> tokens = result.prompt_token_ids;
  const std::vector<TokenId>& output = result.outputs[0].token_ids;
  tokens.insert(tokens.end(), output.begin(), output.end());
  RETURN_IF_ERROR(engine.save_session(tokens, session));
  return {};
}

int GenerateCommand::run() {
  auto wanted = structured.read();
  if (!wanted) return fail(wanted.error());
  const bool built_in = config.model.empty();
  if (const Status found = find_models(config); !found) return fail(found.error());
  auto text = read_prompt();
  if (!text) return fail(text.error());
  auto pictures = read_images(images, sounds);
  if (!pictures) return fail(pictures.error());
  chat = chat || !images.empty() || !sounds.empty();
  auto llm = LLM::open(config);
  if (!llm) return fail(llm.error());

  SamplingParams defaults = (*llm)->default_sampling_params();
  if (!sampling.given("max_tokens")) defaults.max_tokens = built_in ? 400 : 256;
  if (built_in && !sampling.given("temperature") && !sampling.given("min_p")) defaults.min_p = 0.1f;
  SamplingParams params = sampling.over(defaults);
  params.structured_outputs = *std::move(wanted);
  install_interrupt_handler();
  if (const Status loaded = load_session((*llm)->engine()); !loaded) return fail(loaded.error());
  ChatMessage message{"user", *text};
  message.images = *std::move(pictures);
  auto result = generate(**llm, params, message);
  if (!result) return fail(result.error());
  if (json) {
    nlohmann::json object = output_json(*result, result->outputs[0]);
    for (size_t i = 1; i < result->outputs.size(); ++i) {
      object["more"].push_back(output_json(*result, result->outputs[i]));
    }
    // A token sequence can end inside a character: invalid UTF-8 is replaced instead of failing.
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (params.n == 1) {
    std::fputs("\n", stdout);
  } else {
    for (const CompletionOutput& output : result->outputs) {
      fmt::print("{} {}\n{}{}\n\n", bold("#"), output.index, no_echo || chat ? "" : *text,
                 output.text);
    }
  }
  std::fflush(stdout);
  if (!quiet && !json) print_stats(*result);
  if (const Status saved = save_session((*llm)->engine(), *result); !saved)
    return fail(saved.error());
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

Action add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
