// A model on disk, of any file format: configuration, tensors in the file's encodings, and side
// files.
//
// Tensors and config keep the names of their format (GGUF's or Hugging Face's); model/weights.cc
// knows both. All spans point into memory maps owned by the source and live as long as it does.
// Immutable after open: any thread may read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

class Prequantized;

enum class Naming : uint8_t { kGguf, kHuggingFace };

struct TensorInfo {
  std::string name;
  QuantType type = QuantType::kF32;
  // outermost first: a weight is [rows, cols], experts [n_experts, rows, cols]
  std::vector<int64_t> shape;
  // exactly the encoded elements; safetensors may leave them unaligned
  std::span<const std::byte> bytes;

  int64_t n_elements() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
};

// A file that tensors come from, with its stamp at the time of opening.
struct SourceFile {
  std::filesystem::path path;
  FileStamp stamp;
};

// A matrix as it was encoded at load: of a type of quant/, or by group.
struct EncodedMatrix {
  QuantizedMatrix view;
  std::vector<std::byte> storage;        // what either of them views
  std::optional<GroupedMatrix> grouped;  // if set, `view` is unused
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual Naming naming() const = 0;
  virtual const std::filesystem::path& path() const = 0;

  // The configuration. GGUF: every metadata pair as one flat object ("llama.block_count": 16; long
  // arrays included as arrays). Values are as the file has them: strings may hold bytes that are
  // not UTF-8 (dump with error_handler_t::replace). Hugging Face: config.json.
  virtual const nlohmann::json& config() const = 0;
  // generation_config.json, or an empty object. GGUF: general.sampling.* by its names.
  virtual const nlohmann::json& generation_config() const = 0;

  // The tensors in file order; names are unique.
  virtual std::span<const TensorInfo> tensors() const = 0;
  // The tensor of this name; nullptr when there is none.
  virtual const TensorInfo* find(std::string_view name) const;

  // Returns the content of a file beside the weights ("tokenizer.json", "tokenizer.model",
  // "tokenizer_config.json", "chat_template.jinja", "1_Pooling/config.json"); nothing when there is
  // no such file. GGUF files have none: their tokenizer is in config().
  virtual std::optional<std::string> side_file(std::string_view name) const = 0;

  // Quantized linear layers made of several tensors that the configuration does not describe
  // (formats/prequantized.h); null: none. Owned by the source.
  virtual const Prequantized* grouped_layers() const { return nullptr; }

  // Whether matrices of several experts that this tensor holds, in an order of its own, are encoded at
  // load, by encode_expert().
  virtual bool encodes_experts(const TensorInfo& tensor) const {
    (void)tensor;
    return false;
  }
  // Encodes rows with all inputs of one of them. REQUIRES: encodes_experts(). Errors: kCorruptFile (a
  // number that is not finite).
  virtual Result<EncodedMatrix> encode_expert(const TensorInfo& tensor,
                                              const QuantizedMatrix& rows) const {
    (void)rows;
    return make_error(ErrorCode::kUnsupported, tensor.name + ": experts are not encoded");
  }

  // The files that hold the tensors; none for synthetic tensors.
  virtual std::vector<SourceFile> files() const { return {}; }

  // Tells the system that only parts of the tensors will be read: it then reads no pages around
  // those touched, and read_ahead() should be called for the parts.
  virtual void expect_parts() const {}
  // Begins to read a part that is about to be used into memory.
  virtual void read_ahead(const ByteLines& part) const { (void)part; }

  // Tells the system that this tensor's pages will not be read again soon.
  virtual void drop(const TensorInfo& tensor) const = 0;
};

// Returns the values of a whole tensor in F32. Error: kCorruptFile unless it exists, has this shape
// and holds real numbers.
Result<std::vector<float>> read_values(const WeightSource& source, std::string_view name,
                                       std::span<const int64_t> shape);

// Opens a GGUF file (or the first file of a sharded one) or a Hugging Face directory; the format is
// detected by content, not by name. A single .safetensors file opens as its directory with only
// that file's tensors.
Result<std::unique_ptr<WeightSource>> open_weights(const std::filesystem::path& path);

}  // namespace penstock
