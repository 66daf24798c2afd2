# penstock_library(NAME DEPS... ): a static library of every .cc file in this folder (and of the SUBDIRS given; *: of all).
# Sources are globbed, so a new file needs no edit here. DEPS must agree with the layer table (tools/check_layers.py).
#
# With PENSTOCK_PREBUILT, the folder of another build, only PENSTOCK_SANITIZE_LAYERS are compiled; the others are
# linked from there as they are (scripts/sanitize: sanitizers multiply the time that a file takes to compile).
add_library(penstock_flags INTERFACE)
target_compile_options(penstock_flags INTERFACE $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra>
  $<BUILD_INTERFACE:-Wno-missing-field-initializers>)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # As on x86-64: plain char is signed, and a product and a sum are two roundings where the source does not say fma.
  target_compile_options(penstock_flags INTERFACE $<BUILD_INTERFACE:-fsigned-char> $<BUILD_INTERFACE:-ffp-contract=off>)
endif()
target_compile_features(penstock_flags INTERFACE cxx_std_20)
target_include_directories(penstock_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_property(GLOBAL APPEND PROPERTY PENSTOCK_LAYERS penstock_flags)
if(PENSTOCK_SANITIZE)
  string(REPLACE ";" "," _san "${PENSTOCK_SANITIZE}")
  target_compile_options(penstock_flags INTERFACE -fsanitize=${_san} -fno-omit-frame-pointer)
  target_link_options(penstock_flags INTERFACE -fsanitize=${_san})
endif()
if(PENSTOCK_FUZZ)
  target_compile_options(penstock_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Headers and templates take most of the time of compiling a file; files compiled together share it. Files with options of
# their own, such as the kernels of one instruction set, stay alone (docs/adr/0009-files-compiled-together.md).
function(penstock_compile_together target)
  if(PENSTOCK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    # Types of anonymous namespaces are no longer in a main file, for which alone g++ has no objection; and where more is inlined,
    # it takes Asio's memory of coroutines for mismatched and appended strings for overlapping.
    target_compile_options(${target} PRIVATE
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-mismatched-new-delete;-Wno-restrict>")
  endif()
endfunction()

function(penstock_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LINK;SUBDIRS;WITHOUT" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  foreach(file ${ARG_WITHOUT})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  endforeach()
  foreach(sub ${ARG_SUBDIRS})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${sub}/*.cc)
    list(APPEND sources ${more})
  endforeach()
  set(target penstock_${name})
  if(sources AND PENSTOCK_PREBUILT AND NOT name IN_LIST PENSTOCK_SANITIZE_LAYERS)
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${PENSTOCK_PREBUILT}/src/lib${target}.a)
    set(scope INTERFACE)
  elseif(sources)
    add_library(${target} STATIC ${sources})
    penstock_compile_together(${target})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} penstock_flags)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} ${scope} penstock_${dep})
  endforeach()
  target_link_libraries(${target} ${scope} ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_LAYERS ${target})
endfunction()
