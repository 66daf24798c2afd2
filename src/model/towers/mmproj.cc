#include "model/towers/mmproj.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "model/towers/mmproj_families.h"

namespace penstock {
namespace {

using nlohmann::json;

// The names and layouts of a directory over the tensors of a GGUF file.
class MmprojSource final : public WeightSource {
 public:
  // families: at most one that sees, and one that hears.
  MmprojSource(std::unique_ptr<WeightSource> file, const std::vector<const MmprojFamily*>& families)
      : file_(std::move(file)) {
    for (const MmprojFamily* family : families) parts_.push_back({family});
  }
  // Reads keys and tensors. Errors: see open_mmproj().
  Status read();

  Naming naming() const override { return Naming::kHuggingFace; }
  const std::filesystem::path& path() const override { return file_->path(); }
  const json& config() const override { return config_; }
  const json& generation_config() const override { return nothing_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::optional<std::string> side_file(std::string_view name) const override {
    if (name == "preprocessor_config.json") return images_.dump();
    if (name == "processor_config.json" && !processor_.is_null()) return processor_.dump();
    return {};
  }
  std::vector<SourceFile> files() const override { return file_->files(); }
  void drop(const TensorInfo& tensor) const override {
    if (const TensorInfo* own = original(tensor)) file_->drop(*own);
  }

 private:
  // The tower of a sense.
  struct Part {
    const MmprojFamily* family = nullptr;
    int n_heads = 1;
    bool swapped = false;  // ffn_up and ffn_down have each other's name
  };
  const TensorInfo* find_own(std::string_view name) const {
    return file_->WeightSource::find(name);
  }
  // The file's tensor with the same bytes; null: they were made here.
  const TensorInfo* original(const TensorInfo& tensor) const {
    const auto same = [&](const TensorInfo& own) {
      return own.bytes.data() == tensor.bytes.data();
    };
    const auto own = std::ranges::find_if(file_->tensors(), same);
    return own == file_->tensors().end() ? nullptr : &*own;
  }
  tl::unexpected<Error> corrupt(const TensorInfo& tensor, std::string_view expected) const {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected {}", path().string(),
                  tensor.name, expected);
  }
  std::optional<std::string> name_of(std::string_view own, const Part& part) const;
  std::string layer_name(std::string_view own, const Part& part) const;
  Status read_part(Part& part);
  Status add(const TensorInfo& own);
  Status relay(const TensorInfo& own, const Part& part, TensorInfo& tensor);
  std::span<std::byte> made(TensorInfo& tensor, size_t n) {
    std::vector<std::byte>& bytes = made_.emplace_back(n);
    tensor.bytes = bytes;
    return bytes;
  }
  Status join_frames(const TensorInfo& own, TensorInfo& tensor);
  Status put_colours_last(const TensorInfo& own, TensorInfo& tensor);
  Status unpair_rows(const TensorInfo& own, int n_heads, TensorInfo& tensor);
  Status subtract_one(const TensorInfo& own, TensorInfo& tensor);

  const std::unique_ptr<WeightSource> file_;
  std::vector<Part> parts_;
  json config_ = json::object(), images_ = json::object(), processor_;
  const json nothing_ = json::object();
  std::vector<TensorInfo> tensors_;
  std::deque<std::vector<std::byte>> made_;
  std::vector<int> deep_;  // layers with DeepStack, ascending
};

// Returns the part of a name before ".weight" or ".bias", and the rest.
std::pair<std::string_view, std::string_view> stem_and_end(std::string_view name) {
  for (const std::string_view end : {".weight", ".bias"})
    if (name.ends_with(end)) return {name.substr(0, name.size() - end.size()), end};
  return {name, ""};
}

std::optional<std::string> renamed_tensor(std::span<const MmprojName> names, std::string_view own) {
  const auto [stem, end] = stem_and_end(own);
  const auto found = std::ranges::find(names, stem, &MmprojName::gguf);
  if (found == names.end()) return {};
  return std::string(found->hf) + std::string(found->whole ? "" : end);
}

// Of "v.blk.3.ln1.weight" behind "v.blk.": 3 and "ln1.weight".
std::optional<std::pair<int, std::string_view>> numbered(std::string_view name,
                                                         std::string_view before) {
  if (!name.starts_with(before)) return {};
  name.remove_prefix(before.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot > 4 || dot == std::string_view::npos) return {};
  int number = 0;
  for (const char c : name.substr(0, dot)) {
    if (c < '0' || c > '9') return {};
    number = number * 10 + (c - '0');
  }
  return std::pair(number, name.substr(dot + 1));
}

// What layers' tensors begin with.
std::string_view layers_of(const MmprojFamily& family) {
  return family.hears ? "a.blk." : "v.blk.";
}

bool is_of_sound(std::string_view own) { return own.starts_with("a.") || own.starts_with("mm.a."); }

std::string MmprojSource::layer_name(std::string_view own, const Part& part) const {
  const auto layer = numbered(own, layers_of(*part.family));
  if (!layer) return "";
  std::string place(layer->second);
  if (part.swapped && place.starts_with("ffn_up.")) {
    place.replace(0, 6, "ffn_down");
  } else if (part.swapped && place.starts_with("ffn_down.")) {
    place.replace(0, 8, "ffn_up");
  }
  const auto name = renamed_tensor(part.family->in_layer, place);
  std::string prefix(part.family->layers);
  prefix.replace(prefix.find("{}"), 2, std::to_string(layer->first));
  return name ? prefix + *name : "";
}

// Returns the directory's name, "" of a tensor that is left out; nothing: it has no such tensor.
std::optional<std::string> MmprojSource::name_of(std::string_view own, const Part& part) const {
  if (const auto deep = numbered(own, "v.deepstack.")) {
    const auto place = std::ranges::find(deep_, deep->first);
    static const std::vector<MmprojName> kNames = {
        {"norm", "norm"}, {"fc1", "linear_fc1"}, {"fc2", "linear_fc2"}};
    const auto name = renamed_tensor(kNames, deep->second);
    if (place == deep_.end() || !name) return {};
    return fmt::format("visual.deepstack_merger_list.{}.{}", place - deep_.begin(), *name);
  }
  if (std::string name = layer_name(own, part); !name.empty()) return name;
  return renamed_tensor(part.family->others, own);
}

Status MmprojSource::read_part(Part& part) {
  const std::string where = path().string();
  const MmprojFamily& family = *part.family;
  ConfigReader tower(file_->config(), Naming::kGguf, family.hears ? "clip.audio" : "clip.vision",
                     where),
      keys(file_->config(), Naming::kGguf, "clip", where);
  tower.set_source(file_.get());
  MmprojFiles files{tower, keys};
  files.dim = tower.integer({"embedding_length", ""}, 1, 1 << 16);
  files.n_heads = part.n_heads = tower.integer({"attention.head_count", ""}, 1, 1 << 10);
  files.n_layers = tower.integer({"block_count", ""}, 1, 1 << 10);
  if (!family.hears) files.patch = tower.integer({"patch_size", ""}, 1, 1 << 10);
  if (!family.hears) files.side = tower.integer({"image_size", ""}, 1, 1 << 16);
  files.eps =
      tower.number({"attention.layer_norm_epsilon", ""}, 0, 1, family.hears ? 1e-5f : 1e-6f);
  files.text_dim = tower.integer({"projection_dim", ""}, 0, 1 << 20, 0);
  const std::string up_name = std::string(layers_of(family)) + "0.ffn_up.weight";
  const TensorInfo* up = find_own(up_name);
  if (up == nullptr || up->shape.size() != 2)
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {} is missing", where, up_name);
  part.swapped = up->shape[1] != files.dim && up->shape[0] == files.dim;
  files.ffn_dim =
      static_cast<int>(std::clamp<int64_t>(up->shape[part.swapped ? 1 : 0], 1, 1 << 20));
  files.images = json::object();
  for (const char* name : {"image_mean", "image_std"}) {
    const std::vector<float> values = tower.numbers({name, ""}, 3);
    if (!values.empty()) files.images[name] = values;
  }
  if (files.side < files.patch)
    return errorf(ErrorCode::kCorruptFile, "{}: image_size: expected at least {} pixels", where,
                  files.patch);
  family.make(files);
  RETURN_IF_ERROR(tower.status());
  RETURN_IF_ERROR(keys.status());
  config_.update(files.config), images_.update(files.images);
  if (!files.processor.is_null()) processor_ = std::move(files.processor);
  return {};
}

Status MmprojSource::read() {
  for (Part& part : parts_) RETURN_IF_ERROR(read_part(part));
  const auto seen = config_.find("vision_config");
  if (seen != config_.end() && seen->contains("deepstack_visual_indexes"))
    deep_ = (*seen)["deepstack_visual_indexes"].get<std::vector<int>>();
  for (const TensorInfo& tensor : file_->tensors()) RETURN_IF_ERROR(add(tensor));
  return {};
}

Status MmprojSource::add(const TensorInfo& own) {
  const bool heard = is_of_sound(own.name);
  const auto part =
      std::ranges::find_if(parts_, [&](const Part& one) { return one.family->hears == heard; });
  if (part == parts_.end()) {
    if (heard) return {};  // of a tower that is not known
    return errorf(ErrorCode::kUnsupported, "{}: tensor {} is not known in towers of {}",
                  path().string(), own.name, parts_[0].family->projector);
  }
  const MmprojFamily& family = *part->family;
  if (own.name == "v.patch_embd.weight.1" && family.layouts.frames_apart) return {};
  TensorInfo tensor = own;
  const std::optional<std::string> name = name_of(own.name, *part);
  if (!name)
    return errorf(ErrorCode::kUnsupported, "{}: tensor {} is not known in towers of {}",
                  path().string(), own.name, family.projector);
  if (name->empty()) return {};
  tensor.name = *name;
  RETURN_IF_ERROR(relay(own, *part, tensor));
  tensors_.push_back(std::move(tensor));
  return {};
}

// Brings a tensor into the directory's layout.
Status MmprojSource::relay(const TensorInfo& own, const Part& part, TensorInfo& tensor) {
  const MmprojLayouts& layouts = part.family->layouts;
  if (part.family->hears) {  // biases of convolutions are columns
    if (own.name.ends_with(".bias")) tensor.shape = {own.n_elements()};
    return {};
  }
  const bool is_patches = own.name == "v.patch_embd.weight";
  if (is_patches && layouts.frames_apart) return join_frames(own, tensor);
  if (is_patches && layouts.colours_first) return put_colours_last(own, tensor);
  if (own.name == "mm.soft_emb_norm.weight" && layouts.norm_plus_one)
    return subtract_one(own, tensor);
  const auto layer = numbered(own.name, "v.blk.");
  if (layouts.rotated_rows && layer &&
      (layer->second.starts_with("attn_q.") || layer->second.starts_with("attn_k.")))
    return unpair_rows(own, part.n_heads, tensor);
  return {};
}

// Two of [out, colour, y, x] become [out, colour, frame, y, x].
Status MmprojSource::join_frames(const TensorInfo& own, TensorInfo& tensor) {
  const TensorInfo* second = find_own("v.patch_embd.weight.1");
  if (own.shape.size() != 4 || second == nullptr || second->shape != own.shape ||
      second->type != own.type || own.bytes.size() % static_cast<size_t>(own.n_elements()) != 0)
    return corrupt(own, "two tensors of equal shape, one for each frame");
  const size_t n = own.bytes.size() / static_cast<size_t>(own.shape[0] * own.shape[1]);
  std::byte* out = made(tensor, 2 * own.bytes.size()).data();
  for (size_t at = 0; at < own.bytes.size(); at += n) {
    for (const TensorInfo* frame : {&own, second}) {
      std::memcpy(out, frame->bytes.data() + at, n);
      out += n;
    }
  }
  tensor.shape.insert(tensor.shape.begin() + 2, 2);
  return {};
}

// [out, colour, y, x] becomes [out, y * x * colour].
Status MmprojSource::put_colours_last(const TensorInfo& own, TensorInfo& tensor) {
  const auto elements = static_cast<size_t>(own.n_elements());
  if (own.shape.size() != 4 || elements == 0 || own.bytes.size() % elements != 0)
    return corrupt(own, "four axes of numbers that are not quantized");
  const size_t size = own.bytes.size() / elements, colours = static_cast<size_t>(own.shape[1]),
               cells = static_cast<size_t>(own.shape[2] * own.shape[3]);
  std::byte* out = made(tensor, own.bytes.size()).data();
  for (int64_t row = 0; row < own.shape[0]; ++row) {
    const std::byte* in = own.bytes.data() + static_cast<size_t>(row) * colours * cells * size;
    for (size_t cell = 0; cell < cells; ++cell) {
      for (size_t colour = 0; colour < colours; ++colour, out += size)
        std::memcpy(out, in + (colour * cells + cell) * size, size);
    }
  }
  tensor.shape = {own.shape[0], own.n_elements() / own.shape[0]};
  return {};
}

// Rows of a head in adjacent pairs become the first and the second halves of the pairs.
Status MmprojSource::unpair_rows(const TensorInfo& own, int n_heads, TensorInfo& tensor) {
  const int64_t rows = own.shape.empty() ? 0 : own.shape[0];
  if (rows % (2 * n_heads) != 0 ||
      own.bytes.size() % static_cast<size_t>(std::max<int64_t>(rows, 1)) != 0)
    return corrupt(own, "an even number of rows in each head");
  const size_t half = static_cast<size_t>(rows / n_heads / 2),
               size = own.bytes.size() / static_cast<size_t>(rows);
  std::byte* out = made(tensor, own.bytes.size()).data();
  for (size_t head = 0; head < static_cast<size_t>(n_heads); ++head) {
    for (size_t part = 0; part < 2; ++part) {
      for (size_t i = 0; i < half; ++i, out += size)
        std::memcpy(out, own.bytes.data() + (head * 2 * half + 2 * i + part) * size, size);
    }
  }
  return {};
}

Status MmprojSource::subtract_one(const TensorInfo& own, TensorInfo& tensor) {
  ASSIGN_OR_RETURN(std::vector<float> values, read_values(*file_, own.name, own.shape));
  for (float& value : values) value -= 1;
  tensor.type = QuantType::kF32;
  std::memcpy(made(tensor, values.size() * sizeof(float)).data(), values.data(),
              values.size() * sizeof(float));
  return {};
}

std::string string_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_mmproj(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(auto file, open_weights(path));
  const std::string arch = file->naming() == Naming::kGguf
                               ? string_at(file->config(), "general.architecture")
                               : "a directory";
  if (arch != "clip")
    return errorf(ErrorCode::kUnsupported,
                  "{}: expected an mmproj file (general.architecture clip), got {}", path.string(),
                  arch);
  const std::string usual = string_at(file->config(), "clip.projector_type");
  const auto type_of = [&](bool hears) {
    const std::string own = string_at(
        file->config(), hears ? "clip.audio.projector_type" : "clip.vision.projector_type");
    return own.empty() ? usual : own;
  };
  std::vector<std::string_view> known;
  std::vector<const MmprojFamily*> found;
  for (const MmprojFamily& family : mmproj_families()) {
    if (std::ranges::find(known, family.projector) == known.end())
      known.push_back(family.projector);
    if (family.projector == type_of(family.hears)) found.push_back(&family);
  }
  // A type of both senses: those whose tensors the file has.
  const auto is_absent = [&](const MmprojFamily* family) {
    return std::ranges::none_of(file->tensors(), [&](const TensorInfo& tensor) {
      return tensor.name.starts_with(family->hears ? "a." : "v.");
    });
  };
  if (found.size() > 1 && !std::ranges::all_of(found, is_absent)) std::erase_if(found, is_absent);
  if (found.empty()) {
    return errorf(ErrorCode::kUnsupported, "{}: clip.projector_type: expected one of {}, got '{}'",
                  path.string(), fmt::join(known, ", "), type_of(false).substr(0, 80));
  }
  auto source = std::make_unique<MmprojSource>(std::move(file), found);
  RETURN_IF_ERROR(source->read());
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace penstock
