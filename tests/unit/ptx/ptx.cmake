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

if(NOT TARGET nrl_backends_cuda)
  return()
endif()
# nvcc's text, of the newest architecture that is shipped as such.
set(ptx_folder ${PROJECT_BINARY_DIR}/tests/ptx)
file(MAKE_DIRECTORY ${ptx_folder})
set(ptx_texts)
foreach(file ${cuda_kernels})
  get_filename_component(name ${file} NAME_WE)
  set(text ${ptx_folder}/${name}.ptx)
  add_custom_command(OUTPUT ${text}
    COMMAND ${CMAKE_CUDA_COMPILER} -ptx -std=c++17 -O3 -arch=compute_90 -I${cuda_folder}
            -I${PROJECT_SOURCE_DIR}/core/include -I${PROJECT_SOURCE_DIR}/lib/operations/include -MD -MF ${text}.d -o ${text} ${file}
    DEPENDS ${file} DEPFILE ${text}.d COMMENT "PTX of ${name}.cu")
  list(APPEND ptx_texts ${text})
endforeach()
add_custom_target(cuda_ptx_texts ALL DEPENDS ${ptx_texts})

set(ptx_host ${cuda_host})
list(FILTER ptx_host EXCLUDE REGEX "/pool(_table)?\\.c$") # exact_pool.c stands for it
add_library(cuda_ptx OBJECT ${ptx_host} ${cuda_kernels} ${cuda_support}/fake_driver.c ${cuda_support}/fake_queue.c
            ${cuda_support}/fake_library.c ${cuda_support}/emulator.cpp ${ptx_support}/host/launcher.cpp
            ${ptx_support}/host/exact_pool.c)
add_dependencies(cuda_ptx cuda_ptx_texts)
target_include_directories(cuda_ptx BEFORE PUBLIC ${ptx_support}/host)
target_include_directories(cuda_ptx PUBLIC ${cuda_folder} ${cuda_folder}/ops ${cuda_support} ${ptx_support}
                           ${PROJECT_SOURCE_DIR}/core/include ${PROJECT_SOURCE_DIR}/lib/operations/include)
target_compile_definitions(cuda_ptx PRIVATE PTX_FOLDER="${ptx_folder}")
target_link_libraries(cuda_ptx PRIVATE nrl_options)
# Bodies of kernels are compiled and never run; no two may become one, their addresses are names.
target_compile_options(cuda_ptx PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-O1 -fno-ipa-icf -Wno-unused-parameter -Wno-unused-function -Wno-unknown-pragmas>)
# dladdr has to find the names of kernels.
set_target_properties(cuda_ptx PROPERTIES C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET default)

add_library(cuda_ptx_plugin MODULE $<TARGET_OBJECTS:cuda_ptx>)
target_link_libraries(cuda_ptx_plugin PRIVATE ptx_executor libnrl nrl_options Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(cuda_ptx_plugin PRIVATE -Wl,--wrap=cuda_scratch)
set_target_properties(cuda_ptx_plugin PROPERTIES PREFIX "" OUTPUT_NAME cuda LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/ptx/backends)
add_test(NAME conformance.backends.cuda.ptx COMMAND nrl plugins test $<TARGET_FILE:cuda_ptx_plugin>)
nrl_test_environment(conformance.backends.cuda.ptx)

set(ptx_programs kernels head attention gemm_group)
if(NRL_CUDNN_HEADERS)
  list(APPEND ptx_programs dnn)
endif()
foreach(name ${ptx_programs})
  nrl_test(cuda.${name}.ptx ${CMAKE_CURRENT_SOURCE_DIR}/cuda/test_${name}.c ${ptx_support}/host/exact_heap.c
           $<TARGET_OBJECTS:cuda_ptx>)
  target_link_libraries(test_cuda.${name}.ptx PRIVATE ptx_executor ${CMAKE_DL_LIBS})
  target_include_directories(test_cuda.${name}.ptx PRIVATE ${cuda_folder} ${cuda_support} ${ptx_support})
  target_link_options(test_cuda.${name}.ptx PRIVATE -Wl,--wrap=cuda_scratch -Wl,--wrap=malloc -Wl,--wrap=calloc
                      -Wl,--wrap=aligned_alloc -Wl,--wrap=free)
  set_target_properties(test_cuda.${name}.ptx PROPERTIES LINKER_LANGUAGE CXX ENABLE_EXPORTS ON)
endforeach()
if(NRL_CUDNN_HEADERS)
  target_sources(test_cuda.dnn.ptx PRIVATE ${cuda_folder}/library_dnn_graph.c ${cuda_folder}/library_dnn_attention.c
                 ${cuda_support}/fake_cudnn.c)
  target_include_directories(test_cuda.dnn.ptx SYSTEM PRIVATE ${NRL_CUDNN_HEADERS} ${NRL_CUDA_HEADERS})
endif()
