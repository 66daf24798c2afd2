#include "cli/quality/recoded_source.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/text_hash.h"
#include "model/sources/ftype.h"

namespace penstock {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

class RecodedSource final : public WeightSource {
 public:
  RecodedSource(std::unique_ptr<WeightSource> inner, const FileType& ftype)
      : inner_(std::move(inner)) {
    const bool tied =
        inner_->find("output.weight") == nullptr && inner_->find("lm_head.weight") == nullptr;
    for (const TensorInfo& tensor : inner_->tensors())
      tensors_.push_back(recoded(tensor, ftype, tied));
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  }

  Naming naming() const override { return inner_->naming(); }
  const std::filesystem::path& path() const override { return inner_->path(); }
  const nlohmann::json& config() const override { return inner_->config(); }
  const nlohmann::json& generation_config() const override { return inner_->generation_config(); }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }
  std::optional<std::string> side_file(std::string_view name) const override {
    return inner_->side_file(name);
  }
  void drop(const TensorInfo&) const override {}

 private:
  TensorInfo recoded(const TensorInfo& tensor, const FileType& ftype, bool tied) {
    const int64_t cols = tensor.shape.empty() ? 0 : tensor.shape.back();
    if (tensor.shape.size() < 2 || tensor.name.find("norm") != std::string::npos) return tensor;
    const bool table = is_one_of(tensor.name, {"token_embd.weight", "model.embed_tokens.weight"});
    const bool output = is_one_of(tensor.name, {"output.weight", "lm_head.weight"});
    const WeightRole role = table    ? WeightRole::kEmbedding
                            : output ? WeightRole::kOutput
                                     : WeightRole::kGateUp;
    const QuantType type =
        choose_type(ftype, {.n_layers = 1, .tied = tied}, role, 0, static_cast<int>(cols));
    const auto is_16_bit = [](QuantType t) {
      return t == QuantType::kF16 || t == QuantType::kBF16;
    };
    if (type == tensor.type || (is_16_bit(type) && is_16_bit(tensor.type))) return tensor;
    const size_t from = quant_bytes(tensor.type, cols), to = quant_bytes(type, cols);
    const int64_t rows = tensor.n_elements() / cols;
    std::vector<std::byte>& bytes = storage_.emplace_back(static_cast<size_t>(rows) * to);
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      dequantize_row(tensor.type, tensor.bytes.data() + static_cast<size_t>(r) * from, row.data(),
                     cols);
      quantize_row(type, row.data(), bytes.data() + static_cast<size_t>(r) * to, cols);
    }
    inner_->drop(tensor);
    return {tensor.name, type, tensor.shape, bytes};
  }

  std::unique_ptr<WeightSource> inner_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<TensorInfo> tensors_;
  ViewMap<size_t> index_;  // keys refer to names in tensors_
};

}  // namespace

Result<std::unique_ptr<WeightSource>> recode(std::unique_ptr<WeightSource> source,
                                             std::string_view type) {
  ASSIGN_OR_RETURN(const FileType ftype, find_file_type(type));
  return std::make_unique<RecodedSource>(std::move(source), ftype);
}

}  // namespace penstock
