// Rows of a sound, turn by turn: it is decoded, becomes spectra, and goes through the tower.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/open/picture_encoder.h"
#include "frontend/pictures/ear.h"
#include "frontend/pictures/picture.h"

namespace penstock {

class SoundRows {
 public:
  // REQUIRES: all outlive it.
  SoundRows(const Ear& ear, PictureEncoder& encoder, const Picture& sound);

  bool complete() const { return heard_ && next_ == views_.size(); }
  // A turn: a piece of Ear::Listening, or what the tower computes of about half a minute. A short sound is one
  // turn. REQUIRES: not complete. goes_on: asked between pieces; its error ends the work. Errors: those of
  // Ear::listen(), Listening::advance(), PictureEncoder::begin() and goes_on(), kResourceExhausted.
  Status advance(const std::function<Status()>& goes_on);
  // Returns all rows, in so many levels, of which the first one alone is not zero. REQUIRES: complete.
  EmbeddingRows take(int levels);
  // Bytes of samples, of spectra that wait for the tower, and of the view in it.
  size_t waiting_bytes() const;

 private:
  Status listen();
  Status compute(const std::function<Status()>& goes_on);

  const Ear& ear_;
  PictureEncoder& encoder_;
  const Picture& sound_;
  std::unique_ptr<Ear::Listening> listening_;
  bool heard_ = false;          // views_ are there
  std::vector<SoundView> own_;  // unless the sound is a window
  std::span<const SoundView> views_;
  size_t next_ = 0;                             // view
  std::unique_ptr<PictureEncoder::Pass> pass_;  // of the next view, if it was begun
  std::vector<EmbeddingRows> parts_;
};

}  // namespace penstock
