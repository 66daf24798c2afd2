// penstock score: prints the log-likelihood of every token of a text.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/quality/likelihood.h"

namespace penstock {
namespace {

struct ScoreCommand {
  explicit ScoreCommand(CLI::App& app) {
    add_engine_flags(app, config);
    auto* input = app.add_option_group("input")->require_option(1);
    input->add_option("-p,--prompt", text, "text to score");
    input->add_option("-f,--file", file, "file to score; - is standard input");
    input->add_option("--ids", ids_file,
                      "file of token ids separated by white space, taken as they are (no BOS)");
    app.add_flag("--json", json,
                 "print one JSON object {tokens, logprobs (first null), perplexity}");
    app.add_flag("--no-bos", no_bos, "no begin-of-sequence token before the text");
  }
  int run();
  Result<std::vector<TokenId>> tokens(LLM& llm) const;

  EngineConfig config;
  std::string text, file, ids_file;
  bool json = false, no_bos = false;
};

Result<std::vector<TokenId>> parse_ids(const std::string& content, const std::string& name) {
  std::vector<TokenId> ids;
  const char* at = content.data();
  const char* const end = at + content.size();
  while (true) {
    while (at != end && is_ascii_space(*at)) ++at;
    if (at == end) return ids;
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop != end && !is_ascii_space(*stop))) {
      return errorf(ErrorCode::kInvalidArgument, "{}: byte {}: expected a token id, got \"{}\"",
                    name, at - content.data(), std::string(at, std::min<size_t>(12, end - at)));
    }
    ids.push_back(id);
    at = stop;
  }
}

Result<std::vector<TokenId>> ScoreCommand::tokens(LLM& llm) const {
  if (!ids_file.empty()) {
    ASSIGN_OR_RETURN(const std::string content, read_text(ids_file));
    return parse_ids(content, ids_file);
  }
  std::string content = text;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(content, read_text(file));
  }
  return llm.encode(content, !no_bos, false);
}

int ScoreCommand::run() {
  auto model = find_model(config.model);
  if (!model) return fail(model.error());
  config.model = model->string();
  auto llm = LLM::open(config);
  if (!llm) return fail(llm.error());
  auto ids = tokens(**llm);
  if (!ids) return fail(ids.error());
  install_interrupt_handler();
  auto scores = log_likelihoods(**llm, std::span(&*ids, 1));
  if (!scores) return fail(scores.error());
  const std::vector<float>& logprobs = scores->front();
  double sum = 0;
  for (const float value : logprobs) sum += value;
  const double perplexity =
      logprobs.empty() ? 1.0 : std::exp(-sum / static_cast<double>(logprobs.size()));
  if (json) {
    nlohmann::json object = {{"tokens", *ids},
                             {"logprobs", nlohmann::json::array({nullptr})},
                             {"perplexity", perplexity}};
    for (const float value : logprobs) object["logprobs"].push_back(value);
    fmt::print("{}\n", object.dump());
    return kExitOk;
  }
  for (size_t i = 0; i < ids->size(); ++i) {
    std::string piece = (*llm)->decode(std::span(&(*ids)[i], 1));
    piece = nlohmann::json(piece).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    fmt::print("{:7} {:>9} {}\n", (*ids)[i], i == 0 ? "-" : fmt::format("{:.4f}", logprobs[i - 1]),
               piece);
  }
  fmt::print("sum {:.4f}, perplexity {:.4f} over {} tokens\n", sum, perplexity, logprobs.size());
  return kExitOk;
}

}  // namespace

Action add_score(CLI::App& app) {
  auto command = std::make_shared<ScoreCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
