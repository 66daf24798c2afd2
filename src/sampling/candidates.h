// The distribution of one next token while filters narrow it: kept as the whole row of logits at
// first, as a short list later.
//
// Order everywhere: more likely first, lower id first among equals. Scratch memory is kept between
// uses; one object per thread. Every filter keeps at least one token.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.h"
#include "sampling/vocab_scan.h"

namespace penstock {

struct Candidate {
  TokenId id;
  float x;  // (logit - largest) / temperature, <= 0
  float w;  // exp(x), unnormalized probability
};

class Candidates {
 public:
  // Starts from a row of logits [vocab_size], which must stay valid until the next reset; remove()
  // writes to it. False when no token is possible: all logits are -infinity or NaN, or one of them
  // is +infinity.
  bool reset(std::span<float> row, float temperature);
  // As reset(), but the row is read only: no keep_*() and no remove() may follow.
  bool view(std::span<const float> row, float temperature);

  double total();     // sum of w
  int size();         // tokens with w > 0 or in the list
  float log_total();  // log of total()
  double entropy();   // of the normalized distribution, nats

  void keep_top(int k);      // the k most likely
  void keep_above(float x);  // tokens with Candidate::x >= x
  // the shortest prefix in order whose probability reaches p
  void keep_mass(double p);
  // the shortest prefix in order of |-log probability - entropy| that reaches p
  void keep_typical(double p);
  // The tokens whose probability is at least p, in order. Valid until the next call.
  std::span<const Candidate> above_probability(double p);
  void remove(std::span<const Candidate> tokens);

  // The k most likely tokens (or all that are left), in order; the distribution is not narrowed.
  // Valid until the next call.
  std::span<const Candidate> peek_top(int k);

  // The token at which the cumulative distribution reaches u in [0, 1).
  TokenId pick(double u);
  // All tokens that are left, in any order. Valid until the next call.
  std::span<const Candidate> list() {
    make_list();
    return items_;
  }
  float x_of(TokenId id) const { return (row_[id] - max_) * inv_t_; }

 private:
  bool start(std::span<const float> row, float temperature);
  // at least the k most likely tokens of the row, any order
  void gather(int k, std::vector<Candidate>& out);
  void gather_all(std::vector<Candidate>& out);
  void sort_items();
  void make_list();  // makes items_ hold all tokens that are left
  TokenId pick_from_row(double u);
  Candidate at(TokenId id) const;
  // makes items_ hold the tokens with at least x; false when they are too many
  bool list_above(float x);
  void refresh_row();  // called after row_ was changed
  struct Range {
    float low, high;  // bounds of Candidate::x
  };
  Range guess_cut(double rest, double slack);
  void cut_row_at_mass(double mass);
  double weigh_inside(int n);
  void cut_inside(double mass);
  void fill_weights(std::vector<Candidate>& items) const;

  std::span<const float> row_;
  std::span<float> writable_;  // the same row; empty after view()
  float max_ = 0, inv_t_ = 1;
  // the row is the distribution; items_ is not used
  bool full_ = true;
  bool sorted_ = false;  // items_ is in order
  double total_ = -1;    // < 0: not known
  std::vector<Candidate> items_, scratch_;
  std::vector<float> block_max_, block_copy_;
  std::vector<double> piece_sums_, histogram_;
  std::vector<int> inside_;
  std::vector<float> sample_, sample_weights_;
};

}  // namespace penstock
