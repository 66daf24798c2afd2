// LoRA adapters in a model's memory, by slot: the low-rank matrices of the layers that each
// changes.
//
// An adapter may have another format than the model. Names are translated for layers of attention
// and feed-forward, and rows of queries and keys are permuted to the model's rotation. Experts are
// always found by their role, since files have one matrix for each expert or one for all, and an
// adapter may differ from its model in this.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "formats/lora.h"
#include "model/blocks/config.h"
#include "model/blocks/weights.h"

namespace penstock {

class AdapterSlots {
 public:
  // REQUIRES: config and sites, which are the model's, outlive this object. naming: that of the
  // model's file. layers: those that this process computes.
  AdapterSlots(const ModelConfig& config, Naming naming, std::span<LinearSite> sites,
               Shard::Range layers)
      : config_(config), naming_(naming), sites_(sites), layers_(layers) {}

  // See Model.
  Result<int64_t> check(const LoraAdapter& adapter) const;
  Status put(int slot, const LoraAdapter& adapter, Ops& ops);
  void drop(int slot);
  void reserve(int n_slots);

 private:
  // One module of an adapter, and the layers that the rows of its matrix belong to.
  struct Match {
    const LoraModule* module = nullptr;
    std::vector<LinearSite*> sites;
    // > 0: rows of heads of this size are in the other format's order
    int swapped_head = 0;
    int expert = -1;           // index of the expert; -1: all
    bool both = false;         // gate and up of experts, fused
    bool interleaved = false;  // gate and up rows alternate
    bool turned = false;       // it was trained for the transposed weight
    int64_t rows() const;
    int n_pairs() const;
  };
  Result<std::vector<Match>> match(const LoraAdapter& adapter) const;
  bool is_elsewhere(std::string_view weight, const NameTable& names) const;
  Status check_module(const Match& match, const std::string& where) const;
  using ExpertSites = std::map<std::pair<int, ExpertProjection>, LinearSite*>;  // by layer
  Status turn_experts(const LoraAdapter& adapter, std::vector<Match>& matches) const;
  std::vector<float> rows_of_b(const Match& match, const LinearSite& site,
                               std::span<const float> all) const;
  Status put_match(int slot, const Match& match, Ops& ops);

  const ModelConfig& config_;
  const Naming naming_;
  const std::span<LinearSite> sites_;
  const Shard::Range layers_;
  std::vector<std::vector<std::unique_ptr<Weight>>> weights_;  // [slot]
};

}  // namespace penstock
