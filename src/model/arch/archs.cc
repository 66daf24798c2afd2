// The list of architectures. A new one is a declaration and a row.
#include "model/arch/archs.h"

#include <algorithm>

namespace penstock {

// Defined at the end of each architecture's file.
extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kMinistral3;
extern const Architecture kInternLm2;
extern const Architecture kXverse;
extern const Architecture kOrion;
extern const Architecture kBaichuan;
extern const Architecture kQwen;
extern const Architecture kMiniCpm;
extern const Architecture kDeepSeekMoe;
extern const Architecture kBailing;
extern const Architecture kOpenElm;
extern const Architecture kMuseGlimmer;
extern const Architecture kMuseSpark;
extern const Architecture kZaya;
extern const Architecture kRwkv6;
extern const Architecture kRwkv7;
extern const Architecture kDeci;
extern const Architecture kInternLm3;
extern const Architecture kIQuestCoder;
extern const Architecture kYoutu;
extern const Architecture kMiniCpm3;
extern const Architecture kNanoChat;
extern const Architecture kExaone;
extern const Architecture kGranite;
extern const Architecture kHyperClovaX;
extern const Architecture kMinistral;
extern const Architecture kCwm;
extern const Architecture kHelium;
extern const Architecture kNemotron;
extern const Architecture kJais2;
extern const Architecture kGlm;
extern const Architecture kChatGlm;
extern const Architecture kSmolLm3;
extern const Architecture kArcee;
extern const Architecture kArctic;
extern const Architecture kSeedOss;
extern const Architecture kErnie45;
extern const Architecture kApertus;
extern const Architecture kApertus15;
extern const Architecture kDiffLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen2Vl;
extern const Architecture kQwen3Vl;
extern const Architecture kGemma;
extern const Architecture kGemma2;
extern const Architecture kVaultGemma;
extern const Architecture kRecurrentGemma;
extern const Architecture kGemma3;
extern const Architecture kEmbeddingGemma;
extern const Architecture kGemma3n;
extern const Architecture kGemma4;
extern const Architecture kGemma4Unified;
extern const Architecture kPhi3;
extern const Architecture kOlmo2;
extern const Architecture kOlmo3;
extern const Architecture kOlmoHybrid;
extern const Architecture kExaone4;
extern const Architecture kGlm4;
extern const Architecture kGlm4v;
extern const Architecture kHunyuan;
extern const Architecture kCohere;
extern const Architecture kCohere2;
extern const Architecture kCohere2Moe;
extern const Architecture kCohereCompass;
extern const Architecture kLfm2;
extern const Architecture kLfm2Moe;
extern const Architecture kLfm3;
extern const Architecture kQwen3Next;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kQwen4;
extern const Architecture kKimiLinear;
extern const Architecture kBitnet;
extern const Architecture kFirstBitnet;
extern const Architecture kGptNeoX;
extern const Architecture kFalcon;
extern const Architecture kStableLm;
extern const Architecture kPlamo;
extern const Architecture kPlamo2;
extern const Architecture kPlamo3;
extern const Architecture kStarcoder2;
extern const Architecture kPhi2;
extern const Architecture kMpt;
extern const Architecture kBloom;
extern const Architecture kGpt2;
extern const Architecture kStarcoder;
extern const Architecture kGptJ;
extern const Architecture kCodeGen;
extern const Architecture kGptNeo;
extern const Architecture kPersimmon;
extern const Architecture kBioGpt;
extern const Architecture kXglm;
extern const Architecture kWhisper;
extern const Architecture kOpt;
extern const Architecture kOlmo;
extern const Architecture kMixtral;
extern const Architecture kDbrx;
extern const Architecture kAxk1;
extern const Architecture kAxk2;
extern const Architecture kLing3;
extern const Architecture kQwen3Moe;
extern const Architecture kGroveMoe;
extern const Architecture kQwen3VlMoe;
extern const Architecture kMellum;
extern const Architecture kFlint;
extern const Architecture kKolibri;
extern const Architecture kLara;
extern const Architecture kLaguna;
extern const Architecture kStep35;
extern const Architecture kMiMo2;
extern const Architecture kQwen2Moe;
extern const Architecture kGraniteMoe;
extern const Architecture kMiniMaxM2;
extern const Architecture kMiniMaxM3;
extern const Architecture kErnie45Moe;
extern const Architecture kPhiMoe;
extern const Architecture kDeepSeek2;
extern const Architecture kDeepSeek3;
extern const Architecture kGlm4MoeLite;
extern const Architecture kDeepSeek32;
extern const Architecture kGlmDsa;
extern const Architecture kDeepseek4;
extern const Architecture kGlm5Next;
extern const Architecture kLlama4;
extern const Architecture kGptOss;
extern const Architecture kGlm4Moe;
extern const Architecture kSarvamMoe;
extern const Architecture kBailing2;
extern const Architecture kMistral4;
extern const Architecture kMistralLarge4;
extern const Architecture kDots3Note;
extern const Architecture kSolarOpen;
extern const Architecture kDots1;
extern const Architecture kExaoneMoe;
extern const Architecture kHunyuanMoe;
extern const Architecture kHyV3;
extern const Architecture kHy4;
extern const Architecture kDory;
extern const Architecture kHrmText;
extern const Architecture kGrok;
extern const Architecture kInkling;
extern const Architecture kInkling2;
extern const Architecture kLongcat;
extern const Architecture kMiniMax01;
extern const Architecture kSmallThinker;
extern const Architecture kOlmoe;
extern const Architecture kFlexOlmo;
extern const Architecture kAfmoe;
extern const Architecture kGraniteSwa;
extern const Architecture kGraniteHybrid;
extern const Architecture kBamba;
extern const Architecture kMamba;
extern const Architecture kFalconMamba;
extern const Architecture kJamba;
extern const Architecture kMamba2;
extern const Architecture kNemotronH;
extern const Architecture kNemotronHMoe;
extern const Architecture kFalconH1;
extern const Architecture kZamba2;
extern const Architecture kBert;
extern const Architecture kRoberta;
extern const Architecture kDistilBert;
extern const Architecture kMpnet;
extern const Architecture kDebertaV2;
extern const Architecture kElectra;
extern const Architecture kLongformer;
extern const Architecture kJinaV2;
extern const Architecture kNeoBert;
extern const Architecture kAlbert;
extern const Architecture kJinaV3;
extern const Architecture kGte;
extern const Architecture kEuroBert;
extern const Architecture kNomicBert;
extern const Architecture kNomicBertMoe;
extern const Architecture kModernBert;

namespace {

// The first row with a matching name or type is used.
constexpr const Architecture* kArchitectures[] = {
    &kLlama,
    &kMistral,
    &kMinistral3,
    &kInternLm2,
    &kXverse,
    &kOrion,
    &kBaichuan,
    &kQwen,
    &kMiniCpm,
    &kDeepSeekMoe,
    &kBailing,
    &kOpenElm,
    &kMuseGlimmer,
    &kMuseSpark,
    &kZaya,
    &kRwkv6,
    &kRwkv7,
    &kDeci,
    &kInternLm3,
    &kIQuestCoder,
    &kYoutu,
    &kMiniCpm3,
    &kNanoChat,
    &kExaone,
    &kGranite,
    &kHyperClovaX,
    &kMinistral,
    &kCwm,
    &kHelium,
    &kNemotron,
    &kJais2,
    &kGlm,
    &kChatGlm,
    &kSmolLm3,
    &kArcee,
    &kSeedOss,
    &kErnie45,
    &kApertus,
    &kApertus15,
    &kDiffLlama,
    &kQwen2,
    &kQwen3,
    &kQwen2Vl,
    &kQwen3Vl,
    &kGemma,
    &kGemma2,
    &kVaultGemma,
    &kRecurrentGemma,
    &kGemma3,
    &kEmbeddingGemma,
    &kGemma3n,
    &kGemma4,
    &kGemma4Unified,
    &kPhi3,
    &kOlmo2,
    &kOlmo3,
    &kOlmoHybrid,
    &kExaone4,
    &kGlm4,
    &kGlm4v,
    &kHunyuan,
    &kCohere,
    &kCohere2,
    &kCohere2Moe,
    &kCohereCompass,
    &kLfm2,
    &kLfm2Moe,
    &kLfm3,
    &kQwen3Next,
    &kQwen35,
    &kQwen35Moe,
    &kQwen4,
    &kKimiLinear,
    &kBitnet,
    &kFirstBitnet,
    // Decoders with layer norms, as they were before Llama.
    &kGptNeoX,
    &kFalcon,
    &kStableLm,
    &kPlamo,
    &kPlamo2,
    &kPlamo3,
    &kStarcoder2,
    &kPhi2,
    &kMpt,
    &kBloom,
    &kGpt2,
    &kStarcoder,
    &kGptJ,
    &kCodeGen,
    &kGptNeo,
    &kPersimmon,
    &kBioGpt,
    &kXglm,
    &kOpt,
    &kOlmo,
    // Decoders with experts.
    &kMixtral,
    &kDbrx,
    &kQwen3Moe,
    &kGroveMoe,
    &kQwen3VlMoe,
    &kMellum,
    &kFlint,
    &kKolibri,
    &kLara,
    &kLaguna,
    &kStep35,
    &kMiMo2,
    &kQwen2Moe,
    &kGraniteMoe,
    &kMiniMaxM2,
    &kMiniMaxM3,
    &kErnie45Moe,
    &kPhiMoe,
    &kDeepSeek2,
    &kDeepSeek3,
    &kDeepSeek32,
    &kGlmDsa,
    &kDeepseek4,
    &kGlm5Next,
    &kGlm4MoeLite,
    &kAxk1,
    &kAxk2,
    &kLing3,
    &kLlama4,
    &kGptOss,
    &kGlm4Moe,
    &kSarvamMoe,
    &kBailing2,
    &kMistral4,
    &kMistralLarge4,
    &kDots3Note,
    &kSolarOpen,
    &kDots1,
    &kExaoneMoe,
    &kHunyuanMoe,
    &kHyV3,
    &kHy4,
    &kArctic,
    &kDory,
    &kHrmText,
    &kGrok,
    &kInkling,
    &kInkling2,
    &kLongcat,
    &kMiniMax01,
    &kSmallThinker,
    &kOlmoe,
    &kFlexOlmo,
    &kAfmoe,
    &kGraniteSwa,
    // Decoders beside an encoder.
    &kWhisper,
    // Decoders with scans of Mamba 2.
    &kGraniteHybrid,
    &kBamba,
    &kMamba,
    &kFalconMamba,
    &kJamba,
    &kMamba2,
    &kNemotronH,
    &kNemotronHMoe,
    &kFalconH1,
    &kZamba2,
    // Encoders.
    &kBert,
    &kRoberta,
    &kDistilBert,
    &kMpnet,
    &kDebertaV2,
    &kElectra,
    &kLongformer,
    &kAlbert,
    &kJinaV2,
    &kNeoBert,
    &kJinaV3,
    &kGte,
    &kEuroBert,
    &kNomicBert,
    &kNomicBertMoe,
    &kModernBert,
};

}  // namespace

float hf_norm_less(const Architecture& architecture, const TensorName& name) {
  if (&name == &tensor::kAttnPostNorm) return architecture.hf_attn_post_less;
  return &name == &tensor::kFfnPostNorm ? architecture.hf_ffn_post_less : 1.0f;
}

std::span<const Architecture* const> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : *found;
}

}  // namespace penstock
