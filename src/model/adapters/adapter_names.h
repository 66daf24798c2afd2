// Meaning of the tensor names in an adapter's file, in either format.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/blocks/weights.h"

namespace penstock {

// Returns the part of a tensor's name from its layer's index on: prefixes differ between a
// checkpoint and models made from a part of it.
std::string_view within_layers(std::string_view name, std::string_view layer_pattern);

// A parsed name: the layer's index, and what follows it.
struct InLayer {
  int layer = 0;
  std::string_view tail;
};
std::optional<InLayer> in_layer(std::string_view name, const NameTable& names);

// A matrix of a layer, identified by its TensorName.
struct RoleOfLayer {
  int layer = 0;
  const TensorName* name = nullptr;
  auto operator<=>(const RoleOfLayer&) const = default;
};

// Matrices that have a name in both formats: those that the blocks of each layer visit, without
// those whose rows or columns are ordered differently in one of the formats. Rotated queries and
// keys are included.
class LayerRoles {
 public:
  LayerRoles(const ModelConfig& config, const NameTable& own, const NameTable& other);
  std::optional<RoleOfLayer> of(std::string_view name, const NameTable& names) const;

 private:
  std::vector<std::vector<const TensorName*>> layers_;
};

// A matrix of an expert.
struct ExpertRole {
  int layer = 0;
  ExpertProjection projection = ExpertProjection::kNone;
  bool both = false;  // gate and up are fused
  int expert = -1;    // -1: of all
};
// Returns the role for either way in which files store experts, fused or one by one.
std::optional<ExpertRole> expert_role_of(std::string_view name, Naming naming,
                                         const NameTable& names);

}  // namespace penstock
