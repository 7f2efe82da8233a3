# The executor and its own tests are built everywhere. What runs the cuda backend's kernels as PTX needs
# nvcc, but no GPU: the same test sources as cuda.*, linked with other launches.
set(ptx_support ${PROJECT_SOURCE_DIR}/tests/support/ptx)
file(GLOB ptx_sources CONFIGURE_DEPENDS ${ptx_support}/*.cpp)
add_library(ptx_executor STATIC ${ptx_sources})
target_include_directories(ptx_executor PUBLIC ${ptx_support})
target_link_libraries(ptx_executor PRIVATE nrl_options)
# Integers wrap, sums are made as written; loops over lanes are worth vectors.
target_compile_options(ptx_executor PRIVATE -O3 -fwrapv -ffp-contract=off -fno-trapping-math)
set_target_properties(ptx_executor PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
file(GLOB ptx_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ptx/test_*.c)
foreach(file ${ptx_tests})
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "test_" "test_ptx." name ${name})
  target_link_libraries(${name} PRIVATE ptx_executor)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endforeach()
