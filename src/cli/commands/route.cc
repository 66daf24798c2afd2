// penstock route train: trains the score by which the server routes to a small or a large model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "penstock/embed.h"
#include "server/routes/table/route_score.h"

namespace penstock {
namespace {

struct RouteTrainCommand {
  explicit RouteTrainCommand(CLI::App& app) {
    app.require_subcommand(1);
    CLI::App& train = *app.add_subcommand("train", "fit a score of questions to examples");
    train
        .add_option("-d,--data", data,
                    "JSON lines: prompt or messages, and label (\"small\" or \"large\") or the "
                    "scores small and large of both answers")
        ->required()
        ->type_name("FILE");
    train
        .add_option("-m,--model", config.model,
                    "embedding model: the one that the server has for it")
        ->required();
    train.add_option("-o,--output", output, "file for the score: \"file\" in a route's \"score\"")
        ->required()
        ->type_name("FILE");
    train
        .add_option("--margin", margin,
                    "least score difference for which the large model's answer counts as needed")
        ->capture_default_str();
    train.add_option("--ridge", ridge, "weight of the L2 penalty; larger for few examples")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    train
        .add_option("--held-out", held_out,
                    "share of the examples held out from the fit for the report")
        ->check(CLI::Range(0.0, 0.9))
        ->capture_default_str();
    train
        .add_option("--to-large", to_large,
                    "share of questions that the threshold sends to the large model (default: the "
                    "share of the examples that need it)")
        ->check(CLI::Range(0.0, 1.0));
    train.add_option("-t,--threads", config.threads,
                     "compute threads; 0 is as many as the process may use");
  }
  int run();
  Result<std::vector<std::vector<float>>> vectors(const std::vector<RouteExample>& examples);
  Result<RouteScore> fit(const std::vector<RouteExample>& examples);

  EngineConfig config;
  std::string data, output;
  double margin = 0, ridge = 0.1, held_out = 0.2, to_large = -1;
};

Result<std::vector<std::vector<float>>> RouteTrainCommand::vectors(
    const std::vector<RouteExample>& examples) {
  RETURN_IF_ERROR(find_models(config));
  ASSIGN_OR_RETURN(const auto model, EmbeddingModel::open(config));
  EmbedOptions options;  // the options that the server uses
  options.normalize = true;
  options.prompt_name = std::string();
  options.truncate = true;
  std::vector<Prompt> prompts;
  for (const RouteExample& example : examples) prompts.emplace_back(example.question);
  return model->embed(prompts, options);
}

Result<RouteScore> RouteTrainCommand::fit(const std::vector<RouteExample>& examples) {
  ASSIGN_OR_RETURN(const auto all, vectors(examples));
  // Every n-th example is held out, not a random one, so that the same file gives the same result.
  const size_t every =
      held_out > 0 ? std::max<size_t>(2, static_cast<size_t>(1 / held_out + 0.5)) : 0;
  std::vector<std::vector<float>> kept;
  std::vector<bool> labels;
  std::vector<size_t> others;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (every > 0 && i % every == every - 1) {
      others.push_back(i);
      continue;
    }
    kept.push_back(all[i]);
    labels.push_back(examples[i].needs_large);
  }
  ASSIGN_OR_RETURN(RouteScore score, RouteScore::train(kept, labels, ridge));
  if (others.empty()) {
    for (size_t i = 0; i < examples.size(); ++i) others.push_back(i);
  }
  std::vector<std::pair<double, bool>> scored;
  for (const size_t i : others) scored.emplace_back(score(all[i]), examples[i].needs_large);
  const auto n_needing = std::ranges::count(scored, true, &std::pair<double, bool>::second);
  const double wanted = to_large >= 0
                            ? to_large
                            : static_cast<double>(n_needing) / static_cast<double>(scored.size());
  std::printf("%zu examples, %zu of them %s; %td need the large model; AUC %.3f\n\n",
              examples.size(), scored.size(),
              every > 0 ? "held out, which this is about" : "looked at again", n_needing,
              route_auc(scored));
  std::printf("%10s  %10s  %22s\n", "threshold", "to large", "of those that need it");
  for (const RouteOutcome& one : route_outcomes(scored, 10))
    std::printf("%10.3f  %9.1f%%  %21.1f%%\n", one.threshold, 100 * one.to_large, 100 * one.found);
  std::ranges::sort(scored, std::ranges::greater());
  const auto n_large = static_cast<size_t>(wanted * static_cast<double>(scored.size()) + 0.5);
  score.threshold = n_large == 0 ? 1.01 : scored[std::min(n_large, scored.size()) - 1].first;
  return score;
}

int RouteTrainCommand::run() {
  const std::string named = config.model;
  if (const Status free = RouteScore::check_place(output); !free) return fail(free.error());
  const auto examples = read_route_examples(data, margin);
  if (!examples) return fail(examples.error());
  auto score = fit(*examples);
  if (!score) return fail(score.error());
  score->embedder = named;
  if (const Status saved = score->save(output); !saved) return fail(saved.error());
  std::printf("\nthreshold %.3f in %s\n", score->threshold, output.c_str());
  return kExitOk;
}

}  // namespace

Action add_route(CLI::App& app) {
  auto command = std::make_shared<RouteTrainCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
