#include "frontend/class_head.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "formats/tensor_rows.h"

namespace penstock {
namespace {

using ConfigJson = nlohmann::json;

constexpr int64_t kMostClasses = 1 << 20;

// The classification head of one of transformers' encoder classes.
struct HeadRow {
  std::string_view architecture;
  std::string_view dense;   // first layer
  std::string_view output;  // layer that gives the logits
  DenseModule::Function function;
};
constexpr HeadRow kHeads[] = {
    {"BertForSequenceClassification", "bert.pooler.dense", "classifier",
     DenseModule::Function::kTanh},
    {"RobertaForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kTanh},
    {"XLMRobertaForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kTanh},
    {"CamembertForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kTanh},
    {"DistilBertForSequenceClassification", "pre_classifier", "classifier",
     DenseModule::Function::kRelu},
    {"ElectraForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kGelu},
    {"MPNetForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kTanh},
    {"DebertaV2ForSequenceClassification", "pooler.dense", "classifier",
     DenseModule::Function::kGelu},
    {"JinaBertForSequenceClassification", "bert.pooler.dense", "classifier",
     DenseModule::Function::kTanh},
    {"NeoBERTForSequenceClassification", "dense", "classifier", DenseModule::Function::kTanh},
    {"JinaEmbeddingsV3ForSequenceClassification", "classifier.dense", "classifier.out_proj",
     DenseModule::Function::kTanh},
    {"GteForSequenceClassification", "gte.pooler.dense", "classifier",
     DenseModule::Function::kTanh},
    {"NewForSequenceClassification", "new.pooler.dense", "classifier",
     DenseModule::Function::kTanh},
    {"ModernBertForSequenceClassification", "head.dense", "classifier",
     DenseModule::Function::kGelu},
};

// Encoders that classify every token by a single matrix.
constexpr std::string_view kTokenHeads[] = {
    "BertForTokenClassification",       "RobertaForTokenClassification",
    "XLMRobertaForTokenClassification", "CamembertForTokenClassification",
    "DistilBertForTokenClassification", "ElectraForTokenClassification",
    "MPNetForTokenClassification",      "DebertaV2ForTokenClassification",
};

class HeadReader {
 public:
  HeadReader(const WeightSource& source, int dim, bool causal, const Tokenizer* tokenizer)
      : source_(source), dim_(dim), causal_(causal), tokenizer_(tokenizer) {}

  Result<std::optional<ClassHead>> read() {
    const bool gguf = source_.naming() == Naming::kGguf;
    ASSIGN_OR_RETURN(const bool there, gguf ? read_gguf() : read_directory());
    if (!there) return std::nullopt;
    return std::move(head_);
  }

 private:
  // Appends a layer with `cols` inputs. The number of its outputs is that of the weight's rows.
  Status add(std::string_view name, int cols, DenseModule::Function function) {
    const std::string weight = std::string(name) + ".weight", bias = std::string(name) + ".bias";
    const TensorInfo* info = source_.find(weight);
    if (info == nullptr || info->shape.empty() || info->shape[0] < 1 ||
        info->shape[0] > kMostClasses) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: {}: a classification head needs this matrix, of {} columns",
                    source_.path().string(), weight, cols);
    }
    DenseModule layer;
    layer.rows = static_cast<int>(info->shape[0]), layer.cols = cols, layer.function = function;
    ASSIGN_OR_RETURN(layer.weight,
                     read_values(source_, weight, std::array<int64_t, 2>{layer.rows, layer.cols}));
    if (source_.find(bias) != nullptr) {
      ASSIGN_OR_RETURN(layer.bias, read_values(source_, bias, std::array<int64_t, 1>{layer.rows}));
    }
    head_.dense.push_back(std::move(layer));
    return {};
  }

  Status add_norm(const std::string& name, double eps) {
    if (source_.find(name + ".weight") == nullptr) return {};
    DenseModule& layer = head_.dense.back();
    const std::array<int64_t, 1> shape = {layer.rows};
    ASSIGN_OR_RETURN(layer.norm_weight, read_values(source_, name + ".weight", shape));
    if (source_.find(name + ".bias") != nullptr) {
      ASSIGN_OR_RETURN(layer.norm_bias, read_values(source_, name + ".bias", shape));
    }
    layer.norm_eps = eps;
    return {};
  }

  Result<bool> read_directory() {
    const ConfigJson& config = source_.config();
    const auto listed = config.find("architectures");
    if (listed == config.end() || !listed->is_array() || listed->empty() ||
        !(*listed)[0].is_string())
      return false;
    const std::string name = (*listed)[0];
    if (name.ends_with("ForTokenClassification")) return read_token_head(name);
    if (!name.ends_with("ForSequenceClassification")) return false;
    if (const auto tokens = config.find("classifier_from_token");
        tokens != config.end() && !tokens->is_null())
      return read_output_rows(*tokens);
    const auto* row = std::ranges::find(kHeads, name, &HeadRow::architecture);
    if (row == std::end(kHeads) && !causal_)
      return errorf(ErrorCode::kUnsupported, "{}: architectures: the head of {} is not known",
                    source_.path().string(), name);
    if (row == std::end(kHeads)) {
      head_.pooling = Pooling::kLast;
      RETURN_IF_ERROR(add("score", dim_, DenseModule::Function::kNone));
    } else {
      RETURN_IF_ERROR(add(row->dense, dim_, row->function));
      if (name.starts_with("ModernBert")) RETURN_IF_ERROR(read_modern(config));
      RETURN_IF_ERROR(add(row->output, head_.dense.back().rows, DenseModule::Function::kNone));
    }
    read_labels(config);
    RETURN_IF_ERROR(read_activation(config));
    return true;
  }

  Result<bool> read_token_head(const std::string& name) {
    head_.of_tokens = true;
    if (name == "ModernBertForTokenClassification") {
      RETURN_IF_ERROR(add("head.dense", dim_, DenseModule::Function::kGelu));
      RETURN_IF_ERROR(read_modern(source_.config()));
      head_.pooling = Pooling::kCls;
      RETURN_IF_ERROR(add("classifier", head_.dense.back().rows, DenseModule::Function::kNone));
    } else if (std::ranges::find(kTokenHeads, name) != std::end(kTokenHeads)) {
      RETURN_IF_ERROR(add("classifier", dim_, DenseModule::Function::kNone));
    } else if (causal_) {
      RETURN_IF_ERROR(add("score", dim_, DenseModule::Function::kNone));
    } else {
      return errorf(ErrorCode::kUnsupported, "{}: architectures: the head of {} is not known",
                    source_.path().string(), name);
    }
    read_labels(source_.config());
    RETURN_IF_ERROR(read_activation(source_.config()));
    return true;
  }

  // Makes a head of the output matrix' rows of one or two tokens. With two, such as
  // Qwen3-Reranker's ("no", "yes"), the only logit is the difference: second minus first.
  Result<bool> read_output_rows(const ConfigJson& tokens) {
    const std::string where = source_.path().string() + ": classifier_from_token";
    if (!causal_ || !tokens.is_array() || tokens.empty() || tokens.size() > 2)
      return errorf(ErrorCode::kUnsupported, "{}: expected one or two tokens of a decoder, got {}",
                    where, tokens.dump());
    const ConfigJson& config = source_.config();
    const bool two = tokens.size() == 2;
    const ConfigJson original = config.value("is_original_qwen3_reranker", ConfigJson(false));
    const ConfigJson method = config.value(
        "method", ConfigJson(original == true ? "from_2_way_softmax" : "no_post_processing"));
    if (method != (two ? "from_2_way_softmax" : "no_post_processing"))
      return errorf(ErrorCode::kUnsupported,
                    "{}: expected method from_2_way_softmax with two tokens or no_post_processing "
                    "with one, got {} with {}",
                    where, method.dump(), tokens.size());
    DenseModule layer;
    layer.rows = 1, layer.cols = dim_;
    layer.weight.assign(static_cast<size_t>(dim_), 0.0f);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSIGN_OR_RETURN(const std::vector<float> row, output_row(tokens[i], where));
      for (size_t c = 0; c < row.size(); ++c) layer.weight[c] += two && i == 0 ? -row[c] : row[c];
    }
    head_.pooling = Pooling::kLast;
    head_.dense.push_back(std::move(layer));
    read_labels(ConfigJson::object());
    RETURN_IF_ERROR(read_activation(config));
    return true;
  }

  Result<std::vector<float>> output_row(const ConfigJson& token, const std::string& where) {
    const auto id = tokenizer_ != nullptr && token.is_string()
                        ? tokenizer_->find(token.get_ref<const std::string&>())
                        : std::nullopt;
    if (!id) return errorf(ErrorCode::kInvalidArgument, "{}: {} is no token", where, token.dump());
    const bool tied = source_.find("lm_head.weight") == nullptr;
    return read_row(source_, tied ? "model.embed_tokens.weight" : "lm_head.weight", *id, dim_);
  }

  // Reads the settings and the layer norm of ModernBERT's head.
  Status read_modern(const ConfigJson& config) {
    const ConfigJson pooling = config.value("classifier_pooling", ConfigJson("cls"));
    if (pooling != "cls" && pooling != "mean") {
      return errorf(ErrorCode::kUnsupported, "{}: classifier_pooling: expected cls or mean, got {}",
                    source_.path().string(), pooling.dump());
    }
    if (pooling == "mean") head_.pooling = Pooling::kMean;
    const ConfigJson function = config.value("classifier_activation", ConfigJson("gelu"));
    if (function != "gelu") {
      return errorf(ErrorCode::kUnsupported, "{}: classifier_activation: expected gelu, got {}",
                    source_.path().string(), function.dump());
    }
    const ConfigJson eps = config.value("norm_eps", ConfigJson(1e-5));
    return add_norm("head.norm", eps.is_number() ? eps.get<double>() : 1e-5);
  }

  // Replaces the rows for "yes" and "no" (Qwen3-Reranker) by their difference: its sigmoid is the
  // probability of "yes" in a softmax over both.
  void join_yes_and_no() {
    DenseModule& layer = head_.dense.back();
    const auto cols = static_cast<size_t>(layer.cols);
    for (size_t i = 0; i < cols; ++i) layer.weight[i] -= layer.weight[cols + i];
    layer.weight.resize(cols);
    layer.rows = 1;
    if (layer.bias.empty()) return;
    layer.bias = {layer.bias[0] - layer.bias[1]};
  }

  void read_labels(const ConfigJson& config) {
    const auto names = config.find("id2label");
    for (int i = 0; i < head_.n_classes(); ++i) {
      const std::string key = std::to_string(i);
      const bool named = names != config.end() && names->is_object() && names->contains(key) &&
                         (*names)[key].is_string();
      head_.labels.push_back(named ? (*names)[key].get<std::string>() : "LABEL_" + key);
    }
  }

  Status read_activation(const ConfigJson& config) {
    using Activation = ClassHead::Activation;
    head_.activation = head_.n_classes() == 1 ? Activation::kSigmoid : Activation::kSoftmax;
    const ConfigJson kind = config.value("problem_type", ConfigJson());
    if (kind == "regression") head_.activation = Activation::kNone;
    if (kind == "single_label_classification") head_.activation = Activation::kSoftmax;
    if (kind == "multi_label_classification") head_.activation = Activation::kSigmoid;
    ConfigJson named = config.value("sbert_ce_default_activation_function", ConfigJson());
    const auto sentence = config.find("sentence_transformers");
    if (sentence != config.end() && sentence->is_object())
      named = sentence->value("activation_fn", named);
    if (!named.is_string()) return {};
    const std::string function = named;
    if (function.ends_with(".Identity")) {
      head_.activation = Activation::kNone;
    } else if (function.ends_with(".Sigmoid")) {
      head_.activation = Activation::kSigmoid;
    } else if (function.ends_with(".Softmax")) {
      head_.activation = Activation::kSoftmax;
    } else {
      return errorf(ErrorCode::kUnsupported,
                    "{}: activation_fn: expected Identity, Sigmoid or Softmax, got {}",
                    source_.path().string(), function);
    }
    return {};
  }

  Result<bool> read_gguf() {
    if (source_.find("cls.output.weight") == nullptr && source_.find("cls.weight") == nullptr)
      return false;
    const ConfigJson& config = source_.config();
    const std::string arch = config.value("general.architecture", "");
    if (causal_) head_.pooling = Pooling::kLast;
    const auto function =
        arch == "modern-bert" ? DenseModule::Function::kGelu : DenseModule::Function::kTanh;
    int width = dim_;
    if (arch == "bert" && source_.find("cls.weight") == nullptr) {
      return errorf(
          ErrorCode::kUnsupported,
          "{}: cls.weight: the first layer of the classification head is missing (llama.cpp's "
          "converter leaves BERT's pooler out): open the Hugging Face directory",
          source_.path().string());
    }
    if (source_.find("cls.weight") != nullptr) {
      const bool last = source_.find("cls.output.weight") == nullptr;
      RETURN_IF_ERROR(add("cls", width, last ? DenseModule::Function::kNone : function));
      const ConfigJson eps = config.value(arch + ".attention.layer_norm_epsilon", ConfigJson(1e-5));
      RETURN_IF_ERROR(add_norm("cls.norm", eps.is_number() ? eps.get<double>() : 1e-5));
      width = head_.dense.back().rows;
    }
    if (source_.find("cls.output.weight") != nullptr)
      RETURN_IF_ERROR(add("cls.output", width, DenseModule::Function::kNone));
    ConfigJson labels = ConfigJson::object();
    const ConfigJson names = config.value(arch + ".classifier.output_labels", ConfigJson::array());
    for (size_t i = 0; names.is_array() && i < names.size(); ++i)
      labels[std::to_string(i)] = names[i];
    if (causal_ && names == ConfigJson::array({"yes", "no"}) && head_.n_classes() == 2)
      join_yes_and_no();
    read_labels({{"id2label", labels}});
    RETURN_IF_ERROR(read_activation(ConfigJson::object()));
    return true;
  }

  const WeightSource& source_;
  int dim_;
  bool causal_;
  const Tokenizer* tokenizer_;  // may be null
  ClassHead head_;
};

}  // namespace

Result<std::optional<ClassHead>> read_class_head(const WeightSource& source, int dim, bool causal,
                                                 const Tokenizer* tokenizer) {
  return HeadReader(source, dim, causal, tokenizer).read();
}

}  // namespace penstock
