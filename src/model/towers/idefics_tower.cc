// Idefics3, SmolVLM: SigLIP with positions by fractions of the picture; units are joined and
// projected by one linear layer.
#include "model/towers/families.h"

namespace penstock {

namespace {

void configure_idefics3_tower(TowerReader& reader, TowerConfig& config) {
  std::string post_norm;
  read_siglip(reader, config, post_norm);
  config.positions.kind = TowerPositions::Kind::kFractions;
  // The processor's sizes, and how the tower was trained.
  for (const char* key : {"size", "max_image_size", "use_base_siglip"})
    reader.vision().has({"", key});
  config.unit = reader.whole().integer({"", "scale_factor"}, 1, 16, 2);
  const std::string at =
      reader.prefix({"model.connector.", "connector."}, "modality_projection.proj.weight");
  config.roots.push_back(at);
  const std::string matrix = at + "modality_projection.proj";
  config.text_dim = reader.dimension(matrix + ".weight", 0);
  config.projector = {norm_stage(post_norm, config.layers.norm), join_stage(),
                      linear_stage(matrix, config.text_dim)};
}

}  // namespace

extern const TowerFamily kIdefics3Tower = {
    .name = "idefics3",
    .title = "Idefics3, SmolVLM",
    .hf_types = {"idefics3", "smolvlm"},
    .configure = configure_idefics3_tower,
    .hf_defaults = R"({"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 16, "image_size": 224, "patch_size": 32, "layer_norm_eps": 1e-6})",
};

}  // namespace penstock
