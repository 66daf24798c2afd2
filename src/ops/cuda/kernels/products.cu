#include "ops/cuda/kernels/products.h"

#include "ops/cuda/kernels/weight_element.h"

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
  int id = all[t.x] - first;
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

// Inputs k and k + 1 of a row of x as the weight's columns want them; zeros behind the ends.
PENSTOCK_DEVICE SplitPair input_pair(const Product& p, int token, int k) {
  if (token >= p.x.rows) return {0, 0};
  const float* const row = p.x.row(token);
  const int32_t* const order = p.w.input_order;
  const auto at = [&](int i) { return i < p.w.cols ? row[order != nullptr ? order[i] : i] : 0.0f; };
  return split_pair(at(k), at(k + 1));
}

// The codes of register i of step s of a lane, one in each half of the word.
PENSTOCK_DEVICE uint32_t code_pair(const std::byte* unit, int bits, int lane, int s, int i) {
  uint32_t codes = 0;
  for (int done = 0; done < bits;) {
    const int width = plane_bits(bits, done);
    const uint32_t mask = ((1u << width) - 1) * 0x10001u;
    const int word = width == 4 ? lane * 4 + s : width == 2 ? lane * 2 + s / 2 : lane;
    const int shift = width == 4 ? 4 * i : width == 2 ? 8 * (s % 2) + 2 * i : 4 * s + i;
    codes |= (load<uint32_t>(unit, word) >> shift & mask) << done;
    unit += width * WeightOnDevice::kTileRows * WeightOnDevice::kUnitCols / 8;
    done += width;
  }
  return codes;
}

// A fragment of 16 rows and k step s of a unit; levels: BF16 by code.
PENSTOCK_DEVICE void load_weights(const WeightOnDevice& w, const uint16_t* levels, int tile, int unit, int s,
                                  int lane, uint32_t (&a)[4]) {
  for (int i = 0; i < 4; ++i) {
    if (w.form == WeightForm::kBF16) {
      const int row = tile * 16 + lane / 4 + 8 * (i & 1),
                k = unit * 64 + 16 * s + 8 * (i >> 1) + 2 * (lane % 4);
      a[i] = load<uint32_t>(w.data, (static_cast<int64_t>(row) * w.padded_cols + k) / 2);
    } else {
      const uint32_t codes = code_pair(w.unit_at(tile, unit), w.bits, lane, s, i);
      a[i] = levels[codes & 0xffffu] | static_cast<uint32_t>(levels[codes >> 16]) << 16;
    }
  }
}

template <int TokenTiles>
PENSTOCK_BODY void MmaProduct<TokenTiles>::operator()(const Thread& t) const {
  constexpr int kWarps = kThreads / kWarp;
  uint16_t* const levels = t.shared_as<uint16_t>();
  float* const sums = t.shared_as<float>(512);  // [warp][token tile][element][lane]
  const int n_levels = w.form == WeightForm::kCodes ? 1 << w.bits : 0;
  for (int code = t.index; code < n_levels; code += kThreads) levels[code] = float_to_bf16(w.levels[code]);
  t.sync();
  const bool is_codes = w.form == WeightForm::kCodes, shifted = is_codes && (w.offsets || w.zeros);
  const int lane = t.lane(), g = lane / 4, first_token = t.y * kTokens;
  const int steps = is_codes ? w.group / 16 : 4;  // of a group
  const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  float total[TokenTiles][4] = {};
  for (int unit = t.warp(); unit < w.n_units(); unit += kWarps) {
    for (int group = 0; group < 4 / steps; ++group) {
      float part[TokenTiles][4] = {}, inputs[TokenTiles][4] = {};
      for (int s = group * steps; s < (group + 1) * steps; ++s) {
        uint32_t a[4];
        load_weights(w, levels, t.x, unit, s, lane, a);
        for (int n = 0; n < TokenTiles; ++n) {
          const int token = first_token + 8 * n + g, k = unit * 64 + 16 * s + 2 * (lane % 4);
          const SplitPair low = input_pair(*this, token, k), high = input_pair(*this, token, k + 8);
          const uint32_t lo[2] = {low.lo, high.lo}, hi[2] = {low.hi, high.hi};
          t.mma(part[n], a, lo);
          t.mma(part[n], a, hi);
          if (shifted) t.mma(inputs[n], ones, lo);
          if (shifted) t.mma(inputs[n], ones, hi);
        }
      }
      for (int half = 0; half < 2; ++half) {
        GroupScale of = {1.0f, 0.0f, 0.0f};
        if (is_codes) of = group_scale(w, t.x, unit, g + 8 * half, group);
        const float offset = w.zeros ? -(of.scale * of.zero) : of.offset;
        for (int n = 0; n < TokenTiles; ++n)
          for (int j = 2 * half; j < 2 * half + 2; ++j)
            total[n][j] += shifted ? of.scale * part[n][j] + offset * inputs[n][j] : of.scale * part[n][j];
      }
    }
  }
  for (int n = 0; n < TokenTiles; ++n)
    for (int j = 0; j < 4; ++j) sums[((t.warp() * TokenTiles + n) * 4 + j) * kWarp + lane] = total[n][j];
  t.sync();
  for (int at = t.index; at < TokenTiles * 128; at += kThreads) {
    const int n = at / 128, j = at % 128 / kWarp, of_lane = at % kWarp;
    const int row = t.x * 16 + of_lane / 4 + 8 * (j >> 1),
              token = first_token + 8 * n + 2 * (of_lane % 4) + (j & 1);
    if (row >= w.rows || token >= x.rows) continue;
    float sum = sums[at];
    for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp * TokenTiles * 128 + at];
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

// The products above of one tile.
PENSTOCK_BODY void ExpertProduct::operator()(const Thread& t) const {
  constexpr int kOutputs = DotProduct::kThreads / kWarp;
  const int expert = tile_experts[t.y], first = t.y * kTokens;
  if (expert < 0) return;
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
