// penstock keys add | list | revoke: edits the server's file of API keys. keys usage | audit:
// prints the records of the server's key store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/locale_free.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "server/keys/ledger/api_keys.h"
#include "server/keys/ledger/usage.h"
#include "server/store/audit.h"

namespace penstock {
namespace {

std::string time_text(int64_t unix_time) {
  char text[32] = "";
  const std::time_t time = unix_time;
  std::tm parts{};
  if (gmtime_r(&time, &parts) != nullptr)
    locale_free_strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts);
  return text;
}

// Returns a text such as "1000 tok/day, 5 cost/month".
std::string budget_text(const Budget& budget) {
  std::string text;
  Budget::visit(budget, [&](std::string_view name, double limit) {
    if (limit <= 0) return;
    text += fmt::format("{}{:g} {}/{}", text.empty() ? "" : ", ", limit,
                        name.starts_with("cost") ? "cost" : "tok",
                        name.ends_with("day") ? "day" : "month");
  });
  return text.empty() ? "-" : text;
}

nlohmann::ordered_json use_row_json(const UseRow& row) {
  return {
      {"day", row.day == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(day_text(row.day))},
      {"key", row.key},
      {"model", row.model},
      {"requests", row.use.requests},
      {"input_tokens", row.use.input_tokens},
      {"cached_tokens", row.use.cached_tokens},
      {"output_tokens", row.use.output_tokens},
      {"seconds", static_cast<double>(row.use.microseconds) * 1e-6},
      {"cost", row.use.cost()}};
}

void print_json(const nlohmann::ordered_json& value) {
  fmt::print("{}\n", value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

struct KeysCommand {
  explicit KeysCommand(CLI::App& app) {
    app.require_subcommand(1);
    add = app.add_subcommand("add", "make a key and print it, once");
    list = app.add_subcommand("list", "show the keys of a file");
    revoke = app.add_subcommand("revoke",
                                "remove a key by its id; a running server follows within a second");
    for (CLI::App* sub : {add, list, revoke}) {
      sub->add_option("-f,--file", file, "the file of keys, as for serve --api-key-file")
          ->required();
    }
    usage = app.add_subcommand("usage", "show the use of keys, from the server's data directory");
    audit = app.add_subcommand("audit", "show administrative acts, newest first");
    for (CLI::App* sub : {usage, audit}) {
      sub->add_option("-d,--data-dir", data_dir, "as for serve; the server may be running")
          ->required();
      sub->add_flag("--json", json, "print a JSON object on each line");
    }
    usage->add_option("-f,--file", file, "the file of keys, for their names");
    usage->add_option("--start", start, "first day, 2026-01-31 (default: of this month)");
    usage->add_option("--end", end, "last day (default: today)");
    usage->add_option("--key", id, "only this key");
    usage->add_option("--by", by, "grouping of the sums: day, key, model, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember({"day", "key", "model"}))
        ->default_str("day,key,model");
    audit->add_option("-n,--limit", limit, "entries")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    add->add_option("--name", name, "name of the key's owner");
    add->add_option("--scope", scope, "inference, metrics, admin, separated by commas")
        ->capture_default_str();
    add->add_option("--requests-per-minute", requests_per_minute, "0 is no limit")
        ->capture_default_str();
    add->add_option("--tokens-per-minute", tokens_per_minute,
                    "prompt and completion tokens; 0 is no limit")
        ->capture_default_str();
    Budget::visit(budget, [&](std::string field, double& limit_of_it) {
      const bool tokens = field.starts_with("tokens");
      std::ranges::replace(field, '_', '-');
      add->add_option("--" + field, limit_of_it,
                      tokens ? "budget, in UTC; 0 is no limit"
                             : "budget, by the prices in --models-config; 0 is no limit")
          ->capture_default_str();
    });
    revoke->add_option("id", id, "as `list` shows it")->required();
  }

  int run_add() const {
    auto scopes = parse_scopes(scope);
    if (!scopes) return fail(scopes.error());
    auto records = read_key_file(file);
    if (!records && records.error().code != ErrorCode::kNotFound) return fail(records.error());
    auto made = make_api_key(name, *scopes, requests_per_minute, tokens_per_minute, budget);
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
    std::printf("%-12s  %-16s  %-24s  %10s  %10s  %-16s  %s\n", "id", "created", "scopes",
                "req/min", "tok/min", "budget", "name");
    for (const ApiKeyRecord& record : *records) {
      std::printf("%-12s  %-16s  %-24s  %10g  %10g  %-16s  %s\n", record.id.c_str(),
                  time_text(record.created).c_str(), scope_names(record.scopes).c_str(),
                  record.requests_per_minute, record.tokens_per_minute,
                  budget_text(record.budget).c_str(), record.name.c_str());
    }
    return kExitOk;
  }

  int run_revoke() const {
    auto records = read_key_file(file);
    if (!records) return fail(records.error());
    if (std::erase_if(*records, [&](const ApiKeyRecord& record) { return record.id == id; }) == 0) {
      return fail({ErrorCode::kNotFound, fmt::format("key file {}: no key {}", file, id)});
    }
    if (const Status written = write_key_file(file, *records); !written)
      return fail(written.error());
    return kExitOk;
  }

  Result<std::vector<UseRow>> read_rows(Database& database) const {
    UseQuery query;
    query.last_day = day_of(static_cast<int64_t>(std::time(nullptr)));
    query.first_day = first_day_of_month(query.last_day);
    if (!start.empty()) {
      ASSIGN_OR_RETURN(query.first_day, day_of_text(start));
    }
    if (!end.empty()) {
      ASSIGN_OR_RETURN(query.last_day, day_of_text(end));
    }
    query.key = id, query.all_keys = id.empty();
    ASSIGN_OR_RETURN(auto rows, read_use(database, query));
    const auto asked = [&](const char* what) {
      return by.empty() || std::ranges::find(by, what) != by.end();
    };
    std::map<std::tuple<int64_t, std::string, std::string>, UseCounts> sums;
    for (const UseRow& row : rows) {
      sums[{asked("day") ? row.day : 0, asked("key") ? row.key : "",
            asked("model") ? row.model : ""}] += row.use;
    }
    rows.clear();
    for (const auto& [place, use] : sums)
      rows.push_back({std::get<0>(place), std::get<1>(place), std::get<2>(place), use});
    return rows;
  }

  int run_usage() const {
    auto database = Store::open_database(data_dir);
    if (!database) return fail(database.error());
    auto rows = read_rows(**database);
    if (!rows) return fail(rows.error());
    std::map<std::string, std::string> names;
    if (!file.empty()) {
      auto records = read_key_file(file);
      if (!records) return fail(records.error());
      for (const ApiKeyRecord& record : *records) names[record.id] = record.name;
    }
    if (!json) {
      fmt::print("{:10}  {:12}  {:24}  {:>9}  {:>12}  {:>12}  {:>12}  {:>10}  {:>12}  {}\n", "day",
                 "key", "model", "requests", "input", "cached", "output", "seconds", "cost",
                 file.empty() ? "" : "name");
    }
    UseCounts total;
    for (const UseRow& row : *rows) {
      total += row.use;
      if (json)
        print_json(use_row_json(row));
      else
        print_row(row, names);
    }
    if (!json) print_row({0, "", "total", total}, {});
    return kExitOk;
  }

  static void print_row(const UseRow& row, const std::map<std::string, std::string>& names) {
    const auto name = names.find(row.key);
    fmt::print("{:10}  {:12}  {:24}  {:>9}  {:>12}  {:>12}  {:>12}  {:>10.1f}  {:>12.6f}  {}\n",
               row.day == 0 ? "" : day_text(row.day), row.key, row.model, row.use.requests,
               row.use.input_tokens, row.use.cached_tokens, row.use.output_tokens,
               static_cast<double>(row.use.microseconds) * 1e-6, row.use.cost(),
               name == names.end() ? "" : name->second);
  }

  int run_audit() const {
    auto database = Store::open_database(data_dir);
    if (!database) return fail(database.error());
    const auto entries = read_audit(**database, INT64_MAX, limit);
    if (!entries) return fail(entries.error());
    for (const AuditEntry& one : *entries) {
      if (json)
        print_json({{"number", one.number},
                    {"time", one.time},
                    {"key", one.key},
                    {"peer", one.peer},
                    {"act", one.act},
                    {"about", one.about},
                    {"status", one.status}});
      else
        fmt::print("{}  {:12}  {:15}  {:3}  {}  {}\n", time_text(one.time), one.key, one.peer,
                   one.status == 0 ? "" : std::to_string(one.status), one.act, one.about);
    }
    return kExitOk;
  }

  int run() const {
    if (add->parsed()) return run_add();
    if (list->parsed()) return run_list();
    if (usage->parsed()) return run_usage();
    return audit->parsed() ? run_audit() : run_revoke();
  }

  CLI::App *add, *list, *revoke, *usage, *audit;
  std::string file, name, id, data_dir, start, end, scope = "inference";
  std::vector<std::string> by;
  int64_t limit = 50;
  bool json = false;
  Budget budget;
  double requests_per_minute = 0, tokens_per_minute = 0;
};

}  // namespace

Action add_keys(CLI::App& app) {
  auto command = std::make_shared<KeysCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
