// penstock._core: the native module under the Python package. Its objects are plain tuples, lists
// and dictionaries; python/penstock/ has the public classes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cli/console/program.h"
#include "cli/options/models.h"
#include "frontend/embedding_model.h"
#include "parallel/child_ranks.h"
#include "penstock/version.h"
#include "python/model_session.h"

namespace penstock {
namespace {

int run(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const WithoutGil without_gil;
  return run_program(static_cast<int>(arguments.size()), argv.data());
}

// Returns the path of the model, and whether it generates text.
nb::tuple find(const std::string& name) {
  std::string path;
  auto text = [&]() -> Result<bool> {
    const WithoutGil without_gil;
    ASSIGN_OR_RETURN(const auto found, find_model(name));
    path = found.string();
    return is_made_for_pooling(path);
  }();
  return nb::make_tuple(path, value_of(std::move(text)));
}

}  // namespace
}  // namespace penstock

NB_MODULE(_core, module) {
  using namespace penstock;
  using namespace nb::literals;
  module.attr("__version__") = kVersion;
  module.def("run", &run, "arguments"_a, "The penstock program; its exit code.");
  module.def("set_rank_program", &set_rank_program, "command"_a,
             "What is started as the ranks beside this process.");
  module.def("add_model_folder", &add_model_folder, "folder"_a,
             "Where models come with the package.");
  module.def("end_of_interpreter", &end_of_interpreter, "seconds"_a,
             "Lets no thread into the engine any more, and waits for those that are there.");
  module.def("set_engine_error", &set_engine_error, "type"_a);
  module.def(
      "engine_settings",
      [] {
        nb::list names;
        const EngineConfig config;
        EngineConfig::visit(
            config, [&](const char* name, const auto&, const char*) { names.append(name); });
        return names;
      },
      "Names of the engine's settings.");
  module.def("find_model", &find, "name"_a,
             "(path, whether it was made for pooling); may download it.");
  define_tokenizer(module);
  define_model_session(module);
  define_completions(module);
  define_embedding_model(module);
}
