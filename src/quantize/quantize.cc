#include "quantize/quantize.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_error.h"
#include "base/log.h"
#include "formats/gguf_sampling.h"
#include "formats/hf_config.h"
#include "model/arch/archs.h"
#include "model/arch/read_config.h"
#include "model/sources/ftype.h"
#include "model/sources/synthetic.h"
#include "quantize/methods/layer_method.h"
#include "quantize/plan/imatrix.h"
#include "quantize/write/convert.h"
#include "quantize/write/encode.h"
#include "quantize/write/output.h"
#include "quantize/write/parts.h"

namespace penstock {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Whether a key of a GGUF source describes its file instead of its model.
bool describes_file(const std::string& key) {
  return key.starts_with("split.") || key.starts_with("GGUF.") || key == "general.file_type" ||
         key == "general.quantization_version" || key.starts_with("quantize.imatrix");
}

class Run {
 public:
  explicit Run(const QuantizeJob& job) : job_(job), pool_(job.threads) {}
  Result<QuantizeReport> run();

 private:
  Status open();
  void fit_layout();
  void fit_group_size();
  Status check_place() const;
  Status outside_part(int index);
  Status layer_part(int layer);
  Result<std::vector<EncodedTensor>> encode(const MappedTensor& tensor, std::vector<float> values,
                                            LinearDecision decision, bool changed);
  Status append(std::vector<EncodedTensor>& list, EncodedTensor tensor,
                const MappedTensor& from) const;
  Status note(const std::string& what);
  Status finish();
  Status finish_gguf();
  Status finish_directory();
  Status copy_side_files(UnfinishedDirectory& out) const;
  Status check_written() const;
  Result<std::string> fingerprint() const;
  int n_outside() const { return static_cast<int>(map_.outside.size()); }
  int n_parts() const { return n_outside() + static_cast<int>(map_.layers.size()) + 1; }

  const QuantizeJob& job_;
  ThreadPool pool_;
  Naming naming_ = Naming::kGguf;
  std::unique_ptr<WeightSource> source_;
  ModelConfig config_;
  Recipe recipe_;
  TensorMap map_;
  TensorReader reader_;
  ImportanceMatrix importance_;
  std::unique_ptr<LayerMethod> method_;
  PartStore parts_;
  std::optional<UnfinishedDirectory> directory_;  // that is being written
  QuantizeReport report_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Result<std::string> Run::fingerprint() const {
  std::string text = recipe_.fingerprint();
  text += fmt::format("\nfrom {}\n", fs::weakly_canonical(job_.in).string());
  for (const TensorInfo& tensor : source_->tensors())
    text +=
        fmt::format("{} {} {}\n", tensor.name, quant_info(tensor.type).name, tensor.bytes.size());
  uint64_t hash = 1469598103934665603ull;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (const auto& sample : job_.samples) {
    mix(sample.size());
    for (const TokenId id : sample) mix(static_cast<uint64_t>(id));
  }
  const auto stamped = [](const fs::path& path, const FileStamp& stamp) {
    return fmt::format("{} {} {} {}\n", path.string(), stamp.size, stamp.inode, stamp.modified_ns);
  };
  for (const SourceFile& file : source_->files()) text += stamped(file.path, file.stamp);
  text += fmt::format("samples {:x}\n", hash);
  if (!job_.imatrix.empty()) {
    ASSIGN_OR_RETURN(const MappedFile imatrix, MappedFile::open(job_.imatrix));
    text += "imatrix " + stamped(job_.imatrix, imatrix.stamp());
  }
  std::error_code error;
  const auto written = fs::last_write_time(job_.in, error);
  return text + fmt::format("written {}\n", error ? 0 : written.time_since_epoch().count());
}

Status Run::check_place() const {
  const fs::path also_read[] = {job_.imatrix, job_.calibration};
  return check_output({job_.out, naming_ == Naming::kHuggingFace, job_.force}, source_.get(),
                      also_read);
}

Status Run::open() {
  naming_ = output_naming(job_.out);
  ASSIGN_OR_RETURN(source_, open_weights(job_.in));
  RETURN_IF_ERROR(check_place());
  ASSIGN_OR_RETURN(config_, read_config(*source_));
  RETURN_IF_ERROR(read_activations(*source_, config_));
  if (naming_ == Naming::kGguf && find_architecture(config_.arch)->directories_only)
    return errorf(ErrorCode::kUnsupported,
                  "{}: GGUF files of architecture {} are not known: write a directory",
                  job_.in.string(), config_.arch);
  ASSIGN_OR_RETURN(recipe_, make_recipe(job_.recipe, naming_));
  ASSIGN_OR_RETURN(map_, map_tensors(*source_, config_, naming_));
  map_.model.weighed = !job_.imatrix.empty() || !job_.samples.empty();
  ASSIGN_OR_RETURN(reader_, TensorReader::open(*source_));
  if (naming_ != source_->naming()) {
    if (naming_ == Naming::kHuggingFace) {
      // fails before hours of work
      ASSIGN_OR_RETURN(const json unused, hf_config_of(*source_, config_));
    } else {
      ASSIGN_OR_RETURN(const auto unused, gguf_extra_tensors(*source_, config_));
    }
  }
  if (naming_ != source_->naming() && naming_ == Naming::kHuggingFace &&
      config_.rounding.activations && recipe_.layout != Layout::kBitNet) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: only packed directories of BitNet say that activations are rounded: expected --type "
        "ternary, got {}",
        job_.in.string(), job_.recipe.type);
  }
  if (job_.recipe.layout.empty()) fit_layout();
  if (job_.recipe.group_size < 0) fit_group_size();
  if (!job_.imatrix.empty()) {
    ASSIGN_OR_RETURN(importance_, read_imatrix(job_.imatrix));
  }
  if (recipe_.calibrates() && job_.samples.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--method {}, --type {}: needs calibration text (--calibration FILE)",
                  job_.recipe.method, job_.recipe.type);
  }
  ASSIGN_OR_RETURN(const std::string job, fingerprint());
  ASSIGN_OR_RETURN(parts_, PartStore::open(job_.out, job, naming_));
  for (const TensorInfo& tensor : source_->tensors())
    report_.bytes_in += static_cast<int64_t>(tensor.bytes.size());
  report_.n_parts = n_parts();
  ASSIGN_OR_RETURN(method_,
                   make_layer_method({job_, recipe_, *source_, map_, reader_, parts_, pool_}));
  return {};
}

// If codes do not fill the words of the default layout, switches to compressed-tensors, which pads
// them.
void Run::fit_layout() {
  const bool gptq = recipe_.layout == Layout::kGptq;
  if (!gptq && recipe_.layout != Layout::kAwq) return;
  const int64_t bits = recipe_.coding.bits;
  const auto fits = [&](const MappedTensor& tensor) {
    return !tensor.is_linear ||
           (tensor.rows * bits % 32 == 0 && (!gptq || tensor.cols * bits % 32 == 0));
  };
  if (std::ranges::all_of(map_.layers,
                          [&](const auto& layer) { return std::ranges::all_of(layer, fits); }))
    return;
  RecipeOptions options = job_.recipe;
  options.layout = "compressed-tensors";
  options.asymmetric |= !recipe_.coding.symmetric;
  const auto other = make_recipe(options, naming_);
  if (!other) return;  // a later error names the tensor that does not fit
  log().info(
      "some layers' codes do not fill the words of the {} layout: --layout compressed-tensors",
      gptq ? "gptq" : "awq");
  recipe_ = *other;
}

// Keeps the type's group size if it divides the inputs of every layer; otherwise uses 64, 32 or
// whole rows, like loading does.
void Run::fit_group_size() {
  if (recipe_.layout == Layout::kGguf || recipe_.layout == Layout::kPlain ||
      recipe_.coding.group_size == 0)
    return;
  const auto divides = [&](int group) {
    for (const std::vector<MappedTensor>& layer : map_.layers) {
      for (const MappedTensor& tensor : layer) {
        if (tensor.is_linear && tensor.cols % group != 0) return false;
      }
    }
    return true;
  };
  const int wanted = recipe_.coding.group_size;
  if (divides(wanted)) return;
  int group = 0;
  if (wanted > 64 && divides(64))
    group = 64;
  else if (wanted > 32 && divides(32))
    group = 32;
  // bitsandbytes has no whole-row groups: its blocks continue across rows.
  if (group == 0 && recipe_.layout == Layout::kBitsAndBytes) return;
  log().info("groups of {} do not divide every layer's inputs: --group-size {}", wanted, group);
  recipe_.coding.group_size = group;
}

Status Run::note(const std::string& what) {
  if (job_.should_stop && job_.should_stop()) {
    return errorf(ErrorCode::kCancelled,
                  "interrupted: the finished layers are in {}.parts; the same command goes on",
                  job_.out.string());
  }
  int done = 0;
  for (int part = 0; part < n_parts(); ++part) done += parts_.has(part) ? 1 : 0;
  if (job_.progress) job_.progress(done, n_parts(), what);
  return {};
}

Result<std::vector<EncodedTensor>> Run::encode(const MappedTensor& tensor,
                                               std::vector<float> values, LinearDecision decision,
                                               bool changed) {
  std::vector<EncodedTensor> out;
  to_output(tensor, values);
  // Reordered inputs or factors change the groups or the weights, so the codes are obsolete.
  if (!tensor.cols_from.empty() || !tensor.factors.empty()) decision.codes.reset();
  if (decision.codes) {
    GroupedCodes& codes = *decision.codes;
    to_output_rows(tensor, static_cast<size_t>(codes.cols), codes.codes);
    to_output_rows(tensor, static_cast<size_t>(codes.n_groups()), codes.scales);
  }
  const QuantType stored = reader_.type(tensor);
  const bool coded = recipe_.layout != Layout::kGguf && recipe_.layout != Layout::kPlain;
  if (coded && tensor.is_linear && !tensor.out.ends_with(".weight")) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: experts that lie in one tensor are written as they are or into a GGUF file only",
        tensor.out);
  }
  if (coded && tensor.is_linear) return encode_layer(pool_, recipe_, tensor, values, decision);
  QuantType type = plain_type(recipe_, tensor, stored, map_);
  // A folded scale needs more than BF16's 8 bits of precision.
  if (changed && !tensor.is_matrix) type = QuantType::kF32;
  if (decision.codes && recipe_.layout == Layout::kGguf && decision.codes->cols % 32 == 0 &&
      type == recipe_.ftype.base) {
    ASSIGN_OR_RETURN(EncodedTensor blocks, encode_blocks(tensor, type, *decision.codes));
    out.push_back(std::move(blocks));
    return out;
  }
  const float* importance = nullptr;
  if (!decision.importance.empty()) importance = decision.importance.data();
  if (const auto* found = importance_.find(tensor.out, tensor.expert); found != nullptr) {
    if (static_cast<int>(found->size()) != tensor.cols) {
      return errorf(ErrorCode::kInvalidArgument, "{}: {}: expected {} values, got {}",
                    job_.imatrix.string(), tensor.out, tensor.cols, found->size());
    }
    importance = found->data();
  }
  if (!can_quantize(type) || quant_info(type).block_size == 1) importance = nullptr;
  ASSIGN_OR_RETURN(EncodedTensor plain,
                   encode_plain(pool_, tensor, type, std::move(values), importance));
  out.push_back(std::move(plain));
  return out;
}

// Appends a tensor. Experts and rows of one output tensor are concatenated in order.
Status Run::append(std::vector<EncodedTensor>& list, EncodedTensor tensor,
                   const MappedTensor& from) const {
  if (from.out_experts == 0 && !from.goes_on) {
    if (from.out_rows > 0) tensor.shape[0] = from.out_rows;
    list.push_back(std::move(tensor));
    return {};
  }
  if (from.out_experts > 0 && from.expert == 0 && !from.goes_on) {
    if (from.out_rows > 0) tensor.shape[0] = from.out_rows;
    tensor.shape.insert(tensor.shape.begin(), from.out_experts);
    list.push_back(std::move(tensor));
    return {};
  }
  const auto whole =
      std::ranges::find_if(list, [&](const EncodedTensor& t) { return t.name == tensor.name; });
  if (whole == list.end())
    return errorf(ErrorCode::kInternal, "tensor {}: experts out of order", tensor.name);
  whole->bytes.insert(whole->bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  return {};
}

// Writes one part. If several entries are one tensor, the first entry's part has all of them.
Status Run::outside_part(int index) {
  if (parts_.has(index)) {
    ++report_.n_resumed;
    return {};
  }
  const auto first = map_.outside.begin() + index;
  RETURN_IF_ERROR(note(first->in));
  std::vector<EncodedTensor> list;
  const bool follows = (first->out_experts > 0 && first->expert > 0) || first->goes_on;
  for (auto tensor = first; !follows && tensor != map_.outside.end() && tensor->out == first->out;
       ++tensor) {
    ASSIGN_OR_RETURN(std::vector<float> values, reader_.read(*tensor));
    ASSIGN_OR_RETURN(std::vector<EncodedTensor> encoded,
                     encode(*tensor, std::move(values), {}, false));
    for (EncodedTensor& each : encoded) RETURN_IF_ERROR(append(list, std::move(each), *tensor));
  }
  return parts_.write(index, list);
}

// Rounds BitNet's master weights, which the model rounds at run time.
void make_ternary(std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += std::fabs(value);
  const float scale = std::max(static_cast<float>(sum / static_cast<double>(values.size())), 1e-5f);
  for (float& value : values)
    value = std::clamp(std::nearbyint(value / scale), -1.0f, 1.0f) * scale;
}

Status Run::layer_part(int layer) {
  const int part = n_outside() + layer;
  const bool done = parts_.has(part);
  if (done) ++report_.n_resumed;
  if (done && method_ == nullptr) return {};
  RETURN_IF_ERROR(note(fmt::format("layer {}", layer)));
  const std::vector<MappedTensor>& tensors = map_.layers[static_cast<size_t>(layer)];
  LayerValues values{layer, &tensors, {}, {}, {}};
  values.decisions.resize(tensors.size());
  values.changed.resize(tensors.size());
  for (const MappedTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(std::vector<float> read, reader_.read(tensor));
    if (config_.rounding.ternary_weights && tensor.is_linear) make_ternary(read);
    values.values.push_back(std::move(read));
  }
  if (method_ != nullptr) RETURN_IF_ERROR(method_->process(values, done));
  if (done) return {};
  std::vector<EncodedTensor> list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto encoded = encode(tensors[i], std::move(values.values[i]), std::move(values.decisions[i]),
                          values.changed[i]);
    if (!encoded) return tl::unexpected(encoded.error());
    values.values[i].clear();
    for (EncodedTensor& tensor : *encoded)
      RETURN_IF_ERROR(append(list, std::move(tensor), tensors[i]));
  }
  return parts_.write(part, list);
}

namespace {

// `kept` MTP layers are written. The layer count includes them, and so do lists by layer (except
// window patterns and rope sections, which llama.cpp's converter omits): their entries repeat that
// of the last layer of their form. counted: layers in the metadata, of all kinds.
void count_further_layers(const ModelConfig& config, size_t counted, int kept, json& metadata) {
  const std::string arch = metadata.value("general.architecture", "") + ".";
  const auto n = static_cast<size_t>(config.n_layers), written = n + static_cast<size_t>(kept);
  metadata.erase(arch + "nextn_predict_layers");
  if (kept > 0) metadata[arch + "nextn_predict_layers"] = static_cast<unsigned>(kept);
  metadata[arch + "block_count"] = static_cast<unsigned>(written);
  const std::vector<LayerConfig>& told = config.next_token_layers;
  const auto is_of_their_form = [&](const LayerConfig& layer) {
    if (!told.empty()) return (layer.window > 0) == (told[0].window > 0);
    return layer.attention;
  };
  size_t attends = n - 1;
  while (attends > 0 && !is_of_their_form(config.layers[attends])) --attends;
  for (auto& [key, value] : metadata.items()) {
    if (!key.starts_with(arch) || key.ends_with("dimension_sections") ||
        key.ends_with("window_pattern") || !value.is_array() || value.size() != counted)
      continue;
    while (value.size() > written) value.erase(value.size() - 1);
    const bool bounds = key.ends_with(".swiglu_clamp_shexp") && !told.empty();
    while (value.size() < written) {
      const size_t nth = std::min(value.size() - n, told.size() - 1);
      value.push_back(bounds ? json(told[nth].activation.parameters[0]) : json(value[attends]));
    }
  }
}

}  // namespace

Status Run::finish_gguf() {
  json metadata = json::object();
  if (source_->naming() == Naming::kGguf) {
    const json& config = source_->config();
    for (const auto& [key, value] : config.items()) {
      if (!describes_file(key)) metadata[key] = value;
    }
    const auto counted = static_cast<size_t>(config_.n_layers + config_.n_next_token_layers);
    if (config_.n_next_token_layers > 0)
      count_further_layers(config_, counted, map_.n_next_tokens, metadata);
  } else {
    metadata = gguf_metadata(config_in(config_, Naming::kGguf));
    if (map_.n_next_tokens > 0)
      count_further_layers(config_, static_cast<size_t>(config_.n_layers), map_.n_next_tokens,
                           metadata);
    if (job_.gguf_tokenizer) {
      ASSIGN_OR_RETURN(const json tokenizer, job_.gguf_tokenizer(*source_));
      metadata.update(tokenizer);
    }
    metadata.update(sampling_to_gguf(source_->generation_config()));
  }
  metadata["general.quantization_version"] = 2u;
  if (recipe_.ftype.number >= 0)
    metadata["general.file_type"] = static_cast<unsigned>(recipe_.ftype.number);
  return assemble_gguf(parts_, n_parts(), metadata, job_.out);
}

Status Run::copy_side_files(UnfinishedDirectory& out) const {
  const fs::path& from = source_->path();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string(),
                      extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors" || extension == ".bin" ||
                         extension == ".gguf" || extension == ".pt" || extension == ".pth" ||
                         name.ends_with(".index.json");
    const bool config = name == "config.json" || name == "quantize_config.json" ||
                        name == "hf_quant_config.json" || name == "recipe.yaml";
    if (!entry.is_regular_file() || weights || config) continue;
    ASSIGN_OR_RETURN(const fs::path to, out.place(name));
    fs::copy_file(entry.path(), to, error);
    if (error) return errorf(file_error(error.value()), "{}: {}", to.string(), error.message());
  }
  return {};
}

const char* torch_dtype(QuantType type) {
  return type == QuantType::kF32 ? "float32" : type == QuantType::kBF16 ? "bfloat16" : "float16";
}

Status Run::finish_directory() {
  ASSIGN_OR_RETURN(directory_, UnfinishedDirectory::begin(job_.out));
  UnfinishedDirectory& out = *directory_;
  RETURN_IF_ERROR(assemble_safetensors(parts_, n_parts(), out));
  json config;
  if (source_->naming() == Naming::kHuggingFace) {
    config = source_->config();
    erase_quantization_config(config);
    if (recipe_.layout == Layout::kPlain) {
      config.erase("dtype");
      config["torch_dtype"] = torch_dtype(recipe_.ftype.base);
    }
    RETURN_IF_ERROR(copy_side_files(out));
  } else {
    ASSIGN_OR_RETURN(config, hf_config_of(*source_, config_));
    if (recipe_.layout == Layout::kPlain) config["torch_dtype"] = torch_dtype(recipe_.ftype.base);
    if (map_.n_next_tokens > 0)
      config.update({{"num_nextn_predict_layers", map_.n_next_tokens},
                     {"mtp_num_hidden_layers", map_.n_next_tokens}});
    if (job_.tokenizer_files) {
      ASSIGN_OR_RETURN(const auto files, job_.tokenizer_files(*source_));
      for (const auto& [name, text] : files) RETURN_IF_ERROR(out.write(name, text));
    }
    if (const json& sampling = source_->generation_config(); !sampling.empty())
      RETURN_IF_ERROR(out.write("generation_config.json", sampling.dump(2) + "\n"));
  }
  std::vector<std::string> kept = {"lm_head"};
  const auto keep = [&](const std::vector<MappedTensor>& list) {
    for (const MappedTensor& t : list) {
      if (t.part == Part::kRouter && t.is_matrix)
        kept.push_back(t.out.substr(0, t.out.size() - std::string_view(".weight").size()));
    }
  };
  keep(map_.outside);
  for (const auto& layer : map_.layers) keep(layer);
  const json quantization = quantization_config(recipe_, kept);
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  return out.write("config.json", config.dump(2) + "\n");
}

// Reads the written configuration back: a property that the other format cannot express is an
// error, not a checkpoint that computes something else.
Status Run::check_written() const {
  ASSIGN_OR_RETURN(const auto written, open_weights(job_.out));
  ASSIGN_OR_RETURN(const ModelConfig there, read_config(*written));
  ModelConfig here = source_->naming() == naming_ ? config_ : config_in(config_, naming_);
  if (here.rounding.ternary_weights) here.rounding.ternary_weights = false;
  const std::string difference = config_difference(here, there);
  if (difference.empty() || source_->naming() == naming_) return {};
  std::error_code ignored;
  if (naming_ == Naming::kGguf) fs::remove(job_.out, ignored);
  return errorf(ErrorCode::kUnsupported, "{}: {}: the output's format cannot say it",
                source_->path().string(), difference);
}

Status Run::finish() {
  const int extras = n_parts() - 1;
  std::vector<EncodedTensor> list = hf_extra_tensors(config_);
  if (naming_ == Naming::kGguf) {
    ASSIGN_OR_RETURN(list, gguf_extra_tensors(*source_, config_));
  }
  RETURN_IF_ERROR(parts_.write(extras, list));
  RETURN_IF_ERROR(note("writing"));
  RETURN_IF_ERROR(check_place());  // hours later something else may be there
  Status written = naming_ == Naming::kGguf ? finish_gguf() : finish_directory();
  if (written) written = check_written();
  if (!written) {
    directory_.reset();  // its lock
    if (naming_ == Naming::kHuggingFace) (void)remove_unfinished(job_.out);
    return written;
  }
  if (directory_) RETURN_IF_ERROR(directory_->finish());
  parts_.remove();
  ASSIGN_OR_RETURN(const auto output, open_weights(job_.out));
  for (const TensorInfo& tensor : output->tensors())
    report_.bytes_out += static_cast<int64_t>(tensor.bytes.size());
  return {};
}

Result<QuantizeReport> Run::run() {
  RETURN_IF_ERROR(open());
  for (int i = 0; i < n_outside(); ++i) RETURN_IF_ERROR(outside_part(i));
  for (size_t i = 0; i < map_.layers.size(); ++i) RETURN_IF_ERROR(layer_part(static_cast<int>(i)));
  method_.reset();
  RETURN_IF_ERROR(finish());
  report_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return report_;
}

}  // namespace

Naming output_naming(const fs::path& out) {
  std::string extension = out.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return extension == ".gguf" ? Naming::kGguf : Naming::kHuggingFace;
}

Result<QuantizeReport> quantize(const QuantizeJob& job) {
  const fs::path out = without_slash(job.out);
  if (out == job.out) return Run(job).run();
  QuantizeJob clean = job;
  clean.out = out;
  return Run(clean).run();
}

}  // namespace penstock
