// Fills a GemmKernels with the kernels of Simd S for every encoding in panel::All.

template <class S, class Q>
consteval GemmKernels::Int8Gemm int8_entry() {
  if constexpr (panel::Codes<Q>) {
    return &Int8Panel<S, Q>::gemm;
  } else {
    return nullptr;
  }
}

template <class S, class... Q>
consteval GemmKernels make_gemm_kernels(const char* name, std::tuple<Q...>*) {
  GemmKernels table{name, &quantize_activations<S>, {int8_entry<S, Q>()...}, {}};
  table.f32[static_cast<int>(QuantType::kF32)] = &FloatPanel<S, quant::F32>::gemm;
  table.f32[static_cast<int>(QuantType::kF16)] = &FloatPanel<S, quant::F16>::gemm;
  table.f32[static_cast<int>(QuantType::kBF16)] = &FloatPanel<S, quant::BF16>::gemm;
  table.few_panels[static_cast<int>(QuantType::kF32)] = &FloatPanel<S, quant::F32>::chains_gemm;
  table.few_panels[static_cast<int>(QuantType::kF16)] = &FloatPanel<S, quant::F16>::chains_gemm;
  table.few_panels[static_cast<int>(QuantType::kBF16)] = &FloatPanel<S, quant::BF16>::chains_gemm;
  table.f32[static_cast<int>(PanelType::kF8Row)] = &FloatPanel<S, panel::F8Row>::gemm;
  table.f32[static_cast<int>(PanelType::kF8G64)] = &FloatPanel<S, panel::F8Groups>::gemm;
  return table;
}
