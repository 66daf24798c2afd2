// penstock run: a chat in the terminal. Without a chat template every line is continued as text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/options/structured_flags.h"
#include "cli/planning/known_models.h"
#include "penstock/llm.h"

namespace penstock {
namespace {

constexpr const char* kHelp =
    "/help this text   /clear forget the conversation   /undo drop the last exchange   /retry "
    "answer again\n"
    "/history show the conversation   /bye or Ctrl-D leave   Ctrl-C stop the reply\n"
    "/image FILE show the model a picture with the next message\n"
    "/audio FILE let it hear a sound with the next message\n"
    "A line ending in \\ goes on in the next one; \"\"\" starts and ends a text of several "
    "lines.\n";

// Reads one message, which may span lines. Returns false at the end of input.
bool read_message(std::string& message) {
  message.clear();
  const bool prompts = stdout_is_terminal();
  bool quoted = false;
  for (;;) {
    if (prompts) {
      std::fputs(message.empty() && !quoted ? "> " : ". ", stdout);
      std::fflush(stdout);
    }
    std::string line;
    if (!wait_for_line() || !std::getline(std::cin, line)) {
      if (interrupted()) {  // Ctrl-C at the prompt: discard the line
        reset_interrupt();
        std::cin.clear();
        clearerr(stdin);
        message.clear();
        quoted = false;
        std::fputs("\n", stdout);
        continue;
      }
      return !message.empty();
    }
    if (!quoted && message.empty() && line.starts_with("\"\"\"")) {
      quoted = true;
      line = line.substr(3);
    }
    if (quoted && line.ends_with("\"\"\"")) {
      message += line.substr(0, line.size() - 3);
      return true;
    }
    if (!quoted && line.ends_with('\\')) {
      message += line.substr(0, line.size() - 1) + "\n";
      continue;
    }
    message += line;
    if (!quoted) return true;
    message += "\n";
  }
}

class Chat {
 public:
  Chat(LLM& llm, const SamplingParams& params, std::string system)
      : llm_(llm), params_(params), system_(std::move(system)) {
    clear();
  }

  // Executes a line that starts with '/'. Returns false if the chat should end.
  bool command(const std::string& line) {
    if (line == "/bye" || line == "/exit" || line == "/quit") return false;
    if (line == "/clear") {
      clear();
    } else if (line == "/undo") {
      undo();
    } else if (line == "/retry") {
      retry();
    } else if (line == "/history") {
      for (const ChatMessage& message : messages_) {
        for (const ChatImage& image : message.images)
          fmt::print("{}: [{} {}]\n", message.role, image.is_sound ? "sound" : "image", image.name);
        fmt::print("{}: {}\n", message.role, message.content);
      }
    } else if (line.starts_with("/image ") || line.starts_with("/audio ")) {
      const std::vector<std::string> file = {
          line.substr(std::min(line.find_first_not_of(' ', 6), line.size()))};
      auto image = line[1] == 'i' ? read_images(file) : read_images({}, file);
      if (!image) {
        fail(image.error());
      } else {
        show(*std::move(image));
      }
    } else {
      std::fputs(kHelp, stdout);
    }
    return true;
  }

  // Adds images to the next message.
  void show(std::vector<ChatImage> images) {
    std::ranges::move(images, std::back_inserter(images_));
  }

  void say(const std::string& text) {
    messages_.push_back({"user", text});
    messages_.back().images = std::exchange(images_, {});
    reply();
  }

 private:
  void clear() {
    messages_.clear();
    images_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
  }

  void undo() {
    while (!messages_.empty() && messages_.back().role != "system") {
      const bool was_user = messages_.back().role == "user";
      messages_.pop_back();
      if (was_user) break;
    }
  }

  void retry() {
    if (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
    if (!messages_.empty() && messages_.back().role == "user") reply();
  }

  void reply() {
    GenerateOptions options;
    options.should_stop = interrupted;
    options.on_text = [](const TextDelta& delta) {
      std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
      std::fflush(stdout);
      return !interrupted();
    };
    const bool templated = llm_.has_chat_template() || !messages_.back().images.empty();
    auto result = templated ? llm_.chat(messages_, params_, options)
                            : llm_.generate(messages_.back().content, params_, options);
    std::fputs("\n", stdout);
    reset_interrupt();
    if (!result) {
      fail(result.error());
      messages_.pop_back();  // the unanswered message
      return;
    }
    const CompletionOutput& output = result->outputs[0];
    messages_.push_back(output.message.value_or(ChatMessage{"assistant", output.text}));
    if (stderr_is_terminal()) {
      const double seconds = output.stats.decode_seconds;
      fmt::print(
          stderr, "{}\n",
          dim(fmt::format("{} tokens, {:.1f} tokens/s", output.stats.completion_tokens,
                          seconds > 0 ? (output.stats.completion_tokens - 1) / seconds : 0.0)));
    }
  }

  LLM& llm_;
  SamplingParams params_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  std::vector<ChatImage> images_;  // of the next message
};

// Tells that the built-in model tells stories, and which models to chat with fit here.
void suggest_models() {
  constexpr int kMost = 3;
  const std::string models = fitting_models(available_memory(), 0, kMost);
  fmt::print("{}\n",
             dim("This is the built-in model, which tells stories. To chat: penstock run NAME"));
  if (!models.empty()) fmt::print("{}", dim("Of these, which fit this machine:\n" + models));
}

struct RunCommand {
  explicit RunCommand(CLI::App& app) : sampling(app) {
    add_engine_flags(app, config);
    app.remove_option(app.get_option("--model"));
    app.add_option("-m,--model,MODEL", config.model,
                   "GGUF file, Hugging Face directory or name; else the built-in model")
        ->group("Engine");
    structured.add_to(app);
    app.add_option("--system", system, "system message");
    app.add_option("-p,--prompt", first, "first message, sent before the first line is read");
    app.add_option("--image", images,
                   "image file (JPEG, PNG, WebP, GIF or BMP) of the first message, for models that "
                   "see; may be repeated")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_option("--audio", sounds,
                   "sound file (WAV, FLAC, Ogg or MP3) of the first message, for models that hear")
        ->type_name("FILE")
        ->allow_extra_args(false);
  }

  int run() {
    const std::string name = config.model;
    const auto outputs = structured.read();
    if (!outputs) return fail(outputs.error());
    if (const Status found = find_models(config); !found)
      return fail(with_similar_models(found.error(), name));
    auto pictures = read_images(images, sounds);
    if (!pictures) return fail(pictures.error());
    auto llm = LLM::open(config);
    if (!llm) return fail(llm.error());
    SamplingParams defaults = (*llm)->default_sampling_params();
    if (!sampling.given("max_tokens")) defaults.max_tokens = 1024;
    defaults.structured_outputs = *outputs;
    install_interrupt_handler();
    Chat chat(**llm, sampling.over(defaults), system);
    chat.show(*std::move(pictures));
    if (stdout_is_terminal()) {
      fmt::print(
          "{}{}\n", model_label(name, config.model),
          (*llm)->has_chat_template()
              ? "; /help lists the commands"
              : ": no chat template, it goes on from what you type; /help lists the commands");
      if (name.empty()) suggest_models();
    }
    if (!first.empty()) chat.say(first);
    std::string line;
    while (read_message(line)) {
      if (line.empty()) continue;
      if (line[0] == '/') {
        if (!chat.command(line)) break;
      } else {
        chat.say(line);
      }
    }
    if (stdout_is_terminal()) std::fputs("\n", stdout);
    return kExitOk;
  }

  EngineConfig config;
  SamplingFlags sampling;
  StructuredFlags structured;
  std::string system, first;
  std::vector<std::string> images, sounds;
};

}  // namespace

Action add_run(CLI::App& app) {
  auto command = std::make_shared<RunCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
