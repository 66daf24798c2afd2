// THE list of encoders.
#include "model/arch/archs.h"
#include "model/arch/hf_defaults.h"

namespace penstock {

// All in bert.cc.
void configure_bert(ConfigReader&, ModelConfig&);
void configure_roberta(ConfigReader&, ModelConfig&);
void configure_nomic_bert(ConfigReader&, ModelConfig&);
void configure_modern_bert(ConfigReader&, ModelConfig&);
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
