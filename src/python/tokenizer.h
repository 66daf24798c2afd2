// A model's tokenizer for Python.
#pragma once
#include <memory>
#include <string>

#include "python/convert.h"
#include "text/tokenizer.h"

namespace penstock {

// Does not keep the model's memory: after the model was closed, calls raise EngineError. REQUIRES:
// the GIL, which encode() releases.
class PyTokenizer {
 public:
  // owner: what the tokenizer lives in.
  PyTokenizer(const std::shared_ptr<const void>& owner, const Tokenizer& tokenizer)
      : owner_(owner), tokenizer_(&tokenizer) {}

  nb::list encode(const std::string& text, bool add_special, bool parse_special) const;
  std::string decode(nb::handle ids, bool skip_special) const;
  // What each token adds to a text.
  nb::list token_texts(nb::handle ids) const;
  nb::dict info() const;
  nb::object piece_of(TokenId id) const;
  nb::object id_of(const std::string& piece) const;

 private:
  std::shared_ptr<const Tokenizer> open() const;

  std::weak_ptr<const void> owner_;
  const Tokenizer* tokenizer_;
};

void define_tokenizer(nb::module_& module);

}  // namespace penstock
