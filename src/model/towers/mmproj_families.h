// How each family's mmproj files differ from its Hugging Face directory.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/config_reader.h"

namespace penstock {

// A tensor's name in both forms, without ".weight" and ".bias"; in a layer: behind the layer's prefix.
struct MmprojName {
  std::string_view gguf, hf;
  bool whole = false;  // hf is the whole name: nothing follows it. "": the tensor is left out
};

// What the file holds in another order than the directory.
struct MmprojLayouts {
  bool frames_apart = false;   // the patch convolution is a tensor for each of two frames
  bool rotated_rows = false;   // rows of q and k in adjacent pairs, for interleaved rotation
  bool colours_first = false;  // a patch is [colour, y, x], not [y, x, colour]
  bool norm_plus_one = false;  // mm.soft_emb_norm.weight is w + 1
};

// Makes the directory's files of an mmproj file's keys.
struct MmprojFiles {
  ConfigReader& tower;  // keys clip.vision.*, or clip.audio.*
  ConfigReader& keys;   // keys clip.*
  // patch, side: of towers that see
  int dim = 0, n_heads = 0, n_layers = 0, ffn_dim = 0, patch = 0, side = 0;
  float eps = 0;
  int text_dim = 0;
  // images: preprocessor_config.json, of sounds too
  nlohmann::json config, images, processor;

  // The names of SigLIP's, CLIP's, Pixtral's and InternVL's configurations.
  nlohmann::json usual_config() const;
  std::string activation(const char* gelu) const;  // gelu: what clip.use_gelu stands for
  int scale(int usual) const;                      // clip.vision.projector.scale_factor
  nlohmann::json square() const { return {{"height", side}, {"width", side}}; }
};

struct MmprojFamily {
  std::string_view projector;  // clip.projector_type
  std::string_view layers;     // prefix of the directory's layers; {} is their index
  std::vector<MmprojName> in_layer, others;
  MmprojLayouts layouts;
  void (*make)(MmprojFiles& files);
  bool hears = false;
};

// Those that hear; in mmproj_ears.cc.
std::vector<MmprojFamily> mmproj_ears();
// The one list. A projector that sees and hears is in it twice.
std::span<const MmprojFamily> mmproj_families();

}  // namespace penstock
