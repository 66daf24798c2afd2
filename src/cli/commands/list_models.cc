// penstock models: lists the models of this machine by the names that -m accepts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/memory.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "formats/weight_source.h"
#include "frontend/embedding_model.h"
#include "hub/hub.h"
#include "model/arch/archs.h"
#include "model/arch/read_config.h"
#include "quant/quant_type.h"

namespace penstock {
namespace {

// Length in tokens of the sequence whose cache must fit into memory, beside the weights, for a
// model to count as runnable.
constexpr int kTokens = 2048;

struct ModelRow {
  FoundModel found;
  std::string format;  // "GGUF" or "Hugging Face"; "": the model cannot be opened
  std::string arch, type;
  bool pools = false;  // gives vectors, classes or scores instead of text
  int64_t parameters = 0;
  int context = 0;
  std::string problem;  // why the model cannot run here; "": it can
};

// Returns the encoding of most of the bytes.
std::string main_type(const WeightSource& source) {
  std::map<QuantType, size_t> bytes;
  for (const TensorInfo& tensor : source.tensors()) bytes[tensor.type] += tensor.bytes.size();
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string() : std::string(quant_info(most->first).name);
}

int64_t needed_memory(const WeightSource& source, const ModelConfig& config) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : source.tensors())
    bytes += static_cast<int64_t>(tensor.bytes.size());
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  for (const KvLayerSpec& layer : spec.layers)
    bytes += CacheSpec::token_bytes(layer, spec.dtype) * std::min(kTokens, config.max_seq_len);
  return bytes;
}

// Removes the leading path from an error message, since the table shows it anyway.
std::string without_path(const std::string& message, const std::filesystem::path& path) {
  const std::string prefix = path.string() + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

ModelRow describe(FoundModel found) {
  ModelRow row{.found = std::move(found)};
  const auto source = open_weights(row.found.path);
  if (!source) {
    row.problem = without_path(source.error().message, row.found.path);
    return row;
  }
  row.format = (*source)->naming() == Naming::kGguf ? "GGUF" : "Hugging Face";
  row.type = main_type(**source);
  const auto config = read_config(**source);
  if (!config) {
    row.problem = without_path(config.error().message, row.found.path);
    return row;
  }
  row.arch = config->arch;
  row.parameters = config->n_parameters();
  row.context = config->max_seq_len;
  row.pools = is_made_for_pooling(row.found.path.string()).value_or(false);
  const int64_t needed = needed_memory(**source, *config), memory = total_memory();
  if (needed > memory) {
    row.problem = fmt::format("needs {} of memory, this machine has {}",
                              format_bytes(static_cast<double>(needed)),
                              format_bytes(static_cast<double>(memory)));
  } else if (!row.found.missing.empty()) {
    row.problem = fmt::format("{} is missing", row.found.missing);
  }
  return row;
}

// Adds the models of the models folders, whose names are their file names.
void add_models_folder(std::vector<FoundModel>& models) {
  for (const auto& folder : model_folders()) {
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.is_regular_file(error) && entry.path().extension() == ".gguf")
        files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const auto& path : files) {
      models.push_back({.path = path,
                        .name = path.stem().string(),
                        .source = "models folder",
                        .bytes = static_cast<int64_t>(std::filesystem::file_size(path, error))});
    }
  }
}

nlohmann::json row_json(const ModelRow& row) {
  return {{"name", row.found.name},          {"source", row.found.source},
          {"path", row.found.path.string()}, {"format", row.format},
          {"architecture", row.arch},        {"type", row.type},
          {"parameters", row.parameters},    {"bytes", row.found.bytes},
          {"context", row.context},          {"runner", row.pools ? "pooling" : "generate"},
          {"runs", row.problem.empty()},     {"problem", row.problem}};
}

void print_table(const std::vector<ModelRow>& rows) {
  size_t width = 4;
  for (const ModelRow& row : rows) width = std::max(width, row.found.name.size());
  fmt::print("{:{}}  {:18}  {:12}  {:8}  {:>8}  {:>8}  {}\n", "name", width, "in", "architecture",
             "type", "size", "context", "runs here");
  for (const ModelRow& row : rows) {
    fmt::print("{:{}}  {:18}  {:12}  {:8}  {:>8}  {:>8}  {}\n", row.found.name, width,
               row.found.source, row.arch, row.type,
               format_bytes(static_cast<double>(row.found.bytes)),
               row.context > 0 ? std::to_string(row.context) : "",
               row.problem.empty() ? "yes" : "no: " + row.problem);
  }
}

// Prints the table of architectures (read by tools/make_reference.py): those with a Hugging Face
// model_type.
void print_architectures() {
  std::vector<const Architecture*> rows(architectures().begin(), architectures().end());
  std::erase_if(rows, [](const Architecture* row) { return row->hf_types.empty(); });
  const auto lower = [](const Architecture* row) {
    std::string title(row->title);
    title = ascii_lower(title);
    return title;
  };
  std::ranges::stable_sort(rows, {}, lower);
  fmt::print("| model | `model_type` | GGUF |\n|---|---|---|\n");
  for (const Architecture* row : rows) {
    const std::string_view gguf = row->gguf_name.empty() ? row->name : row->gguf_name;
    fmt::print("| {} | `{}` | {} |\n", row->title, row->hf_types[0],
               row->directories_only ? "–" : fmt::format("`{}`", gguf));
  }
}

// Prints the table of encodings (read by tools/make_reference.py).
void print_encodings() {
  fmt::print(
      "| encoding | elements per block | bits per weight | GGUF type | encoder |\n"
      "|---|--:|--:|--:|---|\n");
  for (const QuantTypeInfo& info : quant_types()) {
    constexpr double kBitsPerByte = 8;
    fmt::print("| `{}` | {} | {:.4g} | {} | {} |\n", info.name, info.block_size,
               kBitsPerByte * info.block_bytes / info.block_size,
               info.ggml_id < 0 ? "–" : std::to_string(info.ggml_id),
               can_quantize(info.type) ? "yes" : "");
  }
}

struct ModelsCommand {
  explicit ModelsCommand(CLI::App& app) {
    app.add_flag("--architectures", architectures,
                 "print the architectures that are known as a Markdown table: model, model_type, "
                 "GGUF's name");
    app.add_flag("--encodings", encodings,
                 "print the encodings of weights that are known as a Markdown table");
    app.add_flag("--json", json,
                 "print one JSON object {models: [{name, source, path, format, architecture, type, "
                 "parameters, bytes, context, runner, runs, problem}]}");
  }

  int run() const {
    if (architectures) {
      print_architectures();
      return kExitOk;
    }
    if (encodings) {
      print_encodings();
      return kExitOk;
    }
    const auto settings = hub_settings();
    if (!settings) return fail(settings.error());
    std::vector<FoundModel> models = models_on_disk(*settings);
    add_models_folder(models);
    std::vector<ModelRow> rows;
    for (FoundModel& model : models) rows.push_back(describe(std::move(model)));
    if (!json) {
      print_table(rows);
      return kExitOk;
    }
    nlohmann::json list = nlohmann::json::array();
    for (const ModelRow& row : rows) list.push_back(row_json(row));
    fmt::print("{}\n", nlohmann::json{{"models", list}}.dump(
                           -1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kExitOk;
  }

  bool json = false, architectures = false, encodings = false;
};

}  // namespace

Action add_models(CLI::App& app) {
  auto command = std::make_shared<ModelsCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
