// Importance matrices: the mean square of each input of every linear layer over a calibration text,
// in the GGUF format of llama.cpp.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

class ImportanceMatrix {
 public:
  struct Entry {
    int n_experts = 1;
    std::vector<float> mean_squares;  // [n_experts, cols]
    std::vector<float> counts;        // [n_experts] number of tokens
  };
  // Returns the weights of one matrix's inputs, or null. tensor: GGUF name ("blk.0.attn_q.weight").
  // expert: -1: dense.
  const std::vector<float>* find(const std::string& tensor, int expert) const;
  void add(const std::string& tensor, int expert, std::vector<float> mean_squares, double count);
  bool empty() const { return rows_.empty(); }
  const std::map<std::pair<std::string, int>, std::pair<std::vector<float>, double>>& rows() const {
    return rows_;
  }

  std::string dataset;  // name of the text
  int chunk_size = 0, n_chunks = 0;

 private:
  std::map<std::pair<std::string, int>, std::pair<std::vector<float>, double>> rows_;
};

// Errors: kNotFound, kIo, kCorruptFile.
Result<ImportanceMatrix> read_imatrix(const std::filesystem::path& path);
Status write_imatrix(const ImportanceMatrix& matrix, const std::filesystem::path& path);

}  // namespace penstock
