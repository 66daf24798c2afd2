// penstock embed: computes the embedding vectors of texts or token ids.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "penstock/embed.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

const std::map<std::string, Pooling>& poolings() {
  static const std::map<std::string, Pooling> map = {
      {"mean", Pooling::kMean}, {"cls", Pooling::kCls}, {"last", Pooling::kLast}};
  return map;
}

struct EmbedCommand {
  explicit EmbedCommand(CLI::App& app) {
    app.add_option("-m,--model", config.model,
                   "encoder or decoder: GGUF file or Hugging Face directory, or its name")
        ->required();
    auto* input = app.add_option_group("input")->require_option(1);
    input->add_option("-p,--prompt", texts, "text; may be repeated");
    input->add_option("-f,--file", file, "file with a text on every line; - is standard input");
    input->add_option("--ids", ids_file,
                      "file with a sequence of token ids on every line, taken as they are: "
                      "separated by white space or commas, or as JSON lists");
    app.add_option("--pooling", pooling,
                   "mean, cls or last (default: the checkpoint's; where it says nothing mean of "
                   "encoders, last of decoders)")
        ->check(CLI::IsMember(poolings()));
    normalize =
        app.add_flag("--normalize,!--no-normalize", normalizes,
                     "vectors of length 1 (default: as the checkpoint says; yes of GGUF files)");
    app.add_option("--dimensions", options.dimensions,
                   "truncate every vector to this many numbers (Matryoshka)")
        ->check(CLI::PositiveNumber);
    prompt =
        app.add_option("--prompt-name", prompt_name,
                       "which of the checkpoint's prompts goes before every text; \"\" is none");
    app.add_flag("--truncate", options.truncate,
                 "cut texts that are too long, which are errors otherwise");
    app.add_option("--lora", adapter,
                   "a LoRA adapter beside the model: a PEFT directory or a GGUF file");
    app.add_flag("--json", json, "print one JSON object {embeddings}");
    app.add_option("-t,--threads", config.threads,
                   "compute threads; 0 is as many as the process may use");
    app.add_option("--tensor-parallel-size", config.tensor_parallel_size,
                   "ranks that share every layer, processes of this host or of --hosts");
    app.add_option("--pipeline-parallel-size", config.pipeline_parallel_size,
                   "stages, each with some of the layers");
    app.add_option("--data-parallel-size", config.data_parallel_size,
                   "engines that share the texts out; 0: one for each NUMA node");
    app.add_option("--rank-wire-dtype", config.rank_wire_dtype,
                   "type of the values that ranks exchange: f32 or bf16");
    app.add_option("--quantize", config.quantize,
                   "round full-precision weights at load: q8_0, q4_k_m, ...");
    app.add_option("--max-num-batched-tokens", config.max_num_batched_tokens,
                   "tokens of a step (default: 2048)")
        ->check(CLI::PositiveNumber);
  }
  int run();
  Result<std::vector<Prompt>> inputs() const;
  void print(const std::vector<std::vector<float>>& vectors) const;

  EngineConfig config;
  EmbedOptions options;
  std::vector<std::string> texts;
  std::string file, ids_file, pooling, prompt_name, adapter;
  CLI::Option *normalize = nullptr, *prompt = nullptr;
  bool json = false, normalizes = false;
};

std::vector<std::string_view> lines_of(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return lines;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == ',' || c == '[' || c == ']'; }

Result<std::vector<TokenId>> ids_of(std::string_view line, size_t number, const std::string& file) {
  std::vector<TokenId> ids;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (true) {
    while (at != end && is_space(*at)) ++at;
    if (at == end) return ids;
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop != end && !is_space(*stop))) {
      return errorf(ErrorCode::kInvalidArgument, "{}: line {}: expected token ids, got \"{}\"",
                    file, number,
                    std::string(at, static_cast<size_t>(std::min<ptrdiff_t>(12, end - at))));
    }
    ids.push_back(id);
    at = stop;
  }
}

Result<std::vector<Prompt>> EmbedCommand::inputs() const {
  std::vector<Prompt> all(texts.begin(), texts.end());
  if (!file.empty()) {
    ASSIGN_OR_RETURN(const std::string content, read_text(file));
    for (const std::string_view line : lines_of(content)) all.emplace_back(std::string(line));
  }
  if (!ids_file.empty()) {
    ASSIGN_OR_RETURN(const std::string content, read_text(ids_file));
    const Json lists = bounded_json<Json>(content);
    const auto is_list = [](const Json& item) { return item.is_array(); };
    if (lists.is_array() && std::ranges::any_of(lists, is_list)) {
      for (size_t i = 0; i < lists.size(); ++i) {
        if (!lists[i].is_array()) {
          return errorf(ErrorCode::kInvalidArgument,
                        "{}: entry {}: expected a list of token ids, got {}", ids_file, i,
                        lists[i].dump().substr(0, 60));
        }
        const std::string one = lists[i].dump();
        ASSIGN_OR_RETURN(std::vector<TokenId> ids, ids_of(one, i + 1, ids_file));
        all.emplace_back(std::move(ids));
      }
      return all;
    }
    size_t number = 0;
    for (const std::string_view line : lines_of(content)) {
      ASSIGN_OR_RETURN(std::vector<TokenId> ids, ids_of(line, ++number, ids_file));
      all.emplace_back(std::move(ids));
    }
  }
  if (all.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at least one line, got none",
                  file.empty() ? ids_file : file);
  }
  return all;
}

void EmbedCommand::print(const std::vector<std::vector<float>>& vectors) const {
  if (json) {
    fmt::print("{}\n", Json{{"embeddings", vectors}}.dump());
    return;
  }
  for (const std::vector<float>& vector : vectors) fmt::print("{}\n", fmt::join(vector, " "));
}

int EmbedCommand::run() {
  auto found = find_model(config.model);
  if (!found) return fail(found.error());
  config.model = found->string();
  auto all = inputs();
  if (!all) return fail(all.error());
  if (!pooling.empty()) options.pooling = poolings().at(pooling);
  if (normalize->count() > 0) options.normalize = normalizes;
  if (prompt->count() > 0) options.prompt_name = prompt_name;
  auto model = EmbeddingModel::open(config);
  if (!model) return fail(model.error());
  if (!adapter.empty()) {
    auto opened = (*model)->open_adapter(adapter);
    if (!opened) return fail(opened.error());
    options.adapter = std::move(*opened);
  }
  install_interrupt_handler();
  ProgressBar bar("embedding");
  options.on_progress = [&](size_t done, size_t total) {
    bar.update(static_cast<int64_t>(done), static_cast<int64_t>(total));
    return !interrupted();
  };
  auto vectors = (*model)->embed(*all, options);
  if (!vectors) return fail(vectors.error());
  print(*vectors);
  return kExitOk;
}

}  // namespace

Action add_embed(CLI::App& app) {
  auto command = std::make_shared<EmbedCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
