// A draft of one sequence: a tree of tokens that may follow its last one.
#pragma once
#include <cstdint>
#include <vector>

#include "penstock/types.h"

namespace penstock {

struct TokenProb {
  TokenId token = kNoToken;
  float p = 0;
};

// A distribution: every token with a probability above 0, once, in any order. The probabilities sum
// to 1.
using TokenDistribution = std::vector<TokenProb>;

// Most nodes of a tree: a tree mask has 64 bits, one of them for the sequence's own last token.
inline constexpr int kMaxDraftNodes = 63;

// A parent comes before its children. A chain has parents -1, 0, 1, …
struct DraftTree {
  std::vector<TokenId> tokens;  // [n]
  // [n] index of the parent node, or -1: a child of the sequence's last token
  std::vector<int16_t> parents;
  // [n] distribution that node i's token was drawn from, after the sequence's own sampler steps;
  // the tree is then a chain. Empty: the tokens were not drawn at random, or with the random
  // numbers of the target's own draw.
  std::vector<TokenDistribution> drawn_from;

  int size() const { return static_cast<int>(tokens.size()); }
  bool empty() const { return tokens.empty(); }
  bool drawn() const { return !drawn_from.empty(); }
  bool is_chain() const {
    for (int i = 0; i < size(); ++i) {
      if (parents[i] != i - 1) return false;
    }
    return true;
  }
  // Number of nodes on the path from the root to `node`, itself included.
  int depth(int node) const {
    int n = 0;
    for (; node >= 0; node = parents[node]) ++n;
    return n;
  }
  void add(TokenId token, int parent) {
    tokens.push_back(token);
    parents.push_back(static_cast<int16_t>(parent));
  }
  void add_next(TokenId token) { add(token, size() - 1); }  // appends to a chain
  void clear() { tokens.clear(), parents.clear(), drawn_from.clear(); }
  // Keeps the first n nodes. A prefix of a tree is a tree.
  void truncate(int n) {
    if (n >= size()) return;
    tokens.resize(n), parents.resize(n);
    if (drawn()) drawn_from.resize(n);
  }
};

}  // namespace penstock
