#include "python/tokenizer.h"

#include <nanobind/stl/string.h>

#include "frontend/text_stream.h"

namespace penstock {

std::shared_ptr<const Tokenizer> PyTokenizer::open() const {
  const std::shared_ptr<const void> owner = owner_.lock();
  if (owner == nullptr) raise({ErrorCode::kInternal, "the engine is closed"});
  return {owner, tokenizer_};
}

nb::list PyTokenizer::encode(const std::string& text, bool add_special, bool parse_special) const {
  const auto tokenizer = open();
  std::vector<TokenId> ids;
  {
    const WithoutGil without_gil;
    ids = tokenizer->encode(text, {.add_special = add_special, .parse_special = parse_special});
  }
  return list_of(ids);
}

std::string PyTokenizer::decode(nb::handle ids, bool skip_special) const {
  return open()->decode(ids_of(ids), skip_special);
}

nb::list PyTokenizer::token_texts(nb::handle ids) const {
  const auto tokenizer = open();
  nb::list texts;
  for (const TokenId id : ids_of(ids)) {
    std::string text;
    Utf8Decoder decoder;
    decoder.push(tokenizer->token_bytes(id), text);
    decoder.finish(text);
    texts.append(text);
  }
  return texts;
}

nb::dict PyTokenizer::info() const {
  const auto tokenizer = open();
  const auto id_or_none = [](TokenId id) {
    return id == kNoToken ? nb::none() : nb::object(nb::int_(id));
  };
  nb::dict fields;
  fields["vocab_size"] = tokenizer->vocab_size();
  fields["bos_token_id"] = id_or_none(tokenizer->bos());
  fields["eos_token_id"] = id_or_none(tokenizer->eos());
  fields["unk_token_id"] = id_or_none(tokenizer->unk());
  fields["pad_token_id"] = id_or_none(tokenizer->pad());
  nb::list special;
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_special(id)) special.append(id);
  }
  fields["all_special_ids"] = special;
  fields["end_of_generation_ids"] = list_of(tokenizer->end_of_generation_ids());
  fields["chat_template"] = tokenizer->chat_template();
  return fields;
}

nb::object PyTokenizer::piece_of(TokenId id) const {
  const auto tokenizer = open();
  if (id < 0 || id >= tokenizer->vocab_size()) return nb::none();
  const std::string_view piece = tokenizer->piece(id);
  return nb::steal(
      PyUnicode_DecodeUTF8(piece.data(), static_cast<Py_ssize_t>(piece.size()), "replace"));
}

nb::object PyTokenizer::id_of(const std::string& piece) const {
  const std::optional<TokenId> id = open()->find(piece);
  return id ? nb::object(nb::int_(*id)) : nb::none();
}

void define_tokenizer(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyTokenizer>(module, "NativeTokenizer")
      .def("encode", &PyTokenizer::encode, "text"_a, "add_special"_a = true,
           "parse_special"_a = true)
      .def("decode", &PyTokenizer::decode, "ids"_a, "skip_special"_a = false)
      .def("token_texts", &PyTokenizer::token_texts, "ids"_a)
      .def("info", &PyTokenizer::info)
      .def("piece_of", &PyTokenizer::piece_of, "id"_a)
      .def("id_of", &PyTokenizer::id_of, "piece"_a);
}

}  // namespace penstock
