// Visitor that maps a layer's tensors from one naming to another.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "model/arch/names.h"
#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"
#include "quantize/map/tensor_map.h"

namespace penstock {

std::vector<int> inverse_order(const std::vector<int>& rows);  // result[rows[r]] = r

// Makes map entries of vectors and matrices from their names in both formats.
class TensorMapper final : public TensorVisitor {
 public:
  TensorMapper(const WeightSource& source, const ModelConfig& config, Naming out);

  const NameTable& in() const { return in_; }
  const NameTable& out() const { return out_; }
  bool crossing() const { return crossing_; }  // whether the output has the other naming
  int n_values() const { return n_values_; }   // number of value projections mapped so far
  bool has(const std::string& name) const { return source_.find(name) != nullptr; }
  // Whether the source has the layer, plain or quantized by another tool.
  bool has_linear(const std::string& stem) const;
  std::string in_name(std::string_view part, int layer) const {
    return in_prefix_ + (layer < 0 ? "" : layer_prefix(in_, layer)) + in_layer(in_, layer, part);
  }
  std::string out_name(std::string_view part, int layer) const {
    return out_prefix_ + (layer < 0 ? "" : layer_prefix(out_, layer)) + in_layer(out_, layer, part);
  }
  const std::string& in_prefix() const { return in_prefix_; }
  const std::string& out_prefix() const { return out_prefix_; }
  // For a configuration of one layer: names begin with these prefixes, whatever the layer's index.
  void begin_names_with(std::string_view in, std::string_view out);

  // Appends the following entries to `list`. layer: -1: outside of the layers.
  void into(std::vector<MappedTensor>& list, int layer) { list_ = &list, layer_ = layer; }
  struct Spec {
    std::string_view in, out;
    WeightRole role;
    int rows, cols;
    Site site = Site::kNone;
    Part part = Part::kOther;
    int in_first_row = 0, in_rows = 0;
    // layers whose factors multiply its rows, in order
    std::span<const LinearSpec* const> parts = {};
  };
  MappedTensor& vector(const std::string& in, const std::string& out, int size);
  MappedTensor& matrix(const Spec& spec);
  void linear(const Spec& spec);
  void norm(std::string_view in, std::string_view out, int size, Part part = Part::kOther);

  // Tables of the visited layers, which are outside of them in the output.
  std::vector<MappedTensor>& tables() { return tables_; }

  // Errors: kUnsupported if the other naming cannot express the model.
  const Status& status() const { return state_; }

  // --- Visits of tensors/specs.h ---
  const ModelConfig& config() const override { return config_; }
  const ModelCuts& cuts() const override { return cuts_; }
  int layer() const override { return layer_; }
  void norm(const NormSpec& spec, NormWeights&) override;
  void head_norm(const HeadNormSpec& spec, NormWeights&) override;
  void linear(const LinearSpec& spec, LinearWeights&) override {
    linear_of(spec, in_[*spec.name], {});
  }
  void joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) override;
  void vector(const VectorSpec& spec, std::unique_ptr<Vector>&) override;
  void conv(const ConvSpec& spec, std::unique_ptr<Vector>&, std::unique_ptr<Vector>* bias) override;
  void experts(const ExpertsSpec& spec, ExpertWeights&, ExpertWeights&, ExpertWeights&) override;
  void heads(const HeadsSpec& spec, ByHead&, ByHead&) override;
  void number(const TensorName* name, float&) override {
    vector(std::string(in_[*name]), std::string(out_[*name]), 1);
  }
  void table(const TableSpec& spec, RowTable&) override;
  void diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) override;
  void unused(const TensorName* name) override {
    unused_.push_back(in_name(in_[*name], layer_) + ".");
  }

  // Errors: kUnsupported if the source has a tensor that is not mapped and that loading would
  // refuse.
  Status check_unused(const TensorMap& map) const;

 private:
  std::string prefix_of(const NameTable& names) const;
  MappedTensor base(std::string_view in, std::string_view out) const;
  struct RowsOf {                 // rows of a matrix of the source
    int first = 0, all = 0;       // all = 0: the whole matrix
    std::span<const int> picked;  // if not empty: these rows
  };
  void linear_of(const LinearSpec& spec, std::string_view in, const RowsOf& rows);
  void reorder(MappedTensor& tensor, int n_rows) const;
  std::vector<int> in_groups(const GroupedHeads& heads) const;
  void multiply(MappedTensor& tensor, std::span<const LinearSpec* const> parts) const;
  std::vector<int> paired(const RotatedTails& tails) const;
  // Whether the name is the whole name of fused experts (NameTable).
  static bool is_whole(const NameTable& names, Naming naming, std::string_view name);
  void each_expert(const ExpertsSpec& experts, Spec spec);
  void expert_biases(int n_experts, std::string_view in, std::string_view out, int rows);
  void each_head(const HeadsSpec& heads, const Spec& spec, int first_row);

  const WeightSource& source_;
  const ModelConfig& config_;
  const ModelCuts cuts_;
  Naming out_naming_;
  NameTable in_, out_;
  std::string in_prefix_, out_prefix_;
  bool crossing_ = false;
  // the output has factors in its weights (Architecture::gguf_multiplied)
  bool multiplies_ = false;
  int n_values_ = 0;
  // prefixes of tensors that nothing reads
  std::vector<std::string> unused_;
  std::vector<MappedTensor>* list_ = nullptr;
  std::vector<MappedTensor> tables_;
  int layer_ = -1;
  Status state_;
};

}  // namespace penstock
