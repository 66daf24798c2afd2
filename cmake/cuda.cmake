# The CUDA backend's kernels, src/ops/cuda/kernels/*.cu: by nvcc for GPUs, and by the C++ compiler for the emulated device that
# the tests run them on (docs/design/cuda.md).
#
# nvcc is called by rules of our own: this CMake knows neither C++20 for nvcc nor the architectures of its release, and would
# link whatever uses the library as CUDA programs. Without nvcc the program has no CUDA backend; all else is the same.
set(PENSTOCK_CUDA "AUTO" CACHE STRING "ON: fail without nvcc; OFF: never; AUTO: with nvcc if there is one")
# The backend cuda_emulated, for tests; it needs Boost.Context. Not cached: the same folder builds with tests and without.
if(NOT DEFINED PENSTOCK_CUDA_EMULATION)
  set(PENSTOCK_CUDA_EMULATION ${PENSTOCK_TESTS})
endif()
set(PENSTOCK_CUDA_ARCHITECTURES "80;90a" CACHE STRING "Compute capabilities to compile for")
# Not in cross builds, nor compiled with sanitizers, to which fibers look like one thread on a broken stack.
if(PENSTOCK_KERNELS_ONLY OR PENSTOCK_FUZZ OR (PENSTOCK_SANITIZE AND NOT PENSTOCK_PREBUILT))
  set(PENSTOCK_CUDA OFF)
  set(PENSTOCK_CUDA_EMULATION OFF)
endif()
if(NOT PENSTOCK_CUDA STREQUAL "OFF")
  set(cuda_cache "$ENV{PENSTOCK_CUDA_HOME}")
  if(NOT cuda_cache)  # where scripts/install_cuda puts it
    set(cuda_cache "$ENV{HOME}/.cache/penstock/cuda-13.0")
  endif()
  find_program(PENSTOCK_NVCC nvcc HINTS "${cuda_cache}/bin" "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  if(PENSTOCK_NVCC)
    file(REAL_PATH "${PENSTOCK_NVCC}" nvcc_path)
    get_filename_component(cuda_bin "${PENSTOCK_NVCC}" DIRECTORY)
    get_filename_component(cuda_home "${cuda_bin}" DIRECTORY)
    find_path(PENSTOCK_CUDA_INCLUDE cuda_runtime_api.h NO_DEFAULT_PATH
      HINTS "${cuda_home}/include" "${cuda_home}/targets/x86_64-linux/include")
    find_library(PENSTOCK_CUDART cudart_static NO_DEFAULT_PATH
      HINTS "${cuda_home}/lib64" "${cuda_home}/lib" "${cuda_home}/targets/x86_64-linux/lib")
  endif()
  if(PENSTOCK_NVCC AND PENSTOCK_CUDA_INCLUDE AND PENSTOCK_CUDART)
    message(STATUS "CUDA: ${PENSTOCK_NVCC}")
    set(PENSTOCK_HAS_CUDA ON)
  elseif(PENSTOCK_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PENSTOCK_CUDA=ON, but no nvcc with cuda_runtime_api.h and libcudart_static.a: scripts/install_cuda makes one")
  else()
    message(STATUS "CUDA: no nvcc, so no backend cuda (scripts/install_cuda makes one)")
  endif()
endif()

# An object of every kernel file, into `objects`; beside it NAME.ptxas, what the assembler says of registers, stacks and spills.
function(penstock_cuda_objects objects)
  set(architectures)
  foreach(architecture ${PENSTOCK_CUDA_ARCHITECTURES})
    list(APPEND architectures -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  set(nvcc ${PENSTOCK_NVCC} -std=c++20 -O3 -fmad=false ${architectures} -compress-mode=size -Xptxas -v -Xcompiler -fPIC
    -ccbin ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)
  set(made)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${PROJECT_BINARY_DIR}/cuda/${name}.ptxas DEPENDS ${source}
      COMMAND ${PROJECT_SOURCE_DIR}/cmake/run_nvcc.sh ${PROJECT_BINARY_DIR}/cuda/${name}.ptxas ${CCACHE_PROGRAM} ${nvcc} -c ${source}
        -o ${object} -MD -MF ${object}.d
      DEPFILE ${object}.d COMMENT "Compiling ${name}.cu for compute capabilities ${PENSTOCK_CUDA_ARCHITECTURES}" VERBATIM)
    list(APPEND made ${object})
  endforeach()
  set(${objects} ${made} PARENT_SCOPE)
endfunction()

# Adds to the layer ops what there is of CUDA here. Of layers that are linked as another build made them, what they may need.
function(penstock_add_cuda target folder)
  set(scope PUBLIC)
  if(PENSTOCK_PREBUILT)
    set(scope INTERFACE)
  endif()
  if(PENSTOCK_HAS_CUDA)
    target_link_libraries(${target} ${scope} ${PENSTOCK_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)
  endif()
  if(PENSTOCK_CUDA_EMULATION OR PENSTOCK_PREBUILT)
    find_library(PENSTOCK_BOOST_CONTEXT NAMES libboost_context.a boost_context)
    if(PENSTOCK_BOOST_CONTEXT)
      target_link_libraries(${target} ${scope} ${PENSTOCK_BOOST_CONTEXT})
    elseif(NOT PENSTOCK_PREBUILT)
      message(FATAL_ERROR "no Boost.Context for the tests' emulated device: run scripts/install_packages test")
    endif()
  endif()
  if(PENSTOCK_PREBUILT)
    return()
  endif()
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/kernels/*.cu)
  if(PENSTOCK_HAS_CUDA)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda)
    penstock_cuda_objects(objects ${kernels})
    file(GLOB runtime CONFIGURE_DEPENDS ${folder}/runtime/*.cc)
    target_sources(${target} PRIVATE ${objects} ${runtime})
    target_include_directories(${target} SYSTEM PRIVATE ${PENSTOCK_CUDA_INCLUDE})
    target_compile_definitions(${target} PRIVATE PENSTOCK_CUDA=1)
  endif()
  if(PENSTOCK_CUDA_EMULATION)
    file(GLOB emulation CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emulation/cuda/*.cc)
    set(wrapped)
    foreach(kernel ${kernels})
      get_filename_component(name ${kernel} NAME_WE)
      file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cuda/emulated_${name}.cc CONTENT "#include \"${kernel}\"\n")
      list(APPEND wrapped ${PROJECT_BINARY_DIR}/cuda/emulated_${name}.cc)
    endforeach()
    set_source_files_properties(${wrapped} ${emulation} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
      INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/tests)
    # `unroll`; and types of anonymous namespaces that are in no main file
    # A GPU faults on a load or store of 16 bytes that is not aligned: kernels trap on it here (SIGILL), with nothing to link.
    set_source_files_properties(${wrapped} PROPERTIES COMPILE_OPTIONS
      "-Wno-unknown-pragmas;-Wno-subobject-linkage;-fsanitize=alignment;-fsanitize-undefined-trap-on-error")
    target_sources(${target} PRIVATE ${emulation} ${wrapped})
    target_compile_definitions(${target} PRIVATE PENSTOCK_CUDA_EMULATION=1)
  endif()
endfunction()
