"""Where a C++ program finds what this package has for it."""
from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """The folder of the headers `penstock/*.h`, for a compiler's -I."""
    return os.path.join(_PACKAGE, "include")


def get_cmake_dir() -> str:
    """The folder of the CMake package, for `-Dpenstock_DIR=`: `find_package(penstock)` gives the target `penstock::penstock`."""
    return os.path.join(_PACKAGE, "lib", "cmake", "penstock")
