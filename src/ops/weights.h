// Weights and vectors of a backend, their form for files, and their twins on a device beside it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

// A weight matrix in the backend's layout. It comes from Ops::pack and is used only with its
// backend, or with others of the same name from make_ops() (engines share a model's weights).
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int rows() const = 0;  // output features
  virtual int cols() const = 0;  // input features
  virtual int64_t packed_bytes() const = 0;
  // Returns the same matrix in the form of the device beside this weight's backend (TwinMaker), in
  // the host's memory; null: there is none.
  const Weight* twin() const { return twin_.get(); }
  void set_twin(std::unique_ptr<Weight> twin) { twin_ = std::move(twin); }

 private:
  std::unique_ptr<Weight> twin_;
};

// Lazy packing: a backend may pack weights in the first steps. After this many steps, every weight
// that all steps use is packed.
inline constexpr int kPackingSteps = 6;

// A vector that operations read besides tensors: norm weights, biases, rope frequencies. It comes
// from Ops::pack_vector and is used as a Weight is.
class Vector {
 public:
  virtual ~Vector() = default;
  virtual int size() const = 0;
  // Returns the same vector on the device beside this one's backend; null: there is none.
  const Vector* twin() const { return twin_.get(); }
  void set_twin(std::unique_ptr<Vector> twin) { twin_ = std::move(twin); }

 private:
  std::unique_ptr<Vector> twin_;
};

// A weight in a form for files: `description` is small, `bytes` are 64-byte aligned.
struct StoredWeight {
  std::string description;
  std::span<const std::byte> bytes;
};

// Low-rank term that a LoRA adapter adds to a product x weight^T: (x a^T) b^T. Its scale is folded
// into b.
struct AdapterTerm {
  // [rank, in]; null: the adapter does not change this product
  const Weight* a = nullptr;
  const Weight* b = nullptr;  // [out, rank]
};
// by slot; an adapter beyond its end leaves the product as it is
using AdapterTerms = std::vector<AdapterTerm>;

// Makes what a device's backend needs of experts that lie in the host's memory beside it.
class TwinMaker {
 public:
  virtual ~TwinMaker() = default;
  // Return null where no twins are wanted. Errors: as of Ops::pack() and pack_vector().
  virtual Result<std::unique_ptr<Weight>> twin(const QuantizedMatrix& matrix) = 0;
  virtual Result<std::unique_ptr<Weight>> twin(const GroupedMatrix& matrix, int first_row,
                                               int n_rows) = 0;
  virtual Result<std::unique_ptr<Vector>> twin(std::span<const float> values) = 0;
};

// Gives what was made of `args` its twin, if twins are wanted (not null).
template <class T, class... Args>
Result<std::unique_ptr<T>> with_twin(TwinMaker* twins, Result<std::unique_ptr<T>> made,
                                     const Args&... args) {
  if (!made || twins == nullptr) return made;
  ASSIGN_OR_RETURN(auto twin, twins->twin(args...));
  (*made)->set_twin(std::move(twin));
  return made;
}

}  // namespace penstock
