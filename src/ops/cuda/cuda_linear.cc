// Products with weights, terms of adapters, and embedding rows.
#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/moe.h"
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/packed_weight.h"

namespace penstock::cuda {
namespace {

const CudaWeight& cuda_weight(const Weight& weight) {
  return static_cast<const CudaWeight&>(weight);
}

template <int TokenTiles>
Grid mma_grid(const Product& p) {
  using K = MmaProduct<TokenTiles>;
  return {(p.w.rows + 15) / 16, (p.x.rows + K::kTokens - 1) / K::kTokens, K::kSharedBytes};
}

}  // namespace

Result<std::unique_ptr<Weight>> CudaOps::pack(const QuantizedMatrix& matrix) {
  ASSIGN_OR_RETURN(const WeightSource source, source_of(matrix));
  return packer_.pack(source);
}

Result<std::unique_ptr<Weight>> CudaOps::pack_grouped(const GroupedMatrix& matrix, int first_row,
                                                      int n_rows) {
  ASSIGN_OR_RETURN(const WeightSource source, source_of(matrix, first_row, n_rows));
  return packer_.pack(source);
}

void CudaOps::embed_tokens(const Weight& table, float scale, Tensor out) {
  launch(EmbedRows{cuda_weight(table).on_device(), batch(), EmbedRows::Ids::kTokens, 0, false,
                   false, scale, rows_of(out)},
         a_thread_per_element<EmbedRows>(out));
}

void CudaOps::embed_share(const Weight& table, int first, float scale, Tensor out) {
  launch(EmbedRows{cuda_weight(table).on_device(), batch(), EmbedRows::Ids::kTokens, first, true,
                   false, scale, rows_of(out)},
         a_thread_per_element<EmbedRows>(out));
}

void CudaOps::embed_positions(const Weight& table, Tensor out) {
  launch(EmbedRows{cuda_weight(table).on_device(), batch(), EmbedRows::Ids::kPositions, 0, false,
                   true, 1.0f, rows_of(out)},
         a_thread_per_element<EmbedRows>(out));
}

void CudaOps::embed_token_types(const Weight& table, Tensor out) {
  launch(EmbedRows{cuda_weight(table).on_device(), batch(), EmbedRows::Ids::kTypes, 0, false, true,
                   1.0f, rows_of(out)},
         a_thread_per_element<EmbedRows>(out));
}

void CudaOps::linear(Tensor x, std::span<const LinearTarget> targets) {
  InputRounding rounding;
  Rows rounded;
  float* token_scales = nullptr;
  wide_.begin_inputs(rows_of(x).data);
  for (const LinearTarget& target : targets) {
    const CudaWeight& weight = cuda_weight(*target.weight);
    PENSTOCK_CHECK(weight.cols() == x.cols && weight.rows() == target.out.cols &&
                   target.out.rows == x.rows);
    const bool rounds = weight.rounding().to_int8;
    if (rounds && (rounded.data == nullptr || weight.rounding() != rounding)) {
      rounding = weight.rounding();
      rounded = rows_of(new_tensor(x.rows, x.cols, TensorRole::kActivation));
      token_scales = scratch<float>(static_cast<size_t>(x.rows));
      launch(RoundForProduct{rows_of(x), rounded, rounding.fixed_scale, token_scales},
             a_block_per_row(x));
    }
    multiply({weight.on_device(), rounds ? rounded : rows_of(x), rows_of(target.out),
              device_data(target.bias), rounds ? token_scales : nullptr});
    add_adapters(x, target);
  }
}

void CudaOps::add_adapters(Tensor x, const LinearTarget& target) {
  const auto has_one = [](int32_t slot) { return slot >= 0; };
  if (target.adapters == nullptr || std::ranges::none_of(host_batch_.adapters, has_one)) return;
  for (size_t slot = 0; slot < target.adapters->size(); ++slot) {
    const AdapterTerm& term = (*target.adapters)[slot];
    if (term.a == nullptr) continue;
    const Tensor low = new_tensor(x.rows, term.a->rows(), TensorRole::kActivation);
    const Tensor delta = new_tensor(x.rows, target.out.cols, TensorRole::kActivation);
    const LinearTarget down[] = {{term.a, nullptr, low}}, up[] = {{term.b, nullptr, delta}};
    linear(x, down);
    linear(low, up);
    launch(AddOfAdapter{rows_of(delta), rows_of(target.out), static_cast<int>(slot), batch()},
           a_thread_per_element<AddOfAdapter>(delta));
  }
}

void CudaOps::multiply(const Product& product) {
  if (wide_.multiply(product) || layer_.multiply(product)) return;
  const bool by_mma = product.w.form == WeightForm::kCodes || product.w.form == WeightForm::kBF16;
  if (!by_mma) {
    constexpr int kOutputs = DotProduct::kThreads / 32, kTokens = DotProduct::kTokens;
    const Grid grid{(product.w.rows + kOutputs - 1) / kOutputs,
                    (product.x.rows + kTokens - 1) / kTokens, DotProduct::kSharedBytes};
    launch(DotProduct{product}, grid);
  } else if (product.x.rows <= 8) {
    launch(MmaProduct<1>{product}, mma_grid<1>(product));
  } else {
    launch(MmaProduct<4>{product}, mma_grid<4>(product));
  }
}

}  // namespace penstock::cuda
