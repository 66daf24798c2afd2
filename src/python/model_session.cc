#include "python/model_session.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <algorithm>

#include "cli/options/models.h"
#include "frontend/params_json.h"
#include "frontend/pictures/message_videos.h"

namespace penstock {
namespace {

nb::object value_of_metric(const Counter& counter) { return nb::float_(counter.value); }
nb::object value_of_metric(const Gauge& gauge) { return nb::float_(gauge.value); }
template <class Vector>
  requires requires(const Vector& vector) { vector.values; }
nb::object value_of_metric(const Vector& counter) {
  nb::list values;
  for (int i = 0; i < counter.n; ++i) values.append(counter.values[static_cast<size_t>(i)]);
  return values;
}
nb::object value_of_metric(const Histogram& histogram) {
  nb::list bounds, counts;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) bounds.append(histogram.bounds[i]);
  for (size_t i = 0; i <= histogram.bounds.size(); ++i) counts.append(histogram.counts[i]);
  return nb::make_tuple(bounds, counts, histogram.sum, histogram.count);
}

const char* kind_of(const Counter&) { return "counter"; }
const char* kind_of(const Gauge&) { return "gauge"; }
const char* kind_of(const PositionCounter&) { return "vector"; }
const char* kind_of(const PerRank&) { return "vector"; }
const char* kind_of(const Histogram&) { return "histogram"; }

// Leaks the session in a forked process, which has the engine's memory but not its threads, so that
// they cannot be joined.
void let_go(std::shared_ptr<Session> session) { new std::shared_ptr<Session>(std::move(session)); }

}  // namespace

ModelSession::ModelSession(const nb::dict& fields) {
  EngineConfig config = config_of(fields);
  const WithoutGil without_gil;
  auto opened = [&]() -> Result<std::unique_ptr<Session>> {
    RETURN_IF_ERROR(find_models(config));
    return Session::open(config);
  }();
  if (!opened) {
    const nb::gil_scoped_acquire acquire;
    raise(opened.error());
  }
  session_ = std::move(*opened);
  session_->engine().start();
}

ModelSession::~ModelSession() { close(); }

void ModelSession::close() {
  last_setup_.reset();
  std::shared_ptr<Session> session = std::exchange(session_, nullptr);
  if (session == nullptr) return;
  if (owner_ != ::getpid()) return let_go(std::move(session));
  const WithoutGil without_gil(std::nothrow);
  if (session->eyes() != nullptr) session->eyes()->stop();
  session->engine().stop();
  session.reset();
}

std::shared_ptr<Session> ModelSession::session() const {
  if (session_ == nullptr) raise({ErrorCode::kInternal, "the engine is closed"});
  if (owner_ != ::getpid()) {
    raise({ErrorCode::kInternal, fmt::format("the engine belongs to process {}, and this is {}: "
                                             "after a fork no engine runs; open one "
                                             "here, or start processes by spawn",
                                             owner_, ::getpid())});
  }
  return session_;
}

void ModelSession::check_health() const { check(session()->engine().status()); }

nb::dict ModelSession::config() const { return dict_of(session()->engine().config()); }

nb::dict ModelSession::info() const {
  const EngineInfo& info = session()->engine().info();
  nb::dict fields;
  fields["architecture"] = info.architecture.c_str();
  fields["backend"] = info.backend.c_str();
  fields["watches"] = session()->eyes() != nullptr && session()->eyes()->watches();
  fields["sees"] = session()->eyes() != nullptr && session()->eyes()->sees();
  fields["vocab_size"] = info.vocab_size;
  fields["max_model_len"] = info.max_model_len;
  fields["block_size"] = info.block_size;
  fields["n_blocks"] = info.n_blocks;
  fields["kv_bytes"] = info.kv_bytes;
  fields["weight_bytes"] = info.weight_bytes;
  fields["offloaded_bytes"] = info.offloaded_bytes;
  fields["cpu_experts"] = info.cpu_experts.c_str();
  fields["expert_cache_bytes"] = info.expert_cache_bytes;
  fields["expert_twin_bytes"] = info.expert_twin_bytes;
  fields["n_threads"] = info.n_threads;
  fields["eos_token_ids"] = list_of(info.eos_token_ids);
  return fields;
}

nb::object ModelSession::default_params() const {
  return object_of(params_to_json(session()->default_sampling_params()));
}

PreparedParams ModelSession::prepare(const nb::dict& fields) const {
  const std::shared_ptr<Session> session = this->session();
  nlohmann::ordered_json json = json_of(fields, "sampling_params");
  PreparedParams prepared;
  prepared.to_the_end = json.contains("max_tokens") && json["max_tokens"].is_null();
  if (const auto cache = json.find("read_prefix_cache"); cache != json.end() && cache->is_boolean())
    prepared.read_prefix_cache = cache->get<bool>();
  if (const auto budget = json.find("thinking_token_budget");
      budget != json.end() && budget->is_number_integer())
    prepared.thinking_tokens = budget->get<int>();
  auto params = std::make_shared<SamplingParams>();
  auto matcher = [&]() -> Result<std::shared_ptr<const TokenMatcher>> {
    const WithoutGil without_gil;
    RETURN_IF_ERROR(params_from_json(json, *params));
    return session->matcher(*params);
  }();
  prepared.matcher = value_of(std::move(matcher));
  prepared.sampling = std::move(params);
  return prepared;
}

PyTokenizer ModelSession::tokenizer() const {
  const std::shared_ptr<Session> session = this->session();
  return {session, session->tokenizer()};
}

std::shared_ptr<const ChatSetup> ModelSession::chat_setup(const std::string& chat_template) const {
  const std::lock_guard lock(setup_mutex_);
  if (last_setup_ == nullptr || chat_template != last_template_) {
    // Replies are returned unparsed.
    last_setup_ = value_of(
        ChatSetup::open(*session(), {.chat_template = chat_template, .tool_call_parser = "none"}));
    last_template_ = chat_template;
  }
  return last_setup_;
}

nb::tuple ModelSession::read_chat(nb::handle messages, const nb::dict& options) const {
  const std::shared_ptr<Session> session = this->session();
  const auto option = [&](const char* name) {
    return options.contains(name) ? nb::object(options[name]) : nb::object(nb::none());
  };
  Conversation conversation;
  conversation.messages = json_of(messages, "messages", true);
  conversation.tools = json_of(option("tools"), "tools");
  conversation.variables = json_of(option("variables"), "chat_template_kwargs");
  conversation.options = {nb::cast<bool>(option("add_generation_prompt")),
                          nb::cast<bool>(option("continue_final_message"))};
  conversation.any_length = true;
  conversation.picture_settings = json_of(option("picture_settings"), "mm_processor_kwargs");
  const nb::object source = option("chat_template");
  const auto setup = chat_setup(source.is_none() ? std::string() : nb::cast<std::string>(source));
  std::string text;
  auto task = [&] {
    const WithoutGil without_gil;
    return setup->read(std::move(conversation), text);
  }();
  ChatTask read = value_of(std::move(task));
  nb::object pictures = nb::none();
  if (!read.pictures.empty())
    pictures = nb::cast(PlacedPictures{session, std::move(read.pictures)});
  return nb::make_tuple(text, list_of(read.prompt), pictures);
}

nb::tuple ModelSession::render_chat(nb::handle messages, const nb::dict& options) const {
  const nb::tuple read = read_chat(messages, options);
  if (!read[2].is_none()) {
    const auto& placed = nb::cast<const PlacedPictures&>(read[2]);
    raise({ErrorCode::kUnsupported,
           placed.pictures.pictures[0].picture.where +
               ": a prompt of text cannot hold a picture; LLM.chat takes it"});
  }
  return nb::make_tuple(nb::object(read[0]), nb::object(read[1]));
}

namespace {

std::string bytes_in(nb::handle value) {
  const nb::bytes file = nb::cast<nb::bytes>(value);
  return std::string(file.c_str(), file.size());
}

// An image file, or a dictionary of frames and metadata, or of a sound.
Picture picture_in(nb::handle given, size_t index) {
  if (!nb::isinstance<nb::dict>(given)) {
    return {fmt::format("multi_modal_data: image {}", index),
            std::make_shared<const std::string>(bytes_in(given))};
  }
  if (nb::cast<nb::dict>(given).contains("sound")) {
    return {fmt::format("multi_modal_data: audio {}", index),
            std::make_shared<const std::string>(bytes_in(nb::object(given["sound"]))), true};
  }
  auto video = std::make_shared<VideoFrames>();
  for (const nb::handle frame : nb::cast<nb::list>(nb::object(given["frames"])))
    video->files.push_back(bytes_in(frame));
  Picture picture{fmt::format("multi_modal_data: video {}", index),
                  std::make_shared<const std::string>()};
  const Status read = read_video_metadata(
      json_of(nb::object(given["metadata"]), "metadata of a video"), video->info);
  if (!read) throw nb::value_error((picture.where + ": " + read.error().message).c_str());
  picture.video = std::move(video);
  return picture;
}

}  // namespace

nb::tuple ModelSession::place_images(nb::handle prompt, const nb::list& images, nb::handle settings,
                                     bool add_special) const {
  const std::shared_ptr<Session> session = this->session();
  const Prompt given = prompt_of(prompt);
  const nlohmann::json kwargs = json_of(settings, "mm_processor_kwargs");
  std::vector<Picture> pictures;
  size_t n_of_kind[3] = {};  // images, videos, sounds
  for (const nb::handle image : images) {
    const bool is_image = !nb::isinstance<nb::dict>(image);
    const size_t kind = is_image ? 0 : nb::cast<nb::dict>(image).contains("sound") ? 2 : 1;
    pictures.push_back(picture_in(image, n_of_kind[kind]++));
  }
  auto placed = [&] {
    const WithoutGil without_gil;
    return session->place(given, std::move(pictures), {add_special, true}, kwargs);
  }();
  PicturedPrompt result = value_of(std::move(placed));
  return nb::make_tuple(list_of(result.tokens),
                        nb::cast(PlacedPictures{session, std::move(result.pictures)}));
}

namespace {

// Waits for the rows of pictures. Ctrl-C cancels.
EncodedPictures encode(const PlacedPictures& placed) {
  Eyes& eyes = *placed.session->eyes();
  bool interrupted = false;
  auto rows = [&] {
    const WithoutGil without_gil;
    return eyes.encode({.pictures = placed.pictures.pictures}, [&] {
      if (interrupted) return true;
      const nb::gil_scoped_acquire acquire;
      interrupted = PyErr_CheckSignals() != 0;
      return interrupted;
    });
  }();
  if (interrupted) throw nb::python_error();
  return {eyes.embeddings_of(placed.pictures, value_of(std::move(rows)))};
}

}  // namespace

ThinkingBudget ModelSession::thinking_budget(int n_tokens, const std::string& text) const {
  const auto setup = chat_setup("");
  auto budget = setup->thinking_budget(n_tokens, setup->opens_reasoning(text));
  if (!budget) {
    raise(
        {ErrorCode::kInvalidArgument,
         "thinking_token_budget: no marks of reasoning are known for this model's chat template"});
  }
  return std::move(*budget);
}

OpenedAdapter ModelSession::open_adapter(const std::string& path) const {
  const std::shared_ptr<Session> open = session();
  auto adapter = [&] {
    const WithoutGil without_gil;
    return open->engine().open_adapter(path);
  }();
  return {value_of(std::move(adapter))};
}

nb::list ModelSession::metrics() const {
  const std::shared_ptr<Session> session = this->session();
  const Metrics metrics = [&] {
    const WithoutGil without_gil;
    return session->metrics();
  }();
  nb::list list;
  Metrics::visit(metrics, [&](const char* name, const auto& metric, const char* help) {
    list.append(nb::make_tuple(name, kind_of(metric), help, value_of_metric(metric)));
  });
  return list;
}

void ModelSession::set_paused(bool paused) const {
  const std::shared_ptr<Session> session = this->session();
  check([&] {
    const WithoutGil without_gil;
    return session->engine().set_paused(paused);
  }());
}

void ModelSession::reset_prefix_cache() const {
  const std::shared_ptr<Session> session = this->session();
  const WithoutGil without_gil;
  session->engine().reset_prefix_cache();
}

void define_model_session(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PreparedParams>(module, "PreparedParams");
  nb::class_<OpenedAdapter>(module, "OpenedAdapter");
  nb::class_<EncodedPictures>(module, "EncodedPictures");
  nb::class_<PlacedPictures>(module, "PlacedPictures")
      .def_prop_ro("count",  // of pictures and videos, without sounds
                   [](const PlacedPictures& self) {
                     return std::ranges::count_if(
                         self.pictures.pictures,
                         [](const PlannedPicture& one) { return !one.picture.is_sound; });
                   })
      .def_prop_ro("n_sounds",
                   [](const PlacedPictures& self) {
                     return std::ranges::count_if(
                         self.pictures.pictures,
                         [](const PlannedPicture& one) { return one.picture.is_sound; });
                   })
      .def_prop_ro("n_videos",
                   [](const PlacedPictures& self) {
                     return std::ranges::count_if(
                         self.pictures.pictures,
                         [](const PlannedPicture& one) { return one.picture.video != nullptr; });
                   })
      .def("encode", &encode);
  nb::class_<ModelSession>(module, "ModelSession")
      .def(nb::init<const nb::dict&>(), "config"_a)
      .def("close", &ModelSession::close)
      .def_prop_ro("closed", &ModelSession::closed)
      .def("check_health", &ModelSession::check_health)
      .def("config", &ModelSession::config)
      .def("info", &ModelSession::info)
      .def("default_params", &ModelSession::default_params)
      .def("prepare", &ModelSession::prepare, "params"_a)
      .def("tokenizer", &ModelSession::tokenizer)
      .def("render_chat", &ModelSession::render_chat, "messages"_a, "options"_a)
      .def("read_chat", &ModelSession::read_chat, "messages"_a, "options"_a)
      .def("place_images", &ModelSession::place_images, "prompt"_a, "images"_a,
           "settings"_a = nb::none(), "add_special"_a = true)
      .def("open_adapter", &ModelSession::open_adapter, "path"_a)
      .def("metrics", &ModelSession::metrics)
      .def("set_paused", &ModelSession::set_paused, "paused"_a)
      .def("reset_prefix_cache", &ModelSession::reset_prefix_cache);
}

}  // namespace penstock
