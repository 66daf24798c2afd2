// penstock run-batch: computes the requests of a batch file without a server.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/chat_flags.h"
#include "cli/options/flags.h"
#include "cli/options/models_config.h"
#include "server/batches/batch_file.h"
#include "server/server.h"

namespace penstock {
namespace {

struct RunBatchCommand {
  explicit RunBatchCommand(CLI::App& app) {
    app.add_option("input,-i,--input-file", input,
                   "a request on every line: {custom_id, method: POST, url, body}, as OpenAI's "
                   "batches have it")
        ->required();
    app.add_option("output,-o,--output-file", output,
                   "file for the results; lines that already have a result are not computed again")
        ->required();
    add_engine_flags(app, model.engine);
    app.add_option("--served-model-name", model.names,
                   "names that requests may give (default: the model's name as given, of a path "
                   "the file's name)")
        ->delimiter(',');
    app.add_flag("--any-model-name", config.any_model_name, "requests may name any model");
    add_chat_flags(app, model);
    app.add_option("--max-logprobs", config.max_logprobs,
                   "largest number of alternatives per token in a request; -1 is no limit")
        ->capture_default_str();
    app.add_flag("-q,--quiet", quiet, "no progress and no summary on stderr");
  }
  int run();

  ServerConfig config;
  ModelSettings model;
  std::string input, output;
  bool quiet = false;
};

std::string speed_text(const BatchFile::Progress& progress, std::chrono::duration<double> seconds) {
  return fmt::format("{:.0f} tokens/s",
                     static_cast<double>(progress.n_tokens) / std::max(seconds.count(), 1e-9));
}

int RunBatchCommand::run() {
  auto batch = BatchFile::open(input, output);
  if (!batch) return fail(batch.error());
  const std::string path = std::exchange(model.engine.model, "");
  auto models = models_of_flags({path}, model);
  if (!models) return fail(models.error());
  config.models = std::move(*models);
  config.listens = false;
  config.log.requests = false;
  install_interrupt_handler();
  const BatchFile::Progress before = (*batch)->progress();
  std::chrono::duration<double> took{0};
  if (before.completed + before.failed < before.total) {
    auto server = Server::open(config);
    if (!server) return fail(server.error());
    if (const Status loaded = (*server)->load(); !loaded) return fail(loaded.error());
    ProgressBar bar("lines");
    const auto start = std::chrono::steady_clock::now();
    const Status done = (*batch)->run((*server)->services(), [&](const BatchFile::Progress& now) {
      took = std::chrono::steady_clock::now() - start;
      if (!quiet) bar.update(now.completed + now.failed, now.total, speed_text(now, took));
      return !interrupted();
    });
    took = std::chrono::steady_clock::now() - start;
    if (!done) return fail(done.error());
  }
  const BatchFile::Progress after = (*batch)->progress();
  if (!quiet) {
    fmt::print(stderr, "{} lines: {} completed, {} failed{}{}\n", after.total, after.completed,
               after.failed,
               after.n_tokens == 0
                   ? ""
                   : fmt::format("; {} tokens, {}", after.n_tokens, speed_text(after, took)),
               interrupted() ? "; the same command goes on with the others" : "");
  }
  return interrupted() ? kExitInterrupted : kExitOk;
}

}  // namespace

Action add_run_batch(CLI::App& app) {
  auto command = std::make_shared<RunBatchCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
