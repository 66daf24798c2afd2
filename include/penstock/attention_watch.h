// Attention weights of chosen decoder heads over the rows of the encoder (Whisper), from which the times of
// words are found.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace penstock {

// Filled by the engine's threads while the sequence is computed; read when it has ended.
struct AttentionWatch {
  struct Head {
    int layer = 0, head = 0;
  };
  // most_tokens: of prompt and output; later ones are not kept. n_rows: first rows of the encoder
  // that are kept.
  AttentionWatch(std::vector<Head> watched, int most_tokens, int rows)
      : heads(std::move(watched)),
        n_rows(rows),
        weights(static_cast<size_t>(most_tokens) * heads.size() * static_cast<size_t>(rows)) {}

  // Weights of a token, by its index in the sequence; empty: it is not kept. Each head's sum over all
  // rows of the encoder is 1.
  std::span<float> row(int token, size_t head) {
    const auto size = static_cast<size_t>(n_rows);
    const size_t at = (static_cast<size_t>(token) * heads.size() + head) * size;
    return at + size <= weights.size() ? std::span(weights).subspan(at, size) : std::span<float>();
  }

  const std::vector<Head> heads;
  const int n_rows;
  std::vector<float> weights;  // [tokens, heads, n_rows]
};

}  // namespace penstock
