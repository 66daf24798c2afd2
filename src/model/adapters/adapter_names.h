// What the names in an adapter's file stand for, of either format.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/blocks/weights.h"

namespace penstock {

// A tensor's name from where its layer's number is on: what stands before differs between a checkpoint and what was made of
// a part of it.
std::string_view within_layers(std::string_view name, std::string_view layer_pattern);

// A name taken apart: the layer's number, and what follows.
struct InLayer {
  int layer = 0;
  std::string_view tail;
};
std::optional<InLayer> in_layer(std::string_view name, const NameTable& names);

// A matrix of a layer, by the name that blocks have for it.
struct RoleOfLayer {
  int layer = 0;
  const TensorName* name = nullptr;
  auto operator<=>(const RoleOfLayer&) const = default;
};

// What both formats have a name for: the matrices that the blocks of each layer visit, but for those whose rows or columns lie otherwise in one
// of the formats. Queries and keys that are rotated are among them.
class LayerRoles {
 public:
  LayerRoles(const ModelConfig& config, const NameTable& own, const NameTable& other);
  std::optional<RoleOfLayer> of(std::string_view name, const NameTable& names) const;

 private:
  std::vector<std::vector<const TensorName*>> layers_;
};

// Weights of experts.
struct ExpertRole {
  int layer = 0;
  ExpertProjection projection = ExpertProjection::kNone;
  bool both = false;  // gate and up in one
  int expert = -1;    // -1: of all
};
// Whichever of the ways to have them the model's own file has.
std::optional<ExpertRole> expert_role_of(std::string_view name, Naming naming, const NameTable& names);

}  // namespace penstock
