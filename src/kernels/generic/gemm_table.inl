// Fills a GemmKernels with the kernels of Simd S, for every plan and encoding of panel::All.

template <class S, class Q, GemmPlan Plan>
consteval GemmKernels::Int8Gemm int8_entry() {
  constexpr bool kMultiplies =
      Plan.multiplies(panel_kind_of<Q>(false)) || Plan.multiplies(panel_kind_of<Q>(true));
  if constexpr (Plan.path == GemmPath::kInt8 && kMultiplies) {
    return &Int8Panel<S, Q>::template gemm<Plan>;
  } else {
    return nullptr;
  }
}

template <class S, class Q, GemmPlan Plan>
consteval GemmKernels::FloatGemm float_entry() {
  if constexpr (Plan.path == GemmPath::kF32 && Plan.multiplies(panel_kind_of<Q>(false))) {
    return &FloatPanel<S, Q>::template gemm<Plan>;
  } else {
    return nullptr;
  }
}

// The kernels of all plans for the encoding Q.
template <class S, class Q, const auto& Plans,
          class Index = std::make_index_sequence<std::size(Plans)>>
struct KernelsOfPlans;
template <class S, class Q, const auto& Plans, size_t... I>
struct KernelsOfPlans<S, Q, Plans, std::index_sequence<I...>> {
  static constexpr GemmKernels::Int8Gemm kInt8[] = {int8_entry<S, Q, Plans[I]>()...};
  static constexpr GemmKernels::FloatGemm kF32[] = {float_entry<S, Q, Plans[I]>()...};
};

template <class S, const auto& Plans, class... Q>
consteval GemmKernels make_gemm_kernels(const char* name, std::tuple<Q...>*) {
  GemmKernels table{name,
                    &quantize_activations<S>,
                    Plans,
                    {KernelsOfPlans<S, Q, Plans>::kInt8...},
                    {KernelsOfPlans<S, Q, Plans>::kF32...}};
  table.few_panels[static_cast<int>(QuantType::kF32)] = &FloatPanel<S, quant::F32>::chains_gemm;
  table.few_panels[static_cast<int>(QuantType::kF16)] = &FloatPanel<S, quant::F16>::chains_gemm;
  table.few_panels[static_cast<int>(QuantType::kBF16)] = &FloatPanel<S, quant::BF16>::chains_gemm;
  return table;
}
