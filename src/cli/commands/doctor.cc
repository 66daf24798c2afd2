// penstock doctor: shows what this machine has for computing models, and what can be done about it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/planning/known_models.h"
#include "cli/planning/machine_check.h"

namespace penstock {
namespace {

constexpr int kSuggestions = 4;

struct DoctorCommand {
  explicit DoctorCommand(CLI::App& app) {
    app.add_flag("--json", json,
                 "print one JSON object {findings: [{topic, text, advice}], memory_bytes, "
                 "read_bytes_per_second, models: [names that fit, largest last]}");
    app.footer("Reading from memory is measured, which takes about a second.");
  }

  int run() const {
    const MachineCheck check = check_machine();
    if (json) {
      print_json(check);
      return kExitOk;
    }
    for (const Finding& found : check.findings) {
      fmt::print("{:14} {}\n", found.topic, found.text);
      if (!found.advice.empty()) fmt::print("{:14} -> {}\n", "", found.advice);
    }
    const std::string models =
        fitting_models(check.memory, check.read_bytes_per_second, kSuggestions);
    if (!models.empty()) {
      fmt::print("\nmodels that fit, with a conversation of {} tokens (penstock run NAME):\n{}",
                 kConversationTokens, models);
    }
    return kExitOk;
  }

  static void print_json(const MachineCheck& check) {
    nlohmann::json findings = nlohmann::json::array(), models = nlohmann::json::array();
    for (const Finding& found : check.findings) {
      findings.push_back({{"topic", found.topic}, {"text", found.text}, {"advice", found.advice}});
    }
    for (const KnownModel& model : known_models())
      if (needed_memory(model) <= check.memory) models.push_back(model.name);
    fmt::print("{}\n", nlohmann::json{{"findings", findings},
                                      {"memory_bytes", check.memory},
                                      {"read_bytes_per_second", check.read_bytes_per_second},
                                      {"models", models}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  bool json = false;
};

}  // namespace

Action add_doctor(CLI::App& app) {
  auto command = std::make_shared<DoctorCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
