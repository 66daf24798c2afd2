// Descriptions of towers: their names in files and how their configurations are read.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/config_reader.h"
#include "model/towers/tower_config.h"

namespace penstock {

// Reads the configuration of one tower. The first error is kept.
class TowerReader {
 public:
  // REQUIRES: source outlives the reader.
  TowerReader(const WeightSource& source, std::string_view hf_defaults,
              TowerSense sense = TowerSense::kSight);

  const WeightSource& source() const { return source_; }
  // vision_config of config.json.
  ConfigReader& vision() { return vision_; }
  // The same of a tower that hears: audio_config, or all of config.json where there is none (Whisper).
  ConfigReader& hearing() { return vision_; }
  // config.json, or the part of it that reads (multimodal_part()).
  ConfigReader& whole() { return whole_; }
  // model_type of vision_config.
  std::string vision_type();
  // Returns the first of the prefixes with which the file has a tensor `prefix + name`; records an
  // error if none fits.
  std::string prefix(std::initializer_list<std::string_view> prefixes, std::string_view name);
  // Returns one dimension of a tensor's shape (0 = outermost); records an error without it.
  int dimension(const std::string& name, size_t axis);
  bool has_tensor(std::string_view name) const {
    return source_.WeightSource::find(name) != nullptr;
  }
  // Returns a size that may be written as a number or as two equal ones ([s, s]).
  int side(Key key, std::optional<int> fallback = {});
  ActivationFunction activation(Key key, std::string fallback);
  ActivationFunction activation(ConfigReader& from, Key key, std::string fallback);
  void fail(ErrorCode code, std::string message) { vision_.fail(code, std::move(message)); }
  // Takes over the errors of a reader of another object, and refuses keys of it that nothing read.
  void merge(const ConfigReader& other, const nlohmann::json& object);
  // Errors of all readers, and keys of the tower's object that nothing read.
  Status status() const;

 private:
  const WeightSource& source_;
  nlohmann::json object_;
  ConfigReader whole_, vision_;
  bool has_section_;
};

// One family of towers. It is defined at the end of its file and listed in towers.cc.
struct TowerFamily {
  std::string_view name;
  std::string_view title;                  // of its models in documentation
  std::vector<std::string_view> hf_types;  // model_type of config.json
  void (*configure)(TowerReader& reader, TowerConfig& config);
  // Defaults of transformers for keys that vision_config (audio_config) lacks: a JSON object, or "".
  std::string_view hf_defaults = "";
  TowerSense sense = TowerSense::kSight;
};

std::span<const TowerFamily* const> tower_families();

// --- Shared by configure functions

// Sets sizes and switches that all towers have: pre-norm layers, attention to all patches, as many
// KV heads as heads. Reads nothing.
void set_tower_layers(TowerConfig& config, int n_layers, int dim, int n_heads, int ffn_dim);
void set_tower_activation(TowerConfig& config, ActivationFunction f, bool gated);
ActivationFunction quick_gelu();  // x * sigmoid(1.702 x)
// Reads SigLIP's layers, patches and positions; in siglip.cc. post_norm: stem of the norm after the
// layers.
void read_siglip(TowerReader& reader, TowerConfig& config, std::string& post_norm);
// Reads Pixtral's tower; in pixtral_towers.cc.
void read_pixtral(TowerReader& reader, TowerConfig& config);
// Frequencies of rows, then the same of columns: theta^(-4 i / head_dim); in qwen_towers.cc, as the
// two that follow. REQUIRES: head_dim is a multiple of 4.
TowerRope halves_rope(int head_dim, float theta);
// Reads rope_parameters of vision_config, or rope_theta.
float read_axial_theta(TowerReader& reader, float usual = 10000.0f);
void expect_colours(TowerReader& reader, std::string_view key);
// Leaves out the layers behind vision_feature_layer (negative: from the end, -1 = all layers); in
// llava_towers.cc, as the two that follow. usual: its default.
void cut_to_feature_layer(TowerReader& reader, TowerConfig& config, int usual);
ActivationFunction read_projector_activation(TowerReader& reader);
// Adds multi_modal_projector.linear_1, an activation and linear_2, and sets text_dim.
void add_two_linear(TowerReader& reader, TowerConfig& config);

inline ProjectorStage norm_stage(std::string name, NormConfig norm) {
  return {.kind = ProjectorStage::Kind::kNorm, .name = std::move(name), .norm = norm};
}
inline ProjectorStage linear_stage(std::string name, int outputs) {
  return {.kind = ProjectorStage::Kind::kLinear, .name = std::move(name), .outputs = outputs};
}
inline ProjectorStage activation_stage(ActivationFunction f) {
  return {.kind = ProjectorStage::Kind::kActivation, .activation = f};
}
inline ProjectorStage join_stage() { return {.kind = ProjectorStage::Kind::kJoin}; }
inline ProjectorStage mean_stage() { return {.kind = ProjectorStage::Kind::kMean}; }

}  // namespace penstock
