// The distribution of one next token while filters narrow it: the whole row of logits at first, a short list
// later.
//
// Order everywhere: more likely first, lower id first among equals. Scratch memory is kept between uses; one
// object per thread. Every filter keeps at least one token.
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
  // row: logits [vocab_size], read until the next reset (and written by remove()). False when no token is
  // possible: all logits -infinity or NaN, or one of them +infinity.
  bool reset(std::span<float> row, float temperature);
  // The same for a row that is only looked at: no keep_*() and no remove() may follow.
  bool view(std::span<const float> row, float temperature);

  double total();     // sum of w
  int size();         // tokens with w > 0 or in the list
  float log_total();  // log of total()
  double entropy();   // of the normalized distribution, nats

  void keep_top(int k);         // the k most likely
  void keep_above(float x);     // those with Candidate::x >= x
  void keep_mass(double p);     // the smallest prefix in order whose probability reaches p
  void keep_typical(double p);  // the same in order of |-log probability - entropy|
  // The tokens whose probability is at least p, in order. Valid until the next call.
  std::span<const Candidate> above_probability(double p);
  void remove(std::span<const Candidate> tokens);

  // The most likely k (or all there are), in order, without narrowing. Valid until the next call.
  std::span<const Candidate> peek_top(int k);

  // Inverse of the cumulative distribution at u in [0, 1).
  TokenId pick(double u);
  // All that are left, any order. Valid until the next call.
  std::span<const Candidate> list() {
    make_list();
    return items_;
  }
  float x_of(TokenId id) const { return (row_[id] - max_) * inv_t_; }

 private:
  bool start(std::span<const float> row, float temperature);
  void gather(int k, std::vector<Candidate>& out);  // at least the k most likely of the row, any order
  void gather_all(std::vector<Candidate>& out);
  void sort_items();
  void make_list();  // items_ holds everything
  TokenId pick_from_row(double u);
  Candidate at(TokenId id) const;
  bool list_above(float x);  // items_ = those with x or more; false when they are too many for a list
  void refresh_row();        // after row_ was changed
  struct Range {
    float low, high;  // of Candidate::x
  };
  Range guess_cut(double rest, double slack);
  void cut_row_at_mass(double mass);
  double weigh_inside(int n);
  void cut_inside(double mass);
  void fill_weights(std::vector<Candidate>& items) const;

  std::span<const float> row_;
  std::span<float> writable_;  // the same row; empty where it is only looked at
  float max_ = 0, inv_t_ = 1;
  bool full_ = true;     // the row is the distribution; items_ is not used
  bool sorted_ = false;  // items_ is in order
  double total_ = -1;    // < 0: not known
  std::vector<Candidate> items_, scratch_;
  std::vector<float> block_max_, block_copy_;
  std::vector<double> piece_sums_, histogram_;
  std::vector<int> inside_;
  std::vector<float> sample_, sample_weights_;
};

}  // namespace penstock
