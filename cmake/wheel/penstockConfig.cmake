# find_package(penstock) gives penstock::penstock: the headers penstock/*.h and the library of this Python package.
get_filename_component(package "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(penstock::penstock SHARED IMPORTED)
set_target_properties(penstock::penstock PROPERTIES
  IMPORTED_LOCATION "${package}/lib/libpenstock.so"
  INTERFACE_INCLUDE_DIRECTORIES "${package}/include"
  INTERFACE_COMPILE_FEATURES cxx_std_20)
unset(package)
