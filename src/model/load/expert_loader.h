// Loads the weights of a layer's experts, in every form that files hold them in, and matrices of which there are several of one shape.
#pragma once
#include "model/load/tensor_loader.h"

namespace penstock {

class ExpertLoader {
 public:
  explicit ExpertLoader(TensorLoader& tensors)
      : tensors_(tensors), config_(tensors.config()), names_(tensors.names()) {}

  // `at`: what names of the layer's tensors begin with.
  Status load(const std::string& at, const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
              ExpertWeights& down);
  // One tensor for each of `count`, with the number in the place of {}, or one [count, rows, cols] for all.
  Status many_weights(const std::string& pattern, int count, int rows, int cols,
                      std::vector<std::unique_ptr<Weight>>& out);

 private:
  using Range = Shard::Range;
  // Of each the same rows and columns, behind `lead` other columns.
  struct Part {
    Range rows, columns;
    int lead = 0;
    bool experts = false;  // they may be moved to a file
  };
  Status many_weights(const std::string& pattern, int count, int rows, int cols, Part& part,
                      std::vector<std::unique_ptr<Weight>>& out);
  // Of a matrix with `cols` inputs.
  Result<std::unique_ptr<Weight>> restore_part(const std::string& name, int first, int cols, Part& part) {
    if (part.columns.count == cols) return tensors_.restore(name, first, part.rows.count, cols);
    return tensors_.restore_columns(name, first, part.rows.count, part.columns, part.lead);
  }
  // Notes the weight under its name, in the place where it stays.
  Result<std::unique_ptr<Weight>> placed(std::unique_ptr<Weight> weight, const Part& part,
                                         const std::string& name, int first);
  // Up and gate projections, and down projections.
  Status ups(const ExpertsSpec& spec, const std::string& pattern, ExpertWeights& out);
  Status downs(const ExpertsSpec& spec, const std::string& pattern, ExpertWeights& out);
  Status biases(const std::string& name, int rows, Range part, std::vector<std::unique_ptr<Vector>>& out);
  void add_site(const std::string& at, ExpertProjection projection, const ExpertsSpec& spec,
                ExpertWeights& out);
  struct FusedRows {
    int total;        // of an expert in the tensor
    int first, step;  // where a matrix begins in them, and how far its rows are apart
  };
  Status fused(const std::string& name, const FusedRows& lie, int rows, int cols, Part& part,
               std::vector<std::unique_ptr<Weight>>& out);
  Status fused_biases(const std::string& gate_up, const std::string& down, ExpertWeights& gate,
                      ExpertWeights& up, ExpertWeights& downs);
  bool has_fused(const std::string& at) const;
  Status load_fused(const std::string& at, ExpertWeights& gate, ExpertWeights& up, ExpertWeights& down);

  TensorLoader& tensors_;
  const ModelConfig& config_;
  const NameTable& names_;
};

}  // namespace penstock
