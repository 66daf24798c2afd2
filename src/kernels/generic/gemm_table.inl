// Fills a GemmKernels with the kernels of Simd S for every encoding in quant::All.

template <class S, class Q>
consteval GemmKernels::Int8Gemm int8_entry() {
  // TQ1_0 is laid out as TQ2_0.
  if constexpr (quant::IntegerCoded<Q> && Q::kType != QuantType::kTQ1_0) {
    return &Int8Panel<S, Q>::gemm;
  } else {
    return nullptr;
  }
}

template <class S, class... Q>
consteval GemmKernels make_gemm_kernels(const char* name, std::tuple<Q...>*) {
  GemmKernels table{name, &quantize_activations<S>, {int8_entry<S, Q>()...}, {}};
  table.f32[static_cast<int>(QuantType::kF32)] = &FloatPanel<S, QuantType::kF32>::gemm;
  table.f32[static_cast<int>(QuantType::kF16)] = &FloatPanel<S, QuantType::kF16>::gemm;
  table.f32[static_cast<int>(QuantType::kBF16)] = &FloatPanel<S, QuantType::kBF16>::gemm;
  return table;
}
