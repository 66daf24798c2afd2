// penstock imatrix: measures the importance of every linear layer's inputs on a text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "cli/quality/calibration_text.h"
#include "quantize/methods/layer_method.h"
#include "quantize/quantize.h"
#include "quantize/write/output.h"

namespace penstock {
namespace {

struct ImatrixCommand {
  explicit ImatrixCommand(CLI::App& app) {
    app.add_option("model", model, "GGUF file, Hugging Face directory or name")->required();
    app.add_option("output", output, "file to write (GGUF, as llama.cpp's tools read it)")
        ->required();
    calibration.add_flags(app);
    app.add_option("-t,--threads", threads, "threads; 0 is as many as the process may use");
    app.add_flag("--force", force, "replace the output");
  }
  int run();
  Status check_place(const std::filesystem::path& found) const;

  CalibrationText calibration;
  std::string model, output;
  int threads = 0;
  bool force = false;
};

Status ImatrixCommand::check_place(const std::filesystem::path& found) const {
  ASSIGN_OR_RETURN(const auto source, open_weights(found));
  const std::filesystem::path also_read[] = {calibration.file()};
  return check_output({.path = output, .replace = force}, source.get(), also_read);
}

int ImatrixCommand::run() {
  if (!calibration.given())
    return fail({ErrorCode::kInvalidArgument, "--calibration: expected a text"});
  auto found = find_model(model);
  if (!found) return fail(found.error());
  if (const Status free = check_place(*found); !free) return fail(free.error());
  QuantizeJob job;
  job.in = *found;
  job.threads = threads;
  auto samples = calibration.samples(job.in);
  if (!samples) return fail(samples.error());
  job.samples = std::move(*samples);
  install_interrupt_handler();
  ProgressBar bar("imatrix");
  job.progress = [&](int64_t done, int64_t total, const std::string& note) {
    bar.update(done, total, note);
  };
  job.should_stop = interrupted;
  auto matrix = measure_importance(job);
  bar.update(0, 0);
  if (!matrix) return fail(matrix.error());
  matrix->dataset = std::filesystem::path(calibration.file()).filename().string();
  if (const Status written = write_imatrix(*matrix, output); !written) return fail(written.error());
  fmt::print("{}: {} matrices, {} sequences\n", output, matrix->rows().size(), job.samples.size());
  return kExitOk;
}

}  // namespace

Action add_imatrix(CLI::App& app) {
  auto command = std::make_shared<ImatrixCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
