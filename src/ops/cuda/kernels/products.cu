#include "ops/cuda/kernels/products.h"

#include "ops/cuda/kernels/tile_product.h"

namespace penstock::cuda {

PENSTOCK_BODY void EmbedRows::operator()(const Thread& t) const {
  const int k = t.y * kThreads + t.index;
  if (k >= out.cols) return;
  const int to = table.input_order != nullptr ? table.input_order[k] : k;
  float& element = out.row(t.x)[to];
  if (t.x >= batch->n_tokens) {
    if (!add) element = 0.0f;
    return;
  }
  const int32_t* const all = ids == Ids::kTokens      ? batch->tokens
                             : ids == Ids::kPositions ? batch->positions
                                                      : batch->token_types;
  int id = all[t.x];
  if (ids == Ids::kTokens && id < 0) id = batch->drawn[-1 - id];
  id -= first;
  const bool there = id >= 0 && id < table.rows;
  if (!there) id = 0;
  float value = weight_element(table, id, k) * scale;
  if (!there && is_share) value = 0.0f;
  element = add ? element + value : value;
}
PENSTOCK_KERNEL(EmbedRows)

PENSTOCK_BODY void RoundForProduct::operator()(const Thread& t) const {
  const float* const values = x.row(t.x);
  float scale = fixed;
  if (!(fixed > 0.0f)) {
    float most = 1e-5f;
    for (int i = t.index; i < x.cols; i += kThreads) most = fmaxf(most, fabsf(values[i]));
    scale = block_max<kThreads>(t, most, t.shared_as<float>()) / 127.0f;
  }
  const float inverse = 1.0f / scale;
  for (int i = t.index; i < x.cols; i += kThreads)
    out.row(t.x)[i] = fmaxf(-128.0f, fminf(rintf(values[i] * inverse), 127.0f));
  if (t.index == 0) token_scales[t.x] = scale;
}
PENSTOCK_KERNEL(RoundForProduct)

template <int TokenTiles>
PENSTOCK_BODY void MmaProduct<TokenTiles>::prefetch(const Thread& t) const {
  if (t.y == 0) prefetch_tile<kThreads>(t, w, t.x);
}

template <int TokenTiles>
PENSTOCK_BODY void MmaProduct<TokenTiles>::operator()(const Thread& t) const {
  uint16_t* const levels = t.shared_as<uint16_t>();
  float* const sums = t.shared_as<float>(kLevelBytes);
  load_levels<kThreads>(t, w, levels);
  t.sync();
  const int first_token = t.y * kTokens;
  float total[TokenTiles][4] = {};
  multiply_tile<kThreads>(t, w, PlainInputs{x}, levels, t.x, first_token, total);
  keep_sums(t, total, sums);
  t.sync();
  for (int at = t.index; at < TokenTiles * 128; at += kThreads) {
    const TilePlace place = place_of_sum(at);
    const int row = t.x * 16 + place.row, token = first_token + place.token;
    if (row >= w.rows || token >= x.rows) continue;
    float sum = sum_of_warps<TokenTiles, kThreads>(sums, at);
    if (token_scales != nullptr) sum *= token_scales[token];
    out.row(token)[row] = bias != nullptr ? sum + bias[row] : sum;
  }
}
PENSTOCK_KERNEL(MmaProduct<1>)
PENSTOCK_KERNEL(MmaProduct<4>)

PENSTOCK_BODY void DotProduct::operator()(const Thread& t) const {
  const int row = t.x * (kThreads / kWarp) + t.warp(), first_token = t.y * kTokens;
  float* const parts = t.shared_as<float>() + t.warp() * kWarp * kTokens;  // [token][lane]
  float sums[kTokens] = {};
  for (int k = t.lane(); k < w.cols && row < w.rows; k += kWarp) {
    const float weight = weight_element(w, row, k);
    const int input = w.input_order != nullptr ? w.input_order[k] : k;
    for (int n = 0; n < kTokens; ++n)
      if (first_token + n < x.rows) sums[n] += weight * x.row(first_token + n)[input];
  }
  for (int n = 0; n < kTokens; ++n) parts[n * kWarp + t.lane()] = sums[n];
  t.sync_warp();
  const int token = first_token + t.lane();
  if (t.lane() >= kTokens || token >= x.rows || row >= w.rows) return;
  float sum = 0.0f;
  for (int i = 0; i < kWarp; ++i) sum += parts[t.lane() * kWarp + i];
  if (token_scales != nullptr) sum *= token_scales[token];
  out.row(token)[row] = bias != nullptr ? sum + bias[row] : sum;
}
PENSTOCK_KERNEL(DotProduct)

// ExpertProduct computes one tile by the bodies of MmaProduct and DotProduct.
PENSTOCK_BODY void ExpertProduct::operator()(const Thread& t) const {
  constexpr int kOutputs = DotProduct::kThreads / kWarp;
  const int expert = tile_experts[t.y], first = t.y * kTokens;
  if (expert < 0 || t.x * 16 >= experts[expert].weight.rows) return;
  Product product = {experts[expert].weight, x, out, experts[expert].bias,
                     token_scales != nullptr ? token_scales + first : nullptr};
  product.x.data = x.row(first), product.out.data = out.row(first);
  product.x.rows = product.out.rows = kTokens;
  Thread own = t;
  own.y = 0;
  if (product.w.form == WeightForm::kCodes || product.w.form == WeightForm::kBF16) {
    MmaProduct<1>{product}(own);
    return;
  }
  for (int i = 0; i < 16 / kOutputs; ++i) {
    own.x = t.x * (16 / kOutputs) + i;
    DotProduct{product}(own);
    t.sync_warp();
  }
}
PENSTOCK_KERNEL(ExpertProduct)

}  // namespace penstock::cuda
