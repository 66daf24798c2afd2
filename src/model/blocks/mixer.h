// What stands in attention's place in a layer, or beside it, and carries a state from token to token: an open set.
//
// A mixer is one file (short_conv.h): the names of its tensors, its configuration, weights, scratch and forward. An architecture gives it
// to layers (LayerConfig::mixer); loading, ranks, stages, caches, random weights, counting and converting take it from there.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

// Of one layer.
class MixerWeights {
 public:
  virtual ~MixerWeights() = default;
};

// Tensors of a step, for all layers that have the mixer.
using MixerScratch = std::array<Tensor, 8>;

// Its configuration. Immutable, shared by layers; any thread.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual std::string_view name() const = 0;
  // Values that a sequence's state has in each of its layers.
  virtual int64_t state_values(const ModelConfig& config) const = 0;
  // What it computes otherwise than another one, of the same layer as another file says it; "" = nothing.
  virtual std::string_view difference(const Mixer& other) const = 0;
  // The share of one of several ranks; this one is of the whole model.
  virtual std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const = 0;
  // The same without factors, as files say it that have them in the weights (Architecture::gguf_multiplied); null: it has none.
  virtual std::shared_ptr<const Mixer> unmultiplied() const { return nullptr; }
  // Factor of what it reads where the layer attends too (LayerConfig::attention).
  virtual float input_factor() const { return 1.0f; }
  // The most inputs that a product of it has on this rank (Sublayer::padded).
  virtual int widest_input(const ModelConfig& config) const = 0;

  virtual std::unique_ptr<MixerWeights> empty_weights() const = 0;
  // weights: made by empty_weights().
  virtual void visit(TensorVisitor& v, MixerWeights& weights) const = 0;
  // Once in a step; the forward must not allocate.
  virtual MixerScratch scratch(Sublayer& s) const = 0;
  // x += what it makes of h, which input_factor() has been applied to; then `next` is prepared.
  virtual void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h, Tensor x,
                       const NormedInput* next) const = 0;
};

}  // namespace penstock
