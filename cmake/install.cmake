# Installation, in components (cmake --install BUILD --component NAME; without one all of them):
#   program   penstock, stripped, with the models it falls back to
#   debug     its debug information, in a file beside it that debuggers find
#   models    all of models/
#   library   include/penstock, static libraries without debug information, and a CMake package: find_package(penstock).
#             They need neither Boost nor prometheus nor libcurl: what serves and downloads stays in the program. OpenSSL is for
#             SHA-256 (identities of pictures, salts of the prefix cache) and for a Redis that is reached by TLS.
include(CMakePackageConfigHelpers)

set(models ${CMAKE_INSTALL_DATADIR}/penstock/models)
install(TARGETS penstock RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES models/penstock-stories-15m-q8_0.gguf models/penstock-stories-15m.md models/penstock-stories-1m-q8_0.gguf
  models/penstock-stories-1m.md models/penstock-scenes-3m-q8_0.gguf models/mmproj-penstock-scenes-3m-f16.gguf
  models/penstock-scenes-3m.md DESTINATION ${models} COMPONENT program)
install(DIRECTORY models/penstock-stories-15m-medusa DESTINATION ${models} COMPONENT program)
install(DIRECTORY models/ DESTINATION ${models} COMPONENT models)

# The build has taken the debug information apart (src/CMakeLists.txt); the installed program has no symbols either.
set(installed_program "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}")
install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-all \"${installed_program}/penstock\" COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT program)
install(FILES ${PROJECT_BINARY_DIR}/penstock.debug DESTINATION ${CMAKE_INSTALL_BINDIR}/.debug COMPONENT debug OPTIONAL)

get_property(layers GLOBAL PROPERTY PENSTOCK_LAYERS)
list(REMOVE_ITEM layers penstock_hub penstock_quantize penstock_server)
add_library(penstock_api INTERFACE)
target_link_libraries(penstock_api INTERFACE penstock_frontend)
set_target_properties(penstock_api PROPERTIES EXPORT_NAME penstock)
set(archives ${CMAKE_INSTALL_LIBDIR}/penstock)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)
install(TARGETS ${layers} penstock_api EXPORT penstockTargets ARCHIVE DESTINATION ${archives} COMPONENT library)
install(CODE "file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${archives}/*.a\")
execute_process(COMMAND ${CMAKE_STRIP} --strip-debug \${archives} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT library)
install(DIRECTORY include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(EXPORT penstockTargets NAMESPACE penstock:: DESTINATION ${package} COMPONENT library)
configure_package_config_file(cmake/penstockConfig.cmake.in ${PROJECT_BINARY_DIR}/penstockConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/penstockConfig.cmake ${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake
  DESTINATION ${package} COMPONENT library)
