#include "model/sources/four_bits.h"

#include <nlohmann/json.hpp>

#include "base/text_hash.h"

namespace penstock {
namespace {

constexpr QuantType kType = QuantType::kQ4_0;

bool is_rounded(const TensorInfo& tensor) {
  if (tensor.shape.size() < 2 || tensor.name.find("norm") != std::string::npos) return false;
  const int64_t cols = tensor.shape.back();
  return cols % quant_info(kType).block_size == 0 &&
         cols % quant_info(tensor.type).block_size == 0 &&
         quant_bytes(tensor.type, cols) > quant_bytes(kType, cols) * 5 / 4;
}

class FourBitSource final : public WeightSource {
 public:
  explicit FourBitSource(const WeightSource& inner) : inner_(inner) {}

  Naming naming() const override { return inner_.naming(); }
  const std::filesystem::path& path() const override { return inner_.path(); }
  const nlohmann::json& config() const override { return inner_.config(); }
  const nlohmann::json& generation_config() const override { return inner_.generation_config(); }
  std::span<const TensorInfo> tensors() const override { return inner_.tensors(); }
  const TensorInfo* find(std::string_view name) const override {
    const TensorInfo* tensor = inner_.find(name);
    if (tensor == nullptr || !is_rounded(*tensor)) return tensor;
    const auto [place, is_new] = rounded_.try_emplace(tensor->name);
    if (is_new) round(*tensor, place->second);
    return &place->second.info;
  }
  std::optional<std::string> side_file(std::string_view name) const override {
    return inner_.side_file(name);
  }
  const Prequantized* grouped_layers() const override { return inner_.grouped_layers(); }
  void drop(const TensorInfo&) const override {}

 private:
  struct Rounded {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };

  static void round(const TensorInfo& tensor, Rounded& out) {
    const int64_t cols = tensor.shape.back(), rows = tensor.n_elements() / cols;
    const size_t from = quant_bytes(tensor.type, cols), to = quant_bytes(kType, cols);
    out.bytes.resize(static_cast<size_t>(rows) * to);
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      dequantize_row(tensor.type, tensor.bytes.data() + static_cast<size_t>(r) * from, row.data(),
                     cols);
      quantize_row(kType, row.data(), out.bytes.data() + static_cast<size_t>(r) * to, cols);
    }
    out.info = {tensor.name, kType, tensor.shape, out.bytes};
  }

  const WeightSource& inner_;
  mutable TextMap<Rounded> rounded_;
};

}  // namespace

std::unique_ptr<WeightSource> make_four_bit_source(const WeightSource& inner) {
  constexpr int64_t kMostElements = 200'000'000;
  int64_t n = 0;
  for (const TensorInfo& tensor : inner.tensors())
    n += is_rounded(tensor) ? tensor.n_elements() : 0;
  if (n == 0 || n > kMostElements) return nullptr;
  return std::make_unique<FourBitSource>(inner);
}

}  // namespace penstock
