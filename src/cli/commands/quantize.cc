// penstock quantize: writes a quantized copy of a checkpoint.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "cli/quality/calibration_text.h"
#include "quantize/quantize.h"
#include "text/load/export.h"

namespace penstock {
namespace {

std::string type_help() {
  std::string text =
      "GGUF: q8_0, q6_k, q5_k_m, q4_k_m, q4_k_s, q3_k_m, q2_k_s, q4_0, iq4_xs, iq3_m, iq2_xxs, "
      "tq2_0, … f16, bf16, f32; Hugging Face:";
  for (const TypeRow& row : quantize_types()) text += fmt::format(" {} ({}),", row.name, row.help);
  text.pop_back();
  return text + ", f16, bf16, f32";
}

struct QuantizeCommand {
  explicit QuantizeCommand(CLI::App& app) {
    app.add_option("input", input, "GGUF file, Hugging Face directory or name")->required();
    app.add_option("output", output, "NAME.gguf, or a directory for a Hugging Face checkpoint")
        ->required();
    app.add_option("--type", job.recipe.type, type_help())->required();
    app.add_option("--method", job.recipe.method,
                   "rtn (round to nearest), gptq, awq, smoothquant; all but rtn need --calibration")
        ->capture_default_str();
    app.add_option("--layout", job.recipe.layout,
                   "how a Hugging Face checkpoint is written: gptq, awq, compressed-tensors, "
                   "bitsandbytes, bitnet (default: by type and method)");
    app.add_option("-g,--group-size", job.recipe.group_size,
                   "inputs that share a scale; 0 is one scale per output")
        ->check(CLI::Range(0, 1 << 20));
    app.add_flag("--asymmetric", job.recipe.asymmetric, "zero points for integer codes");
    app.add_flag("--search,!--no-search", job.recipe.search,
                 "search each group's range for the least squared error (default: with awq)");
    app.add_option("--act-order", job.recipe.act_order,
                   "gptq: none, static (most active inputs first, groups as they lie), group "
                   "(groups of equally active inputs; layout gptq)");
    app.add_option("--damping", job.recipe.damping,
                   "gptq: added to the Hessian's diagonal, as a share of its mean")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--smoothing", job.recipe.smoothing,
                   "smoothquant: alpha from 0 to 1 (default: searched)")
        ->check(CLI::Range(0.0, 1.0));
    app.add_flag("--clip,!--no-clip", job.recipe.clip, "awq: search the clipping of every group");
    app.add_option("--imatrix", imatrix, "weigh errors by this importance matrix (GGUF)");
    calibration.add_flags(app);
    app.add_option("-t,--threads", job.threads, "threads; 0 is as many as the process may use");
    app.add_flag("--force", job.force, "replace the output");
    app.add_flag("--json", json,
                 "print one JSON object {bytes_in, bytes_out, parts, resumed, seconds}");
  }
  int run();

  QuantizeJob job;
  CalibrationText calibration;
  std::string input, output, imatrix;
  bool json = false;
};

int QuantizeCommand::run() {
  auto found = find_model(input);
  if (!found) return fail(found.error());
  job.in = *found;
  job.out = output;
  job.imatrix = imatrix;
  job.calibration = calibration.file();
  job.gguf_tokenizer = tokenizer_to_gguf;
  job.tokenizer_files = tokenizer_to_files;
  if (calibration.given()) {
    auto samples = calibration.samples(job.in);
    if (!samples) return fail(samples.error());
    job.samples = std::move(*samples);
  }
  install_interrupt_handler();
  // exceeding the file size limit becomes an error of the write instead of ending the process
  std::signal(SIGXFSZ, SIG_IGN);
  ProgressBar bar("quantize");
  job.progress = [&](int64_t done, int64_t total, const std::string& note) {
    bar.update(done, total, note);
  };
  job.should_stop = interrupted;
  const auto report = quantize(job);
  bar.update(0, 0);
  if (!report) return fail(report.error());
  if (json) {
    const nlohmann::json object = {{"bytes_in", report->bytes_in},
                                   {"bytes_out", report->bytes_out},
                                   {"parts", report->n_parts},
                                   {"resumed", report->n_resumed},
                                   {"seconds", report->seconds}};
    fmt::print("{}\n", object.dump());
    return kExitOk;
  }
  fmt::print("{}: {} from {} in {:.1f} s{}\n", output,
             format_bytes(static_cast<double>(report->bytes_out)),
             format_bytes(static_cast<double>(report->bytes_in)), report->seconds,
             report->n_resumed > 0
                 ? fmt::format(" ({} of {} parts were there)", report->n_resumed, report->n_parts)
                 : "");
  return kExitOk;
}

}  // namespace

Action add_quantize(CLI::App& app) {
  auto command = std::make_shared<QuantizeCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
