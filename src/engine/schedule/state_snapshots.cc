#include "engine/schedule/state_snapshots.h"

#include <algorithm>
#include <limits>

namespace penstock {

StateSnapshots::StateSnapshots(int block_size, int interval)
    : block_size_(block_size),
      interval_((interval + block_size - 1) / block_size * block_size),
      least_distance_(interval > 0 ? std::min(interval_, kLeastDistance) : kLeastDistance) {}

// Returns the end of the last full block before the prompt's last token, which must be computed.
int StateSnapshots::end_of_prompt(const Sequence& sequence) const {
  return (sequence.n_prompt - 1) / block_size_ * block_size_;
}

int StateSnapshots::next_place(const Sequence& sequence) const {
  int next = std::numeric_limits<int>::max();
  if (sequence.n_preemptions > 0) return next;
  const auto consider = [&](int place) {
    if (place > sequence.n_computed && place - sequence.n_snapshot >= least_distance_)
      next = std::min(next, place);
  };
  consider(end_of_prompt(sequence));
  consider(sequence.n_common);
  if (interval_ > 0) consider((sequence.n_computed / interval_ + 1) * interval_);
  return next;
}

int StateSnapshots::cut(const Sequence& sequence, int count) const {
  if (count <= 1 || sequence.n_preemptions > 0) return count;
  const int begin = sequence.n_computed, place = next_place(sequence);
  if (place <= begin + count) return place - begin;
  if (count == sequence.gap()) return count;
  const int end = (begin + count) / block_size_ * block_size_;
  return end > begin ? end - begin : count;
}

bool StateSnapshots::is_due(const Sequence& sequence) const {
  const int n = sequence.n_computed;
  if (n % block_size_ != 0 || n - sequence.n_snapshot < least_distance_) return false;
  return n < sequence.n_prompt || (interval_ > 0 && n % interval_ == 0);
}

void StateSnapshots::note_parting(Sequence& sequence, int n_blocks) const {
  sequence.n_snapshot = sequence.n_computed;
  sequence.n_common = n_blocks * block_size_;
}

bool StateSnapshots::is_coming(const Sequence& sequence, int n_tokens,
                               std::span<Sequence* const> running) const {
  return std::ranges::any_of(running, [&](const Sequence* other) {
    const int place = next_place(*other);
    if (place <= n_tokens || place >= sequence.n_tokens()) return false;
    const auto last = static_cast<size_t>(place / block_size_) - 1;
    return last < other->hashes.size() && last < sequence.hashes.size() &&
           other->hashes[last] == sequence.hashes[last];
  });
}

}  // namespace penstock
