// LoRA adapters in a model's memory: of each the thin matrices of the layers that it adds to, by slot.
//
// An adapter may have another format than the model: names are translated where the layer is one of attention or of a
// feed-forward, and the rows of queries and keys are put into the order of the model's rotation. Experts are found by what they are
// in any case: files have one matrix for each or one for all, and adapters likewise, but not always the same.
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
  // Sites and configuration are the model's, as long as it lives; naming: of its file; layers: that are computed here.
  AdapterSlots(const ModelConfig& config, Naming naming, std::span<LinearSite> sites, Shard::Range layers)
      : config_(config), naming_(naming), sites_(sites), layers_(layers) {}

  // See Model.
  Result<int64_t> check(const LoraAdapter& adapter) const;
  Status put(int slot, const LoraAdapter& adapter, Ops& ops);
  void drop(int slot);
  void reserve(int n_slots);

 private:
  // One module of an adapter, and the layers that its matrix' rows are.
  struct Match {
    const LoraModule* module = nullptr;
    std::vector<LinearSite*> sites;
    int swapped_head = 0;      // > 0: rows of heads of so many lie in the other format's order
    int expert = -1;           // of experts the one that it is of; -1: all
    bool both = false;         // experts' gate and up
    bool interleaved = false;  // these in turn, not one after the other
    bool turned = false;       // it was made for the transposed weight
    int64_t rows() const;
    int n_pairs() const;
  };
  Result<std::vector<Match>> match(const LoraAdapter& adapter) const;
  bool is_elsewhere(std::string_view weight, const NameTable& names) const;
  Status check_module(const Match& match, const std::string& where) const;
  using ExpertSites = std::map<std::pair<int, ExpertProjection>, LinearSite*>;  // by layer
  Status turn_experts(const LoraAdapter& adapter, std::vector<Match>& matches) const;
  std::vector<float> rows_of_b(const Match& match, const LinearSite& site, std::span<const float> all) const;
  Status put_match(int slot, const Match& match, Ops& ops);

  const ModelConfig& config_;
  const Naming naming_;
  const std::span<LinearSite> sites_;
  const Shard::Range layers_;
  std::vector<std::vector<std::unique_ptr<Weight>>> weights_;  // [slot]
};

}  // namespace penstock
