// penstock keys add | list | revoke: the server's file of API keys.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "gateway/api_keys.h"

namespace penstock {
namespace {

struct KeysCommand {
  explicit KeysCommand(CLI::App& app) {
    app.require_subcommand(1);
    add = app.add_subcommand("add", "make a key and print it, once");
    list = app.add_subcommand("list", "show the keys of a file");
    revoke = app.add_subcommand("revoke", "remove a key by its id; a running server follows within a second");
    for (CLI::App* sub : {add, list, revoke}) {
      sub->add_option("-f,--file", file, "the file of keys, as for serve --api-key-file")->required();
    }
    add->add_option("--name", name, "whose key it is");
    add->add_option("--scope", scope, "inference, metrics, admin, separated by commas")
        ->capture_default_str();
    add->add_option("--requests-per-minute", requests_per_minute, "0 is no limit")->capture_default_str();
    add->add_option("--tokens-per-minute", tokens_per_minute, "prompt and completion tokens; 0 is no limit")
        ->capture_default_str();
    revoke->add_option("id", id, "as `list` shows it")->required();
  }

  int run_add() const {
    auto scopes = parse_scopes(scope);
    if (!scopes) return fail(scopes.error());
    auto records = read_key_file(file);
    if (!records && records.error().code != ErrorCode::kNotFound) return fail(records.error());
    auto made = make_api_key(name, *scopes, requests_per_minute, tokens_per_minute);
    if (!made) return fail(made.error());
    std::vector<ApiKeyRecord> all = records ? std::move(*records) : std::vector<ApiKeyRecord>();
    all.push_back(made->record);
    if (const Status written = write_key_file(file, all); !written) return fail(written.error());
    std::printf("%s\n", made->key.c_str());
    return kExitOk;
  }

  int run_list() const {
    auto records = read_key_file(file);
    if (!records) return fail(records.error());
    std::printf("%-12s  %-16s  %-24s  %10s  %10s  %s\n", "id", "created", "scopes", "req/min", "tok/min",
                "name");
    for (const ApiKeyRecord& record : *records) {
      char created[32] = "";
      const std::time_t time = record.created;
      std::tm parts{};
      if (gmtime_r(&time, &parts) != nullptr)
        std::strftime(created, sizeof(created), "%Y-%m-%d %H:%M", &parts);
      std::printf("%-12s  %-16s  %-24s  %10g  %10g  %s\n", record.id.c_str(), created,
                  scope_names(record.scopes).c_str(), record.requests_per_minute, record.tokens_per_minute,
                  record.name.c_str());
    }
    return kExitOk;
  }

  int run_revoke() const {
    auto records = read_key_file(file);
    if (!records) return fail(records.error());
    if (std::erase_if(*records, [&](const ApiKeyRecord& record) { return record.id == id; }) == 0) {
      return fail({ErrorCode::kNotFound, fmt::format("key file {}: no key {}", file, id)});
    }
    if (const Status written = write_key_file(file, *records); !written) return fail(written.error());
    return kExitOk;
  }

  CLI::App *add, *list, *revoke;
  std::string file, name, id, scope = "inference";
  double requests_per_minute = 0, tokens_per_minute = 0;
};

}  // namespace

Action add_keys(CLI::App& app) {
  auto command = std::make_shared<KeysCommand>(app);
  return [command] {
    if (command->add->parsed()) return command->run_add();
    return command->list->parsed() ? command->run_list() : command->run_revoke();
  };
}

}  // namespace penstock
