# Instruction-set flags belong to the files of one ISA folder and to nothing else; never -march=native.
# PENSTOCK_ISA_FOLDERS: the folders whose kernels the processor that is compiled for may be able to run.
set(PENSTOCK_avx2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
# With sanitizers these files, all of whose loops are unrolled, would compile for minutes each; the scalar ones have them.
if(PENSTOCK_SANITIZE)
  list(APPEND PENSTOCK_avx2_FLAGS -fno-sanitize=all)
endif()
set(PENSTOCK_avxvnni_FLAGS ${PENSTOCK_avx2_FLAGS} -mavxvnni)
set(PENSTOCK_avx512_FLAGS ${PENSTOCK_avx2_FLAGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
  -mavx512vnni -mavx512vbmi -mavx512vbmi2)
set(PENSTOCK_amx_FLAGS ${PENSTOCK_avx512_FLAGS} -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16 -fno-exceptions)
# The scheduler that runs before registers are given out makes g++ 12 spill three times as many vectors here, for which it
# compiles twice as long.
set(PENSTOCK_neon_FLAGS -fno-schedule-insns)
set(PENSTOCK_neondot_FLAGS ${PENSTOCK_neon_FLAGS} -march=armv8.2-a+dotprod)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(PENSTOCK_ISA_FOLDERS avx2 avxvnni avx512 amx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(PENSTOCK_ISA_FOLDERS neon neondot)
else()
  set(PENSTOCK_ISA_FOLDERS)
endif()

# g++ 12 warns of uninitialized values inside its own AVX-512 headers.
function(penstock_kernel_flags)
  foreach(folder scalar ${PENSTOCK_ISA_FOLDERS})
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${folder}/*.cc)
    set_source_files_properties(${files} TARGET_DIRECTORY penstock_kernels PROPERTIES COMPILE_OPTIONS
      "-O3;-ffp-contract=off;-Wno-uninitialized;-Wno-maybe-uninitialized;${PENSTOCK_${folder}_FLAGS}")
  endforeach()
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/panel_pack.cc TARGET_DIRECTORY penstock_kernels
    PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off;-Wno-uninitialized;-Wno-maybe-uninitialized")
endfunction()
