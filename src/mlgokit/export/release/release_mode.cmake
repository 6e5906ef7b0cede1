# Builds of LLVM with the models in this folder, and without TensorFlow: cmake -C release_mode.cmake ...
# Written by `mlgokit export llvm`.
foreach(mlgokit_pair "InlinerSizeModel;LLVM_INLINER_MODEL_PATH" "RegAllocEvictModel;LLVM_RAEVICT_MODEL_PATH")
  list(GET mlgokit_pair 0 mlgokit_model)
  list(GET mlgokit_pair 1 mlgokit_path)
  string(TOUPPER ${mlgokit_model} mlgokit_upper)
  if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/${mlgokit_model}.o")
    set(LLVM_OVERRIDE_MODEL_HEADER_${mlgokit_upper} "${CMAKE_CURRENT_LIST_DIR}/${mlgokit_model}.h" CACHE FILEPATH "")
    set(LLVM_OVERRIDE_MODEL_OBJECT_${mlgokit_upper} "${CMAKE_CURRENT_LIST_DIR}/${mlgokit_model}.o" CACHE FILEPATH "")
  else()
    # LLVM would make one with TensorFlow.
    set(${mlgokit_path} "none" CACHE STRING "")
  endif()
endforeach()
# LLVM asks for TensorFlow's folder and links the runtime that it finds there: this one is empty.
set(TENSORFLOW_AOT_PATH "${CMAKE_CURRENT_LIST_DIR}/no_tensorflow" CACHE PATH "")
