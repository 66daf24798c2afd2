// THE list of encoders.
#include "model/arch/archs.h"
#include "model/arch/hf_defaults.h"

namespace penstock {

// All in bert.cc.
void configure_bert(ConfigReader&, ModelConfig&);
void configure_roberta(ConfigReader&, ModelConfig&);
void configure_nomic_bert(ConfigReader&, ModelConfig&);
void configure_modern_bert(ConfigReader&, ModelConfig&);
void configure_electra(ConfigReader&, ModelConfig&);
void configure_jina_v3(ConfigReader&, ModelConfig&);
void configure_gte(ConfigReader&, ModelConfig&);
void configure_eurobert(ConfigReader&, ModelConfig&);
void distilbert_names(NameTable&, const ModelConfig&);
void jina_v3_names(NameTable&, const ModelConfig&);
void gte_names(NameTable&, const ModelConfig&);
void bert_names(NameTable&, const ModelConfig&);
void bert_gguf_names(NameTable&, const ModelConfig&);
void nomic_bert_names(NameTable&, const ModelConfig&);
void modern_bert_names(NameTable&, const ModelConfig&);
void modern_bert_gguf_names(NameTable&, const ModelConfig&);

namespace {

constexpr std::string_view kBert[] = {"bert", "BertModel"};
constexpr std::string_view kRoberta[] = {"roberta", "RobertaModel", "xlm-roberta", "camembert"};
constexpr std::string_view kNomicBert[] = {"nomic_bert", "NomicBertModel"};
constexpr std::string_view kModernBert[] = {"modernbert", "ModernBertModel"};

constexpr std::string_view kDistilBert[] = {"distilbert", "DistilBertModel"};
constexpr std::string_view kElectra[] = {"electra", "ElectraModel"};
constexpr std::string_view kJinaV3[] = {"jina_embeddings_v3", "JinaEmbeddingsV3Model"};
constexpr std::string_view kGte[] = {"gte", "GteModel"};
constexpr std::string_view kEuroBert[] = {"eurobert", "EuroBertModel"};

constexpr Architecture kEncoders[] = {
    {.name = "bert",
     .hf_types = kBert,
     .configure = configure_bert,
     .hf_names = bert_names,
     .forward = bert_forward,
     .hf_defaults = kBertDefaults,
     .gguf_names = bert_gguf_names},
    {.name = "roberta",
     .hf_types = kRoberta,
     .configure = configure_roberta,
     .hf_names = bert_names,
     .forward = bert_forward,
     .hf_defaults = kBertDefaults,
     .gguf_names = bert_gguf_names},
    {.name = "distilbert",
     .hf_types = kDistilBert,
     .configure = configure_bert,
     .hf_names = distilbert_names,
     .forward = bert_forward,
     .hf_defaults = kDistilBertDefaults,
     .hf_aliases = kDistilBertAliases,
     .gguf_names = bert_gguf_names},
    {.name = "electra",
     .hf_types = kElectra,
     .configure = configure_electra,
     .hf_names = bert_names,
     .forward = bert_forward,
     .hf_defaults = kElectraDefaults,
     .gguf_names = bert_gguf_names},
    {.name = "jina-v3",
     .hf_types = kJinaV3,
     .configure = configure_jina_v3,
     .hf_names = jina_v3_names,
     .forward = bert_forward,
     .hf_defaults = kJinaV3Defaults,
     .gguf_names = bert_gguf_names},
    {.name = "gte",
     .hf_types = kGte,
     .configure = configure_gte,
     .hf_names = gte_names,
     .forward = bert_forward,
     .hf_defaults = kGteDefaults,
     .gguf_names = bert_gguf_names},
    {.name = "eurobert",
     .hf_types = kEuroBert,
     .configure = configure_eurobert,
     .forward = decoder_forward,
     .hf_defaults = kEuroBertDefaults},
    {.name = "nomic-bert",
     .hf_types = kNomicBert,
     .configure = configure_nomic_bert,
     .hf_names = nomic_bert_names,
     .forward = bert_forward,
     .hf_defaults = kNomicBertDefaults,
     .hf_aliases = kNomicBertAliases,
     .gguf_names = bert_gguf_names},
    {.name = "modern-bert",
     .hf_types = kModernBert,
     .configure = configure_modern_bert,
     .hf_names = modern_bert_names,
     .forward = decoder_forward,
     .hf_defaults = kModernBertDefaults,
     .hf_aliases = kModernBertAliases,
     .gguf_names = modern_bert_gguf_names},
};

}  // namespace

std::span<const Architecture> encoder_architectures() { return kEncoders; }

}  // namespace penstock
