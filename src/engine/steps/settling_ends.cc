#include "engine/steps/settling_ends.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace penstock {
namespace {

constexpr size_t kMostHeld = 1024;
constexpr double kShortest = 1, kLongest = 30;  // seconds

}  // namespace

SettlingEnds::~SettlingEnds() {
  for (const Held& held : held_) {
    if (held.answer != nullptr) held.answer->unwanted = true;
  }
}

bool SettlingEnds::hold(Running& sequence) {
  // One token is left to compute, as whoever goes on from the prompt needs one.
  const auto n = static_cast<size_t>((sequence.n_prompt - 1) / scheduler_.block_size());
  if (n == 0 || sequence.hashes.size() < n || held_.size() >= kMostHeld) return false;
  try {
    auto chain = std::make_shared<ChainQuery>();
    chain->hashes.assign(sequence.hashes.begin(),
                         sequence.hashes.begin() + static_cast<ptrdiff_t>(n));
    for (int g = 0; g < scheduler_.n_groups(); ++g) {
      chain->windows.push_back(scheduler_.window(g));
      chain->in_memory.emplace_back(n, false);
    }
    const std::chrono::duration<double> patience(
        std::clamp(sequence.stats.prefill_seconds, kShortest, kLongest));
    held_.push_back({&sequence, stored_.n_entered(),
                     Clock::now() + std::chrono::ceil<Clock::duration>(patience), std::move(chain),
                     nullptr});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void SettlingEnds::drop(const Running& sequence) {
  const auto found = std::ranges::find(held_, &sequence, &Held::sequence);
  if (found == held_.end()) return;
  if (found->answer != nullptr) found->answer->unwanted = true;
  held_.erase(found);
}

void SettlingEnds::ask(Held& held) {
  try {
    auto answer = std::make_shared<Answer>();
    store_.writer().ask([answer, chain = held.chain, latest = held.latest,
                         block_size = scheduler_.block_size()](const BlockStore& store) {
      const auto is_stored = [&](const BlockKey& key) {
        return !answer->unwanted && Clock::now() < latest && store.contains_far(key);
      };
      std::vector<WantedBlock> wanted;
      try {
        answer->n_blocks = look_up_chain(*chain, block_size, is_stored, wanted);
      } catch (const std::bad_alloc&) {
      }
      answer->there = true;
    });
    held.answer = std::move(answer);
  } catch (const std::bad_alloc&) {
    held.latest = Clock::now();
  }
}

void SettlingEnds::look(const std::function<void(Running&)>& release) {
  for (size_t i = 0; i < held_.size();) {
    Held& held = held_[i];
    if (held.answer == nullptr && stored_.has_given(held.n_entered)) ask(held);
    const bool answered = held.answer != nullptr && held.answer->there;
    if (!answered && Clock::now() < held.latest) {
      ++i;
      continue;
    }
    Running& sequence = *held.sequence;
    const int n_blocks = answered ? held.answer->n_blocks.load() : 0;
    sequence.stats.prefix.stored_tokens = n_blocks * scheduler_.block_size();
    if (n_blocks < std::ssize(held.chain->hashes)) metrics_->kv_store_unsettled.add();
    if (held.answer != nullptr) held.answer->unwanted = true;
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
    release(sequence);
  }
}

Clock::time_point SettlingEnds::next_look() const {
  auto next = Clock::time_point::max();
  for (const Held& held : held_) next = std::min(next, held.latest);
  return next;
}

}  // namespace penstock
