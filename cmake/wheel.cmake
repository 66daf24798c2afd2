# What a wheel has beside the Python files: the module (src/python), and the models that the program falls back to.
option(PENSTOCK_WHEEL_MODELS "The built-in models come with the wheel" ON)
if(PENSTOCK_WHEEL_MODELS)
  install(FILES models/penstock-stories-15m-q8_0.gguf models/penstock-stories-15m.md models/penstock-stories-1m-q8_0.gguf
    models/penstock-stories-1m.md DESTINATION penstock/models COMPONENT wheel)
endif()
