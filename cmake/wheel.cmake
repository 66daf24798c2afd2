# What a wheel has beside the Python files, the module and the library (src/python): the models that the program falls back to,
# and what a C++ program needs that links the library (docs/guide/library.md).
include(CMakePackageConfigHelpers)
option(PENSTOCK_WHEEL_MODELS "The built-in models come with the wheel" ON)
if(PENSTOCK_WHEEL_MODELS)
  install(FILES models/penstock-stories-15m-q8_0.gguf models/penstock-stories-15m.md models/penstock-stories-1m-q8_0.gguf
    models/penstock-stories-1m.md DESTINATION penstock/models COMPONENT wheel)
endif()
set(PENSTOCK_WHEEL_LICENCES "" CACHE PATH "Licences of what is linked (tools/make_sbom.py)")
if(PENSTOCK_WHEEL_LICENCES)
  install(DIRECTORY ${PENSTOCK_WHEEL_LICENCES}/ DESTINATION penstock/licences COMPONENT wheel)
endif()
install(DIRECTORY include/penstock DESTINATION penstock/include COMPONENT wheel)
# The one header of others that the public ones include; one file, in the public domain.
find_path(PENSTOCK_EXPECTED_HEADER tl/expected.hpp REQUIRED)
install(FILES ${PENSTOCK_EXPECTED_HEADER}/tl/expected.hpp DESTINATION penstock/include/tl COMPONENT wheel)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/wheel/penstockConfig.cmake ${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake
  DESTINATION penstock/lib/cmake/penstock COMPONENT wheel)
