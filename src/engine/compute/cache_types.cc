#include "engine/compute/cache_types.h"

namespace penstock {

Result<KvDType> kv_dtype(const std::string& name) {
  if (name == "auto" || name == "f16" || name == "fp16") return KvDType::kF16;
  if (name == "f32" || name == "fp32") return KvDType::kF32;
  if (name == "bf16") return KvDType::kBF16;
  if (name == "int8" || name == "i8") return KvDType::kI8;
  if (name == "int4" || name == "i4") return KvDType::kI4;
  if (name == "fp8" || name == "f8" || name == "fp8_e4m3") return KvDType::kF8;
  return errorf(ErrorCode::kInvalidArgument,
                "kv_cache_dtype: expected auto, f32, f16, bf16, int8, int4 or fp8, got '{}'", name);
}

Result<StateDType> state_dtype(const std::string& name) {
  if (name == "auto" || name == "float32" || name == "f32") return StateDType::kF32;
  if (name == "bfloat16" || name == "bf16") return StateDType::kBF16;
  return errorf(ErrorCode::kInvalidArgument,
                "mamba_ssm_cache_dtype: expected auto, float32 or bfloat16, got '{}'", name);
}

Result<CacheTypes> cache_types(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const KvDType kv, kv_dtype(config.kv_cache_dtype));
  ASSIGN_OR_RETURN(const StateDType states, state_dtype(config.mamba_ssm_cache_dtype));
  return CacheTypes(kv, states);
}

}  // namespace penstock
