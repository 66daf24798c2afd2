#include "python/logits_processor.h"

#include <nanobind/ndarray.h>

#include <algorithm>

namespace penstock {
namespace {

// Returns a copy, since the engine reuses the memory.
nb::object array_of(std::span<const float> values) {
  auto* copy = new float[values.size()];
  std::ranges::copy(values, copy);
  const nb::capsule owner(copy,
                          [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(copy, {values.size()}, owner));
}

// Returns what a function has returned as an array of float32; tensors of torch, too.
nb::object floats_of(const nb::object& values) {
  nb::object own = values;
  if (nb::hasattr(own, "detach"))
    own = own.attr("detach")().attr("cpu")().attr("float")().attr("numpy")();
  return nb::module_::import_("numpy").attr("ascontiguousarray")(own, nb::arg("dtype") = "float32");
}

}  // namespace

PythonLogitsProcessor::~PythonLogitsProcessor() {
  const nb::gil_scoped_acquire gil;
  functions_.reset();
  exception_.reset();
}

void PythonLogitsProcessor::process(std::span<const TokenId> tokens, int n_prompt,
                                    std::span<float> logits) {
  const nb::gil_scoped_acquire gil;
  if (failed_) return;
  try {
    nb::object array = array_of(logits);
    const auto prompt_size = static_cast<size_t>(n_prompt);
    const nb::list output = list_of(tokens.subspan(prompt_size));
    for (const nb::handle row : functions_) {
      const nb::object function = row[0];
      const nb::object changed = nb::cast<bool>(row[1])
                                     ? function(list_of(tokens.first(prompt_size)), output, array)
                                     : function(output, array);
      if (!changed.is_none()) array = floats_of(changed);
    }
    const auto changed =
        nb::cast<nb::ndarray<nb::numpy, const float, nb::ndim<1>, nb::c_contig>>(array);
    // A function may have made another array of it (logits.dtype = ...).
    if (changed.size() != logits.size())
      throw nb::value_error("a logits processor left another number of logits");
    std::copy_n(changed.data(), logits.size(), logits.begin());
    // NaN cannot be ordered.
    for (float& logit : logits) {
      if (!(logit <= 3e38f))
        throw nb::value_error("a logits processor left NaN or infinity among the logits");
    }
  } catch (nb::python_error& error) {
    failed_ = true;
    exception_ = nb::borrow(error.value());
  } catch (const std::exception& error) {
    failed_ = true;
    exception_ = nb::handle(PyExc_ValueError)(error.what());
  }
}

}  // namespace penstock
