#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "cli/options/models.h"
#include "frontend/chat/chat_prompt.h"
#include "frontend/embedding_model.h"
#include "penstock/embed.h"
#include "python/model_session.h"

namespace penstock {
namespace {

Pooling pooling_of(const std::string& name) {
  constexpr std::pair<const char*, Pooling> kNames[] = {{"mean", Pooling::kMean},
                                                        {"cls", Pooling::kCls},
                                                        {"last", Pooling::kLast},
                                                        {"max", Pooling::kMax}};
  for (const auto& [known, pooling] : kNames) {
    if (name == known) return pooling;
  }
  raise({ErrorCode::kInvalidArgument,
         fmt::format("pooling: expected mean, cls, last or max, got '{}'", name)});
}

class PyEmbeddingModel {
 public:
  explicit PyEmbeddingModel(const nb::dict& fields) {
    EngineConfig config = config_of(fields);
    auto opened = [&]() -> Result<std::unique_ptr<EmbeddingModel>> {
      const WithoutGil without_gil;
      RETURN_IF_ERROR(find_models(config));
      return EmbeddingModel::open(config);
    }();
    model_ = value_of(std::move(opened));
  }

  // None: the checkpoint has no tokenizer.
  nb::object tokenizer() const {
    const Tokenizer* tokenizer = tokenizer_of(*model_);
    return tokenizer == nullptr ? nb::none() : nb::cast(PyTokenizer(model_, *tokenizer));
  }

  // Returns (text, ids) of a conversation, as ModelSession does.
  nb::tuple render_chat(nb::handle messages, const nb::dict& options) const {
    const Tokenizer* tokenizer = tokenizer_of(*model_);
    if (tokenizer == nullptr)
      raise({ErrorCode::kInvalidArgument, "the checkpoint has no tokenizer"});
    const auto option = [&](const char* name) {
      return options.contains(name) ? nb::object(options[name]) : nb::object(nb::none());
    };
    const nb::object source = option("chat_template");
    const auto chat = value_of(ChatPrompter::open(
        *tokenizer, source.is_none() ? std::string() : nb::cast<std::string>(source)));
    const std::string text =
        value_of(chat.render(json_of(messages, "messages"), json_of(option("tools"), "tools"),
                             json_of(option("variables"), "chat_template_kwargs"),
                             {nb::cast<bool>(option("add_generation_prompt")),
                              nb::cast<bool>(option("continue_final_message"))}));
    return nb::make_tuple(
        text, list_of(tokenizer->encode(text, {.add_special = false, .parse_special = true})));
  }

  OpenedAdapter open_adapter(const std::string& path) {
    auto adapter = [&] {
      const WithoutGil without_gil;
      return model_->open_adapter(path);
    }();
    return {value_of(std::move(adapter))};
  }

  nb::dict info() const {
    const EmbeddingInfo info = model_->info();
    nb::dict fields;
    fields["architecture"] = info.architecture.c_str();
    fields["dimensions"] = info.dimensions;
    fields["max_tokens"] = info.max_tokens;
    nb::list names;
    for (const std::string& name : info.prompt_names) names.append(name.c_str());
    fields["prompt_names"] = names;
    nb::list labels;
    for (const std::string& label : info.labels) labels.append(label.c_str());
    fields["labels"] = labels;
    fields["labels_tokens"] = info.labels_tokens;
    return fields;
  }

  // Returns the ids of each input. prompt_name: of the checkpoint's prompts; empty: none, no
  // value: the checkpoint's default.
  nb::list encode(const nb::list& inputs, std::optional<std::string> prompt_name, bool truncate,
                  int truncate_to) {
    const std::vector<Prompt> prompts = prompts_of(inputs);
    const EmbedOptions options{
        .prompt_name = std::move(prompt_name), .truncate = truncate, .truncate_to = truncate_to};
    auto tokens = [&] {
      const WithoutGil without_gil;
      return model_->encode(prompts, options);
    }();
    return lists_of(value_of(std::move(tokens)));
  }

  nb::list encode_pairs(const nb::list& pairs, bool truncate, int truncate_to) {
    const auto texts = pairs_of(pairs);
    auto tokens = [&] {
      const WithoutGil without_gil;
      return model_->encode_pairs(texts, {.truncate = truncate, .truncate_to = truncate_to});
    }();
    return lists_of(value_of(std::move(tokens)));
  }

  // Returns a float32 array for each input (given as ids): [dimensions], or with pooling "all"
  // [tokens, dimensions].
  nb::list embed(const nb::list& inputs, const std::string& pooling, std::optional<bool> normalize,
                 int dimensions, const nb::object& on_progress, const OpenedAdapter* adapter) {
    const std::vector<Prompt> prompts = prompts_of(inputs);
    EmbedOptions options{
        .normalize = normalize, .dimensions = dimensions, .adapter = adapter_of(adapter)};
    const bool of_tokens = pooling == "all";
    if (!pooling.empty() && !of_tokens) options.pooling = pooling_of(pooling);
    if (!of_tokens)
      return followed(
          on_progress, options, [&] { return model_->embed(prompts, options); }, arrays_of);
    return followed(
        on_progress, options, [&] { return model_->embed_tokens(prompts, options); },
        [&](const std::vector<std::vector<float>>& rows) { return rows_of_tokens(rows, prompts); });
  }

  // Returns a float32 array for each input (given as ids): [classes], or with of_tokens [tokens,
  // classes].
  nb::list classify(const nb::list& inputs, bool use_activation, bool of_tokens,
                    const nb::object& on_progress, const OpenedAdapter* adapter) {
    const std::vector<Prompt> prompts = prompts_of(inputs);
    ClassifyOptions options{.use_activation = use_activation, .adapter = adapter_of(adapter)};
    if (!of_tokens)
      return followed(
          on_progress, options, [&] { return model_->classify(prompts, options); }, arrays_of);
    return followed(
        on_progress, options, [&] { return model_->classify_tokens(prompts, options); },
        [&](const std::vector<std::vector<float>>& rows) { return rows_of_tokens(rows, prompts); });
  }

  nb::list score(const nb::list& pairs, bool use_activation, bool truncate, int truncate_to,
                 const nb::object& on_progress, const OpenedAdapter* adapter) {
    const auto texts = pairs_of(pairs);
    ClassifyOptions options{.use_activation = use_activation,
                            .truncate = truncate,
                            .truncate_to = truncate_to,
                            .adapter = adapter_of(adapter)};
    return followed(
        on_progress, options, [&] { return model_->score(texts, options); },
        [](const std::vector<float>& scores) {
          nb::list list;
          for (const float each : scores) list.append(each);
          return list;
        });
  }

 private:
  // Calls `compute` without the GIL and the callback in between; exceptions of the callback and
  // Ctrl-C cancel it.
  template <class Options, class Compute, class Convert>
  static nb::list followed(const nb::object& on_progress, Options& options, const Compute& compute,
                           const Convert& convert) {
    std::exception_ptr raised;
    options.on_progress = [&](size_t n_done, size_t n_total) {
      const nb::gil_scoped_acquire acquire;
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!on_progress.is_none()) on_progress(n_done, n_total);
      } catch (...) {
        raised = std::current_exception();
      }
      return raised == nullptr;
    };
    auto result = [&] {
      const WithoutGil without_gil;
      return compute();
    }();
    if (raised != nullptr) std::rethrow_exception(raised);
    return convert(value_of(std::move(result)));
  }

  static std::shared_ptr<const Adapter> adapter_of(const OpenedAdapter* adapter) {
    return adapter != nullptr ? adapter->adapter : nullptr;
  }

  static nb::list rows_of_tokens(const std::vector<std::vector<float>>& rows,
                                 const std::vector<Prompt>& prompts) {
    nb::list out;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t n = std::get<std::vector<TokenId>>(prompts[i]).size();
      out.append(array_of<2>(rows[i], {n, rows[i].size() / n}));
    }
    return out;
  }

  static std::vector<Prompt> prompts_of(const nb::list& inputs) {
    std::vector<Prompt> prompts;
    for (const nb::handle input : inputs) prompts.push_back(prompt_of(input));
    return prompts;
  }
  static std::vector<std::pair<std::string, std::string>> pairs_of(const nb::list& pairs) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const nb::handle pair : pairs)
      texts.emplace_back(nb::cast<std::string>(pair[0]), nb::cast<std::string>(pair[1]));
    return texts;
  }

  static nb::list lists_of(const std::vector<std::vector<TokenId>>& sequences) {
    nb::list out;
    for (const std::vector<TokenId>& tokens : sequences) {
      nb::list ids;
      for (const TokenId id : tokens) ids.append(id);
      out.append(ids);
    }
    return out;
  }

  template <int kDims>
  static nb::object array_of(const std::vector<float>& from, std::initializer_list<size_t> shape) {
    auto* values = new float[from.size()];
    std::copy(from.begin(), from.end(), values);
    const nb::capsule owner(values,
                            [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<kDims>>(values, shape, owner));
  }
  static nb::list arrays_of(const std::vector<std::vector<float>>& vectors) {
    nb::list out;
    for (const std::vector<float>& vector : vectors)
      out.append(array_of<1>(vector, {vector.size()}));
    return out;
  }

  std::shared_ptr<EmbeddingModel> model_;
};

}  // namespace

void define_embedding_model(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyEmbeddingModel>(module, "EmbeddingModel")
      .def(nb::init<const nb::dict&>(), "config"_a)
      .def("info", &PyEmbeddingModel::info)
      .def("encode", &PyEmbeddingModel::encode, "inputs"_a, "prompt_name"_a.none(), "truncate"_a,
           "truncate_to"_a)
      .def("encode_pairs", &PyEmbeddingModel::encode_pairs, "pairs"_a, "truncate"_a,
           "truncate_to"_a)
      .def("embed", &PyEmbeddingModel::embed, "inputs"_a, "pooling"_a, "normalize"_a.none(),
           "dimensions"_a, "on_progress"_a.none(), "adapter"_a = nb::none())
      .def("classify", &PyEmbeddingModel::classify, "inputs"_a, "use_activation"_a, "of_tokens"_a,
           "on_progress"_a.none(), "adapter"_a = nb::none())
      .def("score", &PyEmbeddingModel::score, "pairs"_a, "use_activation"_a, "truncate"_a,
           "truncate_to"_a, "on_progress"_a.none(), "adapter"_a = nb::none())
      .def("tokenizer", &PyEmbeddingModel::tokenizer)
      .def("render_chat", &PyEmbeddingModel::render_chat, "messages"_a, "options"_a)
      .def("open_adapter", &PyEmbeddingModel::open_adapter, "path"_a);
}

}  // namespace penstock
