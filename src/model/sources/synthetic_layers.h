// Random linear layers in the forms of other quantizers, to measure speed: int8, int4, nf4, w8a8,
// ...
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/prequantized.h"
#include "model/sources/ftype.h"

namespace penstock {

// One way to store a linear layer.
struct LayerCoding {
  std::string_view name;
  int bits;
  int group_size;  // 0: all of a row
  bool zeros;
  // the encoding of the vocabulary projection beside it
  QuantType output;
  ActivationCoding::Kind activations = ActivationCoding::Kind::kNone;
  enum class Levels : uint8_t { kLinear, kTernary, kNf4, kF8 } levels = Levels::kLinear;
};

// THE list.
std::span<const LayerCoding> layer_codings();
const LayerCoding* find_layer_coding(std::string_view name);  // null: no coding has that name

// Layers with one coding, which share their codes.
class SyntheticLayers final : public Prequantized {
 public:
  explicit SyntheticLayers(const LayerCoding& coding) : coding_(coding) {}

  void add(std::string name, int rows, int cols);
  // Makes the codes. REQUIRES: called after the last add().
  void fill();

  std::string_view method() const override { return coding_.name; }
  Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const override;

 private:
  struct Size {
    int rows, cols;
  };
  int group_size(int cols) const;

  LayerCoding coding_;
  std::map<std::string, Size, std::less<>> layers_;
  std::vector<uint8_t> codes_;
};

}  // namespace penstock
