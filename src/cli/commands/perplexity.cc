// penstock perplexity: measures how well a model predicts a text, with standard errors.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/quality/likelihood.h"

namespace penstock {
namespace {

struct PerplexityCommand {
  explicit PerplexityCommand(CLI::App& app) {
    add_engine_flags(app, config);
    app.add_option("-f,--file", file, "text to predict; - is standard input")->required();
    app.add_option("--window", window,
                   "tokens per window, with the BOS (default: 512, or the model's limit)")
        ->check(CLI::Range(2, 1 << 24));
    app.add_option("--stride", stride,
                   "tokens between two windows; less than the window: only tokens no earlier "
                   "window scored count (default: windows do not overlap)")
        ->check(CLI::PositiveNumber);
    app.add_option("--separator", separator,
                   "split the text here and score every document by itself, cut to one window; "
                   "white space at its ends is dropped");
    app.add_option("--max-windows", max_windows, "stop after this many windows")
        ->check(CLI::PositiveNumber);
    app.add_flag("--json", json,
                 "print one JSON object {perplexity, perplexity_error, nll, bits_per_byte, tokens, "
                 "bytes, windows}");
    app.add_flag("--no-bos", no_bos, "no begin-of-sequence token before a window");
  }
  int run();

  EngineConfig config;
  std::string file, separator;
  int window = 0, stride = 0, max_windows = 0;
  bool json = false, no_bos = false;
};

// The sequences to compute, and for each the index of its first scored token (>= 1).
struct Windows {
  std::vector<std::vector<TokenId>> sequences;
  std::vector<size_t> first_scored;
};

std::vector<std::string> split_documents(const std::string& text, const std::string& separator) {
  std::vector<std::string> documents;
  const char* const space = " \t\r\n";
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t first = part.find_first_not_of(space);
    if (first != std::string::npos)
      documents.push_back(part.substr(first, part.find_last_not_of(space) - first + 1));
    at = end + separator.size();
  }
  return documents;
}

Windows document_windows(const LLM& llm, const std::vector<std::string>& documents, size_t window,
                         bool bos) {
  Windows result;
  for (const std::string& document : documents) {
    std::vector<TokenId> ids = llm.encode(document, bos, false);
    if (ids.size() > window) ids.resize(window);
    if (ids.size() < 2) continue;
    result.sequences.push_back(std::move(ids));
    result.first_scored.push_back(1);
  }
  return result;
}

Windows sliding_windows(const LLM& llm, const std::string& text, size_t window, size_t stride,
                        bool bos) {
  const std::vector<TokenId> prefix = bos ? llm.encode("", true, false) : std::vector<TokenId>();
  const std::vector<TokenId> ids = llm.encode(text, false, false);
  const size_t payload = window - std::min(prefix.size(), window - 1);
  Windows result;
  // number of leading tokens of the text that are done: scored, or without a context to score them
  size_t n_scored = 0;
  for (size_t begin = 0; begin < ids.size(); begin += std::min(stride, payload)) {
    const size_t end = std::min(begin + payload, ids.size());
    std::vector<TokenId> sequence = prefix;
    sequence.insert(sequence.end(), ids.begin() + begin, ids.begin() + end);
    const size_t first = std::max<size_t>(1, prefix.size() + std::max(n_scored, begin) - begin);
    if (first < sequence.size()) {
      result.sequences.push_back(std::move(sequence));
      result.first_scored.push_back(first);
    }
    n_scored = end;
    if (end == ids.size()) break;
  }
  return result;
}

struct Summary {
  double sum = 0, sum_squares = 0;
  int64_t n_tokens = 0, n_bytes = 0;

  double nll() const { return n_tokens > 0 ? sum / static_cast<double>(n_tokens) : 0; }
  // Returns the standard error of nll(), treating tokens as independent.
  double error() const {
    if (n_tokens < 2) return 0;
    const double n = static_cast<double>(n_tokens);
    return std::sqrt(std::max(0.0, sum_squares / n - nll() * nll()) / (n - 1));
  }
  double bits_per_byte() const {
    return n_bytes > 0 ? sum / std::log(2.0) / static_cast<double>(n_bytes) : 0;
  }
};

void print_summary(const Summary& summary, size_t n_windows, bool json) {
  const double perplexity = std::exp(summary.nll());
  const double error = perplexity * summary.error();
  if (json) {
    const nlohmann::json object = {
        {"perplexity", perplexity},   {"perplexity_error", error},
        {"nll", summary.nll()},       {"bits_per_byte", summary.bits_per_byte()},
        {"tokens", summary.n_tokens}, {"bytes", summary.n_bytes},
        {"windows", n_windows}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print(
      "perplexity {:.4f} +/- {:.4f}, {:.4f} bits per byte ({} tokens, {} bytes, {} windows)\n",
      perplexity, error, summary.bits_per_byte(), summary.n_tokens, summary.n_bytes, n_windows);
}

int PerplexityCommand::run() {
  auto model = find_model(config.model);
  if (!model) return fail(model.error());
  config.model = model->string();
  config.enable_prefix_caching = false;
  auto text = read_text(file);
  if (!text) return fail(text.error());
  auto opened = LLM::open(config);
  if (!opened) return fail(opened.error());
  LLM& llm = **opened;
  const int limit = llm.engine().info().max_model_len;
  if (window > limit) {
    return fail({ErrorCode::kInvalidArgument,
                 fmt::format("--window: expected at most {}, got {}", limit, window)});
  }
  const size_t size = static_cast<size_t>(window > 0 ? window : std::min(512, limit));
  Windows windows = separator.empty()
                        ? sliding_windows(llm, *text, size,
                                          stride > 0 ? static_cast<size_t>(stride) : size, !no_bos)
                        : document_windows(llm, split_documents(*text, separator), size, !no_bos);
  if (max_windows > 0 && windows.sequences.size() > static_cast<size_t>(max_windows)) {
    windows.sequences.resize(static_cast<size_t>(max_windows));
  }
  if (windows.sequences.empty()) {
    return fail({ErrorCode::kInvalidArgument, file + ": expected a text of at least two tokens"});
  }
  install_interrupt_handler();
  Summary summary;
  ProgressBar progress("perplexity");
  constexpr size_t kGroup =
      64;  // windows submitted together: limits memory and fills the engine's batches
  for (size_t at = 0; at < windows.sequences.size(); at += kGroup) {
    const auto group =
        std::span(windows.sequences).subspan(at, std::min(kGroup, windows.sequences.size() - at));
    auto scores = log_likelihoods(llm, group, [&](size_t done, size_t) {
      progress.update(static_cast<int64_t>(at + done),
                      static_cast<int64_t>(windows.sequences.size()),
                      summary.n_tokens > 0 ? fmt::format("{:.4f}", std::exp(summary.nll())) : "");
    });
    if (!scores) return fail(scores.error());
    for (size_t i = 0; i < group.size(); ++i) {
      const size_t first = windows.first_scored[at + i];
      for (size_t t = first - 1; t < (*scores)[i].size(); ++t) {
        const double nll = -static_cast<double>((*scores)[i][t]);
        summary.sum += nll;
        summary.sum_squares += nll * nll;
        ++summary.n_tokens;
      }
      const std::span<const TokenId> scored = std::span(group[i]).subspan(first);
      summary.n_bytes += static_cast<int64_t>(llm.decode(scored, true).size());
    }
  }
  progress.update(0, 0);
  print_summary(summary, windows.sequences.size(), json);
  return kExitOk;
}

}  // namespace

Action add_perplexity(CLI::App& app) {
  auto command = std::make_shared<PerplexityCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
