#include "quantize/plan/imatrix.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"

namespace penstock {

namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

Status bad(const std::filesystem::path& path, std::string_view tensor, std::string_view expected) {
  return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected {}", path.string(), tensor,
                expected);
}

}  // namespace

const std::vector<float>* ImportanceMatrix::find(const std::string& tensor, int expert) const {
  const auto found = rows_.find({tensor, std::max(expert, 0)});
  return found == rows_.end() ? nullptr : &found->second.first;
}

void ImportanceMatrix::add(const std::string& tensor, int expert, std::vector<float> mean_squares,
                           double count) {
  rows_[{tensor, std::max(expert, 0)}] = {std::move(mean_squares), count};
}

Result<ImportanceMatrix> read_imatrix(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const auto source, open_weights(path));
  const nlohmann::json& metadata = source->config();
  if (source->naming() != Naming::kGguf ||
      metadata.value("general.type", nlohmann::json()) != "imatrix")
    return errorf(ErrorCode::kCorruptFile,
                  "{}: expected an importance matrix (GGUF, general.type imatrix)", path.string());
  ImportanceMatrix matrix;
  for (const TensorInfo& sums : source->tensors()) {
    if (!sums.name.ends_with(kSums)) continue;
    const std::string name = sums.name.substr(0, sums.name.size() - kSums.size());
    const TensorInfo* counts = source->find(name + std::string(kCounts));
    const int64_t cols = sums.shape.back(), n_experts = cols > 0 ? sums.n_elements() / cols : 0;
    if (sums.type != QuantType::kF32 || counts == nullptr || counts->type != QuantType::kF32 ||
        counts->n_elements() != n_experts || n_experts < 1)
      return tl::unexpected(bad(path, sums.name, "f32 sums and a count for each expert").error());
    std::vector<float> values(static_cast<size_t>(sums.n_elements())),
        seen(static_cast<size_t>(n_experts));
    dequantize_row(QuantType::kF32, sums.bytes.data(), values.data(), sums.n_elements());
    dequantize_row(QuantType::kF32, counts->bytes.data(), seen.data(), n_experts);
    for (int64_t e = 0; e < n_experts; ++e) {
      std::vector<float> row(values.begin() + e * cols, values.begin() + (e + 1) * cols);
      const float count = seen[static_cast<size_t>(e)];
      for (float& value : row) {
        // an expert that never ran: all inputs count alike
        value = count > 0 ? value / count : 1.0f;
        if (!(value >= 0) || !std::isfinite(value))
          return tl::unexpected(bad(path, sums.name, "finite sums of squares").error());
      }
      matrix.add(name, static_cast<int>(e), std::move(row), count);
    }
  }
  return matrix;
}

Status write_imatrix(const ImportanceMatrix& matrix, const std::filesystem::path& path) {
  GgufWriter writer;
  writer.set("general.type", "imatrix");
  const std::string dataset[] = {matrix.dataset};
  writer.set_array("imatrix.datasets", std::span<const std::string>(dataset));
  writer.set("imatrix.chunk_count", static_cast<uint32_t>(matrix.n_chunks));
  writer.set("imatrix.chunk_size", static_cast<uint32_t>(matrix.chunk_size));
  std::map<std::string, std::vector<const std::pair<std::vector<float>, double>*>> tensors;
  for (const auto& [key, value] : matrix.rows()) tensors[key.first].push_back(&value);
  for (const auto& [name, experts] : tensors) {
    const auto n = static_cast<int64_t>(experts.size()),
               cols = static_cast<int64_t>(experts[0]->first.size());
    writer.add_tensor(name + std::string(kSums), QuantType::kF32, {n, cols});
    writer.add_tensor(name + std::string(kCounts), QuantType::kF32, {n, 1});
  }
  ASSIGN_OR_RETURN(TensorFile file, writer.create(path));
  for (const auto& [name, experts] : tensors) {
    for (const auto* expert : experts) {
      std::vector<float> sums = expert->first;
      for (float& value : sums) value *= static_cast<float>(expert->second);
      const auto count = static_cast<float>(expert->second);
      RETURN_IF_ERROR(file.write(name + std::string(kSums), std::as_bytes(std::span(sums))));
      RETURN_IF_ERROR(file.write(name + std::string(kCounts), std::as_bytes(std::span(&count, 1))));
    }
  }
  return file.finish();
}

}  // namespace penstock
