// Loads the experts of a layer from every form that files store, and groups of matrices with one
// shape.
#pragma once
#include "model/load/tensor_loader.h"

namespace penstock {

class ExpertLoader {
 public:
  explicit ExpertLoader(TensorLoader& tensors)
      : tensors_(tensors), config_(tensors.config()), names_(tensors.names()) {}

  // at: prefix of the layer's tensors.
  Status load(const std::string& at, const ExpertsSpec& spec, ExpertWeights& gate,
              ExpertWeights& up, ExpertWeights& down);
  // Loads `count` matrices: from one tensor each, with its index in the place of {}, or from one
  // tensor [count, rows, cols].
  Status many_weights(const std::string& pattern, int count, int rows, int cols,
                      std::vector<std::unique_ptr<Weight>>& out);

 private:
  using Range = Shard::Range;
  // Rows and columns that this rank has of each matrix, after `lead` other columns.
  struct Part {
    Range rows, columns;
    int lead = 0;
    bool experts = false;  // whether they may be moved to a file
  };
  Status many_weights(const std::string& pattern, int count, int rows, int cols, Part& part,
                      std::vector<std::unique_ptr<Weight>>& out);
  // Restores this rank's part of a packed matrix with `cols` inputs.
  Result<std::unique_ptr<Weight>> restore_part(const std::string& name, int first, int cols,
                                               Part& part) {
    if (part.columns.count == cols) return tensors_.restore(name, first, part.rows.count, cols);
    return tensors_.restore_columns(name, first, part.rows.count, part.columns, part.lead);
  }
  // Moves the weight to where it stays and records it under its name.
  Result<std::unique_ptr<Weight>> placed(std::unique_ptr<Weight> weight, const Part& part,
                                         const std::string& name, int first);
  // Loads up or gate projections, and down projections.
  Status ups(const ExpertsSpec& spec, const std::string& pattern, ExpertWeights& out);
  Status downs(const ExpertsSpec& spec, const std::string& pattern, ExpertWeights& out);
  Status biases(const std::string& name, int rows, Range part,
                std::vector<std::unique_ptr<Vector>>& out);
  void add_site(const std::string& at, ExpertProjection projection, const ExpertsSpec& spec,
                ExpertWeights& out);
  struct FusedRows {
    int total;  // rows of one expert in the tensor
    // first row of a matrix among them, and the distance of its rows
    int first, step;
    bool turned = false;  // of NameTable::experts_flat: stored [cols, rows]
    int count = 0;        // experts in the tensor; 0 = all
  };
  Status fused(const std::string& name, const FusedRows& lie, int rows, int cols, Part& part,
               std::vector<std::unique_ptr<Weight>>& out);
  Status fused_biases(const std::string& gate_up, const std::string& down, ExpertWeights& gate,
                      ExpertWeights& up, ExpertWeights& downs);
  bool has_fused(const std::string& at) const;
  Status load_flat(const std::string& at, bool gated, ExpertWeights& gate, ExpertWeights& up,
                   ExpertWeights& down);
  Status load_pinned(const std::string& at, Part& wide, Part& narrow, ExpertWeights& gate,
                     ExpertWeights& up, ExpertWeights& down);
  Status load_fused(const std::string& at, ExpertWeights& gate, ExpertWeights& up,
                    ExpertWeights& down);

  TensorLoader& tensors_;
  const ModelConfig& config_;
  const NameTable& names_;
};

}  // namespace penstock
