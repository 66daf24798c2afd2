#include "ops/cuda/step_graphs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::cuda {
namespace {

constexpr int kRows[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, StepGraphs::kMostRows};

}  // namespace

int StepGraphs::rows_for(int n) {
  const int* const found = std::lower_bound(std::begin(kRows), std::end(kRows), n);
  return n == 0 || found == std::end(kRows) ? n : *found;
}

// Steps with adapters are not recorded: their launches depend on which adapters the batch has.
bool StepGraphs::suits(const Batch& batch) const {
  const int n = batch.n_tokens();
  if (!enabled_ || n == 0 || n > kMostRows || !batch.adapters.empty()) return false;
  for (size_t s = 0; s + 1 < batch.seq_offsets.size(); ++s)
    if (batch.seq_offsets[s + 1] - batch.seq_offsets[s] > kMostRowsOfSequence) return false;
  return true;
}

// Returns the entry of a key. A new one replaces the least recently used, if there are too many.
StepGraphs::Entry& StepGraphs::entry_of(const Key& key) {
  auto entry = std::ranges::find(entries_, key, &Entry::key);
  if (entry == entries_.end()) {
    if (entries_.size() < kMostRecordings) {
      entries_.emplace_back();
      entry = std::prev(entries_.end());
    } else {
      entry = std::ranges::min_element(entries_, {}, &Entry::used);
      *entry = {};
    }
    entry->key = key;
  }
  entry->used = ++clock_;
  return *entry;
}

StepOutputs StepGraphs::run(const Key& key, bool suits, StepFn fn, void* ctx) {
  if (!suits) return fn(ctx);
  if (n_released_ != device_.n_released()) {
    for (Entry& entry : entries_) entry.pieces.clear();
    n_released_ = device_.n_released();
  }
  Entry& entry = entry_of(key);
  const size_t begin = memory_.taken();
  // A step with this key was computed: its memory is known to fit, so nothing is allocated.
  if (entry.bytes > 0 && entry.begin == begin && !entry.refused && memory_.holds(entry.bytes)) {
    if (!entry.pieces.empty()) {
      memory_.skip(entry.bytes);
    } else if (!record(entry, fn, ctx)) {
      memory_.rewind(begin);
      return fn(ctx);
    }
    play(entry);
    return entry.outputs;
  }
  const StepOutputs outputs = fn(ctx);
  entry.pieces.clear();
  entry.begin = begin, entry.bytes = memory_.taken() - begin;
  return outputs;
}

bool StepGraphs::record(Entry& entry, StepFn fn, void* ctx) {
  std::vector<Piece> pieces;
  {
    // Ends also where memory for the step is refused, by an exception.
    struct Scope {
      StepGraphs& graphs;
      ~Scope() {
        if (graphs.recorded_ != nullptr) (void)graphs.device_.end_recording();
        graphs.recorded_ = nullptr;
        graphs.device_.start_early(false);
      }
    } scope{*this};
    device_.start_early(starts_early_);
    recorded_ = &pieces;
    device_.begin_recording();
    entry.outputs = fn(ctx);
    pieces.push_back({device_.end_recording(), {}});
    recorded_ = nullptr;
  }
  entry.refused =
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.recording == nullptr; });
  if (entry.refused) return false;
  entry.pieces = std::move(pieces);
  ++n_recorded_;
  return true;
}

void StepGraphs::between(std::function<void()> work) {
  if (recorded_ == nullptr) return work();
  recorded_->push_back({device_.end_recording(), std::move(work)});
  device_.begin_recording();
}

void StepGraphs::play(const Entry& entry) {
  for (const Piece& piece : entry.pieces) {
    device_.play(*piece.recording);
    if (piece.work) piece.work();
  }
  ++n_played_;
}

}  // namespace penstock::cuda
