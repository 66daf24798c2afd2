# Instruction-set flags belong to the files of one ISA folder and to nothing else; never -march=native.
# penstock_kernels(FOLDER PROCESSORS FLAGS...): a row per folder. Only where the processor that is compiled for matches
# PROCESSORS, a regular expression, may it be able to run them.
macro(penstock_kernels folder processors)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(${processors})$")
    list(APPEND PENSTOCK_KERNEL_FOLDERS ${folder})
    set(${folder}_flags ${ARGN})
  endif()
endmacro()

# With sanitizers these files, all of whose loops are unrolled, would compile for minutes each; the scalar ones have them.
if(PENSTOCK_SANITIZE)
  set(plain -fno-sanitize=all)
endif()

penstock_kernels(pack .*)
penstock_kernels(scalar .*)
penstock_kernels(avx2 "x86_64|AMD64" -mavx2 -mfma -mf16c -mbmi2 ${plain})
penstock_kernels(avxvnni "x86_64|AMD64" ${avx2_flags} -mavxvnni)
penstock_kernels(avx512 "x86_64|AMD64" ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq
  -mprefer-vector-width=512 -mavx512vnni -mavx512vbmi -mavx512vbmi2)
penstock_kernels(avx512bf16 "x86_64|AMD64" ${avx512_flags} -mavx512bf16)
penstock_kernels(amx "x86_64|AMD64" ${avx512bf16_flags} -mamx-tile -mamx-int8 -mamx-bf16 -fno-exceptions)
# The scheduler that runs before registers are given out makes g++ 12 spill three times as many vectors here, for which it
# compiles twice as long.
penstock_kernels(neon "aarch64|arm64" -fno-schedule-insns)
penstock_kernels(neondot "aarch64|arm64" ${neon_flags} -march=armv8.2-a+dotprod)

# g++ 12 warns of uninitialized values inside its own AVX-512 headers.
function(penstock_kernel_flags)
  foreach(folder ${PENSTOCK_KERNEL_FOLDERS})
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${folder}/*.cc)
    set_source_files_properties(${files} TARGET_DIRECTORY penstock_kernels PROPERTIES COMPILE_OPTIONS
      "-O3;-ffp-contract=off;-Wno-uninitialized;-Wno-maybe-uninitialized;${${folder}_flags}")
  endforeach()
endfunction()
