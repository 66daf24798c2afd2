# The kernels of src/kernels/amx once more, over tiles in software (tests/emulation/amx), for tests: the table amx_emulated.
# Not cached: the same folder builds with tests and without. Not where all is compiled with sanitizers or for fuzzing.
if(NOT DEFINED PENSTOCK_AMX_EMULATION)
  set(PENSTOCK_AMX_EMULATION ${PENSTOCK_TESTS})
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" OR PENSTOCK_FUZZ OR PENSTOCK_SANITIZE OR PENSTOCK_PREBUILT)
  set(PENSTOCK_AMX_EMULATION OFF)
endif()

# To the layer kernels, in its folder.
function(penstock_add_amx_emulation target)
  set(amx ${CMAKE_CURRENT_SOURCE_DIR}/kernels/amx)
  set(tile_file ${PROJECT_SOURCE_DIR}/tests/emulation/amx/tile_file.cc)
  set(sources ${tile_file})
  foreach(name gemm attention)
    set(wrapped ${CMAKE_CURRENT_BINARY_DIR}/kernels/amx_emulated/${name}.cc)
    file(CONFIGURE OUTPUT ${wrapped} CONTENT "#include \"emulation/amx/tile_file.h\"\n#include \"kernels/amx/${name}.cc\"\n")
    list(APPEND sources ${wrapped})
  endforeach()
  # Without the -O3 of the real ones: the tiles take most of the time.
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS
    "-O2;-ffp-contract=off;-Wno-uninitialized;-Wno-maybe-uninitialized;${avx512bf16_flags};-fno-exceptions"
    SKIP_UNITY_BUILD_INCLUSION ON INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/tests)
  set_property(SOURCE ${tile_file} APPEND PROPERTY COMPILE_OPTIONS -O3)
  target_sources(${target} PRIVATE ${sources})
  # Of this file alone: the others' objects are the same with tests and without.
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/dispatch.cc PROPERTIES COMPILE_DEFINITIONS PENSTOCK_AMX_EMULATION=1)
endfunction()
