// How tensors of one naming become those of another: what every part of a model needs for its entries of the map.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "model/names.h"
#include "quantize/tensor_map.h"

namespace penstock {

std::vector<int> inverse_order(const std::vector<int>& rows);  // result[rows[r]] = r

// Entries for vectors and matrices by their names in both files.
class TensorMapper {
 public:
  TensorMapper(const WeightSource& source, const ModelConfig& config, Naming out);

 protected:
  std::string prefix_of(const NameTable& names) const {
    for (const std::string_view prefix : names.prefixes) {
      if (has(std::string(prefix) + std::string(names.embedding) + ".weight")) return std::string(prefix);
    }
    return std::string(names.prefixes[0]);
  }
  // Errors: kUnsupported where the source has a tensor that loading would refuse and that is not in the map.
  Status check_unused(const TensorMap& map) const;
  bool has(const std::string& name) const { return source_.find(name) != nullptr; }
  // Also when another tool quantized it.
  bool has_linear(const std::string& stem) const {
    for (const char* suffix : {".weight", ".qweight", ".weight_packed"}) {
      if (has(stem + suffix)) return true;
    }
    return false;
  }
  std::string in_name(std::string_view part, int layer) const {
    return in_prefix_ + (layer < 0 ? "" : with_index(in_.layer, layer)) + std::string(part);
  }
  std::string out_name(std::string_view part, int layer) const {
    return out_prefix_ + (layer < 0 ? "" : with_index(out_.layer, layer)) + std::string(part);
  }

  // Of the one layer of the configuration, whatever its index: whole names from here on.
  void begin_names_with(std::string_view in, std::string_view out);
  MappedTensor base(std::string_view in, std::string_view out, int layer) const;
  void vector(std::vector<MappedTensor>& list, int layer, std::string in, std::string out, int size);
  void norm(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out, int size,
            Part part = Part::kOther);
  struct Spec {
    std::string_view in, out;
    WeightRole role;
    int rows, cols;
    Site site = Site::kNone;
    Part part = Part::kOther;
    int in_first_row = 0, in_rows = 0;
  };
  MappedTensor& matrix(std::vector<MappedTensor>& list, int layer, const Spec& spec);
  void linear(std::vector<MappedTensor>& list, int layer, const Spec& spec);
  void reorder(MappedTensor& tensor, int n_rows) const;
  // A vector by its whole name.
  void layer_vector(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                    int size);

  const WeightSource& source_;
  const ModelConfig& config_;
  Naming out_naming_;
  NameTable in_, out_;
  std::string in_prefix_, out_prefix_;
  bool crossing_ = false;
};

// Entries for experts; in expert_mapper.cc.
class ExpertMapper : protected TensorMapper {
 protected:
  using TensorMapper::TensorMapper;
  void routed_experts(std::vector<MappedTensor>& list, int layer);
  // Norms and scales of experts beside a dense feed-forward.
  void beside(std::vector<MappedTensor>& list, int layer);

 private:
  // Whole names of fused experts (NameTable).
  static bool is_whole(const NameTable& names, Naming naming, std::string_view name) {
    if (names.expert_gate_up.empty()) return false;
    return name == names.expert_gate_up || (naming == Naming::kHuggingFace && name == names.expert_down);
  }
  void expert_biases(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                     int rows);
  void shared_experts(std::vector<MappedTensor>& list, int layer);
  void expert_latents(std::vector<MappedTensor>& list, int layer);
  void experts(std::vector<MappedTensor>& list, int layer, Spec spec);
  static void turn(std::span<MappedTensor> experts);
  static void join_gate_and_up(std::span<MappedTensor> experts);
};

// Entries for what carries a state from token to token; in recurrence_mapper.cc.
class RecurrenceMapper : protected ExpertMapper {
 protected:
  using ExpertMapper::ExpertMapper;
  void short_conv(std::vector<MappedTensor>& list, int layer);
  void delta_net(std::vector<MappedTensor>& list, int layer);
  void state_space(std::vector<MappedTensor>& list, int layer);
  bool has_conv_bias() const;
  bool has_delta_in_one() const;

  int n_values_ = 0;  // projections of values so far

 private:
  std::vector<int> value_heads(int before, int each) const;
  void delta_projections(std::vector<MappedTensor>& list, int layer);
  void delta_by_head(std::vector<MappedTensor>& list, int layer);
  void delta_by_key(std::vector<MappedTensor>& list, int layer);
};

}  // namespace penstock
