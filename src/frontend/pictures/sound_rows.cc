#include "frontend/pictures/sound_rows.h"

#include <algorithm>

#include "base/free_memory.h"

namespace penstock {
namespace {

constexpr int kPositionsOfTurn = 1500;  // half a minute of Whisper's encoder

}  // namespace

SoundRows::SoundRows(const Ear& ear, PictureEncoder& encoder, const Picture& sound)
    : ear_(ear), encoder_(encoder), sound_(sound), heard_(sound.window != nullptr) {
  if (heard_) views_ = {sound.window.get(), 1};
}

Status SoundRows::listen() {
  if (listening_ == nullptr) {
    ASSIGN_OR_RETURN(listening_, ear_.listen(std::as_bytes(std::span(*sound_.file))));
  }
  RETURN_IF_ERROR(listening_->advance());
  if (!listening_->done()) return {};
  own_ = listening_->take();
  listening_.reset();
  views_ = own_, heard_ = true;
  return {};
}

// A long view is as many turns as it is half minutes, each of a share of its pieces.
Status SoundRows::compute(const std::function<Status()>& goes_on) {
  for (int n_computed = 0; next_ < views_.size() && n_computed < kPositionsOfTurn;) {
    const SoundView& view = views_[next_];
    if (pass_ == nullptr) {
      ASSIGN_OR_RETURN(pass_, encoder_.begin({view.values, 1, view.n_positions, 0, 0}));
    }
    const auto n_turns =
        static_cast<size_t>(std::max(view.n_positions - 1, 0) / kPositionsOfTurn + 1);
    RETURN_IF_ERROR(pass_->advance((pass_->n_pieces() + n_turns - 1) / n_turns, goes_on));
    n_computed += std::min(view.n_positions, kPositionsOfTurn);
    if (!pass_->done()) return {};
    parts_.push_back(pass_->take());
    pass_.reset();
    if (!own_.empty()) free_memory(own_[next_].values);
    ++next_;
  }
  return {};
}

Status SoundRows::advance(const std::function<Status()>& goes_on) {
  RETURN_IF_ERROR(goes_on());
  if (!heard_) RETURN_IF_ERROR(listen());
  return heard_ ? compute(goes_on) : Status();
}

EmbeddingRows SoundRows::take(int levels) {
  EmbeddingRows rows = joined_rows(parts_);
  rows.values.resize(rows.values.size() * static_cast<size_t>(levels));
  rows.levels = levels;
  return rows;
}

size_t SoundRows::waiting_bytes() const {
  size_t n = listening_ != nullptr ? listening_->bytes() : 0;
  if (pass_ != nullptr) n += pass_->bytes();
  for (const SoundView& view : own_) n += view.values.size() * sizeof(float);
  return n;
}

}  // namespace penstock
