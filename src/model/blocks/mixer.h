// Mixer: the interface of blocks that replace attention in a layer, or stand beside or behind it, and
// carry a state from token to token.
//
// Each mixer is one file (see short_conv.h) with the names of its tensors, its configuration,
// weights, scratch and forward. An architecture assigns it to layers (LayerConfig::mixer); loading,
// ranks, stages, caches, random weights, counting and conversion use this interface.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

// Weights of a mixer in one layer.
class MixerWeights {
 public:
  virtual ~MixerWeights() = default;
};

// Scratch tensors of one step, shared by all layers with the mixer.
using MixerScratch = std::array<Tensor, 8>;

// Configuration of a mixer. Immutable, shared by layers; safe to use from any thread.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual std::string_view name() const = 0;
  // Number of values of a sequence's state in each layer with this mixer.
  virtual int64_t state_values(const ModelConfig& config) const = 0;
  // Returns the name of a property by which its results differ from those of `other`, the same
  // layer's mixer read from another file; "" = none.
  virtual std::string_view difference(const Mixer& other) const = 0;
  // Returns the part of this mixer, which is the whole model's, that one rank computes.
  virtual std::shared_ptr<const Mixer> of_rank(const ModelCuts& cuts) const = 0;
  // Returns the same mixer without factors, for files that fold them into the weights
  // (Architecture::gguf_multiplied); null: it has no factors.
  virtual std::shared_ptr<const Mixer> unmultiplied() const { return nullptr; }
  // It is computed behind the attention of its layer: x += attention(norm(x)); x += mixer(x). False:
  // beside it. Of layers that also have attention (LayerConfig::attention).
  virtual bool follows_attention() const { return false; }
  // It uses operations of backends with Ops::has_all() alone.
  virtual bool needs_all() const { return false; }
  // Factor of its input in layers that also have attention (LayerConfig::attention).
  virtual float input_factor() const { return 1.0f; }
  // Largest number of inputs of its products on this rank (Sublayer::padded).
  virtual int widest_input(const ModelConfig& config) const = 0;

  virtual std::unique_ptr<MixerWeights> empty_weights() const = 0;
  // Visits the tensors of the whole model's layer, with this rank's parts (v.cuts()). Called for the
  // whole model's mixer; state_values(), widest_input(), scratch() and forward() for of_rank()'s.
  // REQUIRES: `weights` comes from empty_weights().
  virtual void visit(TensorVisitor& v, MixerWeights& weights) const = 0;
  // Called once in a step. forward() must not allocate.
  virtual MixerScratch scratch(Sublayer& s) const = 0;
  // x += mixer(h), where h has been multiplied by input_factor(); then computes the norm `next` of
  // x.
  virtual void forward(Sublayer& s, const MixerScratch& scratch, int layer, const NormedInput& h,
                       Tensor x, const NormedInput* next) const = 0;
};

}  // namespace penstock
