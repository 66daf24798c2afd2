#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "cli/models.h"
#include "penstock/embed.h"
#include "python/model_session.h"

namespace penstock {
namespace {

Pooling pooling_of(const std::string& name) {
  constexpr std::pair<const char*, Pooling> kNames[] = {
      {"mean", Pooling::kMean}, {"cls", Pooling::kCls}, {"last", Pooling::kLast}, {"max", Pooling::kMax}};
  for (const auto& [known, pooling] : kNames) {
    if (name == known) return pooling;
  }
  raise(
      {ErrorCode::kInvalidArgument, fmt::format("pooling: expected mean, cls, last or max, got '{}'", name)});
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
    return fields;
  }

  // [n, dimensions] of float32.
  nb::object embed(const nb::list& inputs, const std::string& pooling, std::optional<bool> normalize,
                   int dimensions, bool truncate, const nb::object& on_progress) {
    std::vector<Prompt> prompts;
    for (const nb::handle input : inputs) prompts.push_back(prompt_of(input));
    EmbedOptions options;
    if (!pooling.empty()) options.pooling = pooling_of(pooling);
    options.normalize = normalize;
    options.dimensions = dimensions;
    options.truncate = truncate;
    return followed(on_progress, options, [&] { return model_->embed(prompts, options); }, array_of_rows);
  }

  // [n, classes] of float32.
  nb::object classify(const nb::list& inputs, bool use_activation, bool truncate,
                      const nb::object& on_progress) {
    std::vector<Prompt> prompts;
    for (const nb::handle input : inputs) prompts.push_back(prompt_of(input));
    ClassifyOptions options{.use_activation = use_activation, .truncate = truncate};
    return followed(on_progress, options, [&] { return model_->classify(prompts, options); }, array_of_rows);
  }

  nb::object score(const nb::list& pairs, bool use_activation, bool truncate, const nb::object& on_progress) {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const nb::handle pair : pairs)
      texts.emplace_back(nb::cast<std::string>(pair[0]), nb::cast<std::string>(pair[1]));
    ClassifyOptions options{.use_activation = use_activation, .truncate = truncate};
    return followed(
        on_progress, options, [&] { return model_->score(texts, options); },
        [](const std::vector<float>& scores) {
          nb::list list;
          for (const float each : scores) list.append(each);
          return nb::object(list);
        });
  }

 private:
  // Calls `compute` without the GIL, and in between the callback, whose exceptions and Ctrl-C end it.
  template <class Options, class Compute, class Convert>
  static nb::object followed(const nb::object& on_progress, Options& options, const Compute& compute,
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

  static nb::object array_of_rows(const std::vector<std::vector<float>>& rows) {
    const size_t n = rows.size(), width = rows.empty() ? 0 : rows[0].size();
    auto* values = new float[n * width];
    for (size_t i = 0; i < n; ++i) std::copy(rows[i].begin(), rows[i].end(), values + i * width);
    const nb::capsule owner(values, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(values, {n, width}, owner));
  }

  std::unique_ptr<EmbeddingModel> model_;
};

}  // namespace

void define_embedding_model(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyEmbeddingModel>(module, "EmbeddingModel")
      .def(nb::init<const nb::dict&>(), "config"_a)
      .def("info", &PyEmbeddingModel::info)
      .def("embed", &PyEmbeddingModel::embed, "inputs"_a, "pooling"_a = "", "normalize"_a = nb::none(),
           "dimensions"_a = 0, "truncate"_a = false, "on_progress"_a = nb::none())
      .def("classify", &PyEmbeddingModel::classify, "inputs"_a, "use_activation"_a = true,
           "truncate"_a = false, "on_progress"_a = nb::none())
      .def("score", &PyEmbeddingModel::score, "pairs"_a, "use_activation"_a = true, "truncate"_a = false,
           "on_progress"_a = nb::none());
}

}  // namespace penstock
