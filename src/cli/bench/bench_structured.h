// Measures the cost of a JSON Schema during generation and the gain from drafting its forced text:
// the same number of tokens without the schema, with it, and with it and drafting, alternating.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine.h"

namespace penstock {

class StructuredBench {
 public:
  void add_options(CLI::App& app);
  bool wanted() const { return !schema_file_.empty(); }

  struct Setup {
    Engine& plain;     // engine without speculation
    Engine& drafting;  // engine that drafts, with the same model
    const std::vector<int>& batches;
    int n_decode = 0, repetitions = 0;
    // The model has random weights, which prefer no tokenization of forced text. All three runs
    // then allow only the tokenizer's own, which trained models prefer.
    bool random_weights = false;
    std::string model;  // file or directory with the tokenizer
    bool json = false;
  };
  Status run(const Setup& setup) const;

 private:
  std::string schema_file_, tokenizer_;
};

}  // namespace penstock
