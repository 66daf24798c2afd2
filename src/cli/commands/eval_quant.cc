// penstock eval-quant: compares quantized checkpoints with their original and prints a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/svg.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "cli/quality/eval_plot.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"
#include "penstock/llm.h"
#include "quantize/evaluate.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Line {
  std::string name;
  double bytes = 0, prefill = 0, decode = 0;
  Agreement agreement;
  std::vector<LayerError> layers;
};

struct EvalQuantCommand {
  explicit EvalQuantCommand(CLI::App& app) {
    app.add_option("original", original, "the checkpoint the others were made of")->required();
    app.add_option("variants", variants, "quantized checkpoints, in the order of the table")
        ->required();
    app.add_option("-f,--file", file, "held-out text; - is standard input")->required();
    app.add_option("--window", window,
                   "tokens per window, with the BOS (default: 512, or the model's limit)")
        ->check(CLI::Range(2, 1 << 20));
    app.add_option("--max-windows", max_windows, "stop after this many windows")
        ->check(CLI::PositiveNumber);
    app.add_option("--separator", separator,
                   "split the text here: every document is a window of its own");
    app.add_flag("--speed,!--no-speed", speed, "measure prefill and decode speed");
    app.add_option("--worst", worst,
                   "matrices with the largest output error to list for each variant; 0 is none")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_option("--plot", plot, "draw size and speed against quality into this SVG file");
    app.add_option("-t,--threads", threads, "threads; 0 is as many as the process may use");
    app.add_flag("--json", json, "print one JSON object {original, variants}");
  }
  int run();
  void print(const std::vector<Line>& lines, size_t n_windows) const;
  Result<std::vector<std::vector<TokenId>>> windows() const;

  std::string original, file, plot, separator;
  std::vector<std::string> variants;
  int window = 0, max_windows = 0, worst = 3, threads = 0;
  bool speed = true, json = false;
};

Result<std::vector<std::vector<TokenId>>> EvalQuantCommand::windows() const {
  ASSIGN_OR_RETURN(const std::string text, read_text(file));
  ASSIGN_OR_RETURN(const fs::path path, find_model(original));
  ASSIGN_OR_RETURN(const auto source, open_weights(path));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(*source));
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(*source));
  const auto size = static_cast<size_t>(std::min(window > 0 ? window : 512, config.max_seq_len));
  const bool bos = tokenizer->add_bos() && tokenizer->bos() != kNoToken;
  const size_t payload = size - (bos ? 1 : 0);
  std::vector<std::vector<TokenId>> result;
  const auto add_document = [&](std::string_view document, bool all) {
    const std::vector<TokenId> ids = tokenizer->encode(document, {.add_special = false});
    for (size_t at = 0; at < ids.size() && payload > 0; at += payload) {
      std::vector<TokenId> sequence;
      if (bos) sequence.push_back(tokenizer->bos());
      const size_t end = std::min(at + payload, ids.size());
      for (size_t i = at; i < end; ++i) sequence.push_back(ids[i]);
      if (sequence.size() > 1) result.push_back(std::move(sequence));
      if (!all) break;
    }
  };
  if (separator.empty()) {
    add_document(text, true);
  } else {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find(separator, at), text.size());
      std::string_view part = std::string_view(text).substr(at, end - at);
      const size_t first = part.find_first_not_of(" \t\r\n");
      if (first != std::string_view::npos)
        add_document(part.substr(first, part.find_last_not_of(" \t\r\n") - first + 1), false);
      at = end + separator.size();
    }
  }
  if (max_windows > 0 && result.size() > static_cast<size_t>(max_windows))
    result.resize(static_cast<size_t>(max_windows));
  if (result.empty())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a text of at least two tokens", file);
  return result;
}

// Measures speeds as medians of a few requests to the engine, after a warm-up.
Status measure_speed(const fs::path& path, int threads, Line& line) {
  EngineConfig config;
  config.model = path.string();
  config.threads = threads;
  config.enable_prefix_caching = false;
  config.max_num_seqs = 1;
  config.kv_cache_memory = 0;
  ASSIGN_OR_RETURN(const auto llm, LLM::open(config));
  const EngineInfo& info = llm->engine().info();
  const int n_prompt = std::min(512, info.max_model_len / 2),
            n_decode = std::min(64, info.max_model_len / 4);
  SamplingParams params;
  params.max_tokens = n_decode + 1;
  params.temperature = 0;
  params.ignore_eos = true;
  std::vector<double> prefill, decode;
  std::mt19937 random(1);
  for (int i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt(static_cast<size_t>(n_prompt));
    for (TokenId& id : prompt)
      id = static_cast<TokenId>(random() % static_cast<unsigned>(info.vocab_size));
    ASSIGN_OR_RETURN(const auto outputs, llm->generate(std::vector<Prompt>{prompt}, params, {}));
    const RequestStats& stats = outputs.at(0).outputs.at(0).stats;
    if (i == 0 || stats.prefill_seconds <= 0 || stats.decode_seconds <= 0) continue;
    prefill.push_back(n_prompt / stats.prefill_seconds);
    decode.push_back(n_decode / stats.decode_seconds);
  }
  std::ranges::sort(prefill);
  std::ranges::sort(decode);
  if (!prefill.empty())
    line.prefill = prefill[prefill.size() / 2], line.decode = decode[decode.size() / 2];
  return {};
}

Result<double> tensor_bytes_of(const fs::path& path) {
  ASSIGN_OR_RETURN(const auto source, open_weights(path));
  double bytes = 0;
  for (const TensorInfo& tensor : source->tensors())
    bytes += static_cast<double>(tensor.bytes.size());
  return bytes;
}

// Returns the increase of the perplexity in percent. It is computed from the difference of the mean
// log-likelihoods on the same text, whose errors largely cancel.
double increase(const Line& line, const Line& original) {
  return 100 * (std::exp(line.agreement.nll - original.agreement.nll) - 1);
}

void print_table(const std::vector<Line>& lines, int worst, size_t n_windows) {
  size_t width = 8;
  for (const Line& line : lines) width = std::max(width, line.name.size());
  fmt::print("{:{}} {:>9} {:>18} {:>17} {:>9} {:>7} {:>7} {:>9} {:>9}\n", "variant", width, "size",
             "perplexity", "increase", "KL", "top-1", "top-5", "prefill/s", "decode/s");
  for (const Line& line : lines) {
    const Agreement& a = line.agreement;
    fmt::print(
        "{:{}} {:>9} {:>9.4f} +/- {:.3f} {:>8.3f} +/- {:.2f} % {:>9.6f} {:>6.2f}% {:>6.2f}% "
        "{:>9.0f} {:>9.1f}\n",
        line.name, width, format_bytes(line.bytes), a.perplexity(), a.perplexity_error(),
        increase(line, lines[0]), 100 * a.nll_difference_error, a.kl, 100 * a.top1, 100 * a.top5,
        line.prefill, line.decode);
  }
  fmt::print("{} tokens in {} windows\n", lines[0].agreement.n_tokens, n_windows);
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.layers.size() && i < static_cast<size_t>(worst); ++i) {
      fmt::print("{}{:8.4f} {}\n", i == 0 ? "worst output errors of " + line.name + ":\n" : "",
                 line.layers[i].relative, line.layers[i].tensor);
    }
  }
}

nlohmann::json line_json(const Line& line, const Line& original, int worst) {
  const Agreement& a = line.agreement;
  nlohmann::json layers = nlohmann::json::array();
  for (size_t i = 0; i < line.layers.size() && i < static_cast<size_t>(worst); ++i)
    layers.push_back(
        {{"tensor", line.layers[i].tensor}, {"relative_error", line.layers[i].relative}});
  return {{"name", line.name},
          {"bytes", line.bytes},
          {"perplexity", a.perplexity()},
          {"perplexity_error", a.perplexity_error()},
          {"increase_percent", increase(line, original)},
          {"increase_error_percent", 100 * a.nll_difference_error},
          {"kl", a.kl},
          {"kl_error", a.kl_error},
          {"top1", a.top1},
          {"top5", a.top5},
          {"prefill_tokens_per_second", line.prefill},
          {"decode_tokens_per_second", line.decode},
          {"worst_layers", layers}};
}

int EvalQuantCommand::run() {
  if (const Status free = check_svg(plot); !free) return fail(free.error());
  const auto sequences = windows();
  if (!sequences) return fail(sequences.error());
  std::vector<fs::path> paths;
  std::vector<Line> lines;
  std::vector<std::string> names = {original};
  names.insert(names.end(), variants.begin(), variants.end());
  for (const std::string& name : names) {
    auto path = find_model(name);
    if (!path) return fail(path.error());
    const auto bytes = tensor_bytes_of(*path);
    if (!bytes) return fail(bytes.error());
    const fs::path clean = path->has_filename() ? *path : path->parent_path();
    lines.push_back({clean.filename().string(), *bytes, 0, 0, {}, {}});
    paths.push_back(std::move(*path));
  }
  install_interrupt_handler();
  ProgressBar bar("eval-quant");
  EvaluateOptions options;
  options.threads = threads;
  options.layers = worst > 0;
  options.should_stop = interrupted;
  options.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  auto evaluation = evaluate(paths[0], {paths.begin() + 1, paths.end()}, *sequences, options);
  bar.update(0, 0);
  if (!evaluation) return fail(evaluation.error());
  lines[0].agreement = evaluation->reference;
  for (size_t i = 1; i < lines.size(); ++i) {
    lines[i].agreement = evaluation->variants[i - 1];
    lines[i].layers = std::move(evaluation->layer_errors[i - 1]);
  }
  for (size_t i = 0; speed && i < lines.size(); ++i) {
    if (const Status measured = measure_speed(paths[i], threads, lines[i]); !measured)
      return fail(measured.error());
  }
  print(lines, sequences->size());
  if (plot.empty()) return kExitOk;
  std::vector<PlotPoint> points;
  for (const Line& line : lines)
    points.push_back({line.name, line.bytes / (1 << 20), line.decode, increase(line, lines[0])});
  const Status written = write_svg(plot, plot_svg(points));
  return written ? kExitOk : fail(written.error());
}

void EvalQuantCommand::print(const std::vector<Line>& lines, size_t n_windows) const {
  if (!json) {
    print_table(lines, worst, n_windows);
    return;
  }
  nlohmann::json object = {{"original", line_json(lines[0], lines[0], worst)},
                           {"variants", nlohmann::json::array()},
                           {"windows", n_windows},
                           {"tokens", lines[0].agreement.n_tokens}};
  for (size_t i = 1; i < lines.size(); ++i)
    object["variants"].push_back(line_json(lines[i], lines[0], worst));
  fmt::print("{}\n", object.dump());
}

}  // namespace

Action add_eval_quant(CLI::App& app) {
  auto command = std::make_shared<EvalQuantCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
