// What a JSON Schema costs while text is generated, and what its forced text saves: the same number of tokens without
// it, with it, and with it while drafting, in turn.
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
    Engine& plain;     // without speculation
    Engine& drafting;  // the same model
    const std::vector<int>& batches;
    int n_decode = 0, repetitions = 0;
    // Random weights prefer no spelling of a text that a schema forces; then only the tokenizer's own is allowed in all
    // three, which is the one that trained models prefer.
    bool random_weights = false;
    std::string model;  // file or directory that has a tokenizer
    bool json = false;
  };
  Status run(const Setup& setup) const;

 private:
  std::string schema_file_, tokenizer_;
};

}  // namespace penstock
