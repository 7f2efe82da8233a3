# nrl_plugin(my.c) or nrl_plugin(KIND algorithms NAME my SOURCES my.c other.c [LIBRARIES ...])
# builds the plugin <name>.so. COMPONENT NAME puts a plugin of the tree into another package than that of the
# program. Works in the tree and, through find_package(nrl), outside of it. Outside, the plugin is built in
# <build>/plugins/<kind>/, where NRL_PLUGIN_PATH=<build>/plugins finds it, and `cmake --install` copies it to
# <prefix>/NRL_PLUGIN_INSTALL_DIR/<kind>/.
# Without KIND, the kind is read from the sources (NRL_KIND_...).
# nrl_plugin_test(my [option=value ...]) adds a test that runs `nrl plugins test`; ctest runs it after
# enable_testing().
if(NOT DEFINED NRL_PLUGIN_SUBDIR)
  set(NRL_PLUGIN_SUBDIR lib/nrl)
endif()

# `cmake --install` puts plugins of other projects into this directory of the prefix, where an nrl of the same prefix finds
# them; an absolute path, such as that of `nrl plugins install`, works too.
set(NRL_PLUGIN_INSTALL_DIR ${NRL_PLUGIN_SUBDIR} CACHE STRING "where cmake --install puts nrl plugins")

function(nrl_plugin_kind out)
  set(folders "ALGORITHM=algorithms" "PARALLEL=parallel" "OPTIMIZER=optimizers" "BACKEND=backends"
              "COLLECTIVE=collectives" "LOGGER=loggers" "MODEL=models" "TOKENIZER=tokenizers" "TEMPLATE=templates"
              "DATASET=datasets" "FORMAT=formats" "ADAPTER=adapters" "FRONTEND=frontends" "STORE=stores"
              "SCHEDULE=schedules")
  foreach(source ${ARGN})
    file(STRINGS ${source} line REGEX "NRL_KIND_[A-Z]+" LIMIT_COUNT 1)
    if(line MATCHES "NRL_KIND_([A-Z]+)")
      list(FILTER folders INCLUDE REGEX "^${CMAKE_MATCH_1}=")
      string(REGEX REPLACE "^.*=" "" folder "${folders}")
      set(${out} ${folder} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "nrl_plugin: cannot find the kind (NRL_KIND_...) in ${ARGN}; pass KIND")
endfunction()

function(nrl_plugin)
  cmake_parse_arguments(P "" "KIND;NAME;COMPONENT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT P_SOURCES)
    set(P_SOURCES ${P_UNPARSED_ARGUMENTS})
  endif()
  if(NOT P_NAME)
    list(GET P_SOURCES 0 first)
    get_filename_component(P_NAME ${first} NAME_WE)
  endif()
  if(NOT P_KIND)
    nrl_plugin_kind(P_KIND ${P_SOURCES})
  endif()
  set(target nrl_${P_KIND}_${P_NAME})
  add_library(${target} MODULE ${P_SOURCES})
  set_property(GLOBAL PROPERTY nrl_plugin_${P_NAME} ${target})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${P_NAME} C_VISIBILITY_PRESET hidden
                        CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  if(TARGET libnrl)
    target_link_libraries(${target} PRIVATE libnrl nrl_base nrl_options ${P_LIBRARIES})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/lib/operations/include) # nrl/expr.h is inline
    target_link_options(${target} PRIVATE LINKER:--exclude-libs,libnrl_base.a)
    file(RELATIVE_PATH libraries /prefix/${NRL_PLUGIN_SUBDIR}/${P_KIND} /prefix/${CMAKE_INSTALL_LIBDIR})
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${NRL_PLUGIN_SUBDIR}/${P_KIND}
      INSTALL_RPATH "$ORIGIN/${libraries}")
    if(NOT P_COMPONENT)
      set(P_COMPONENT runtime)
    endif()
    install(TARGETS ${target} LIBRARY DESTINATION ${NRL_PLUGIN_SUBDIR}/${P_KIND} COMPONENT ${P_COMPONENT})
    set_property(GLOBAL APPEND_STRING PROPERTY nrl_manifest "${P_KIND}/${P_NAME}\n")
  else()
    target_link_libraries(${target} PRIVATE nrl::libnrl ${P_LIBRARIES})
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins/${P_KIND}
      INSTALL_RPATH_USE_LINK_PATH ON) # the libraries may be in another prefix
    install(TARGETS ${target} LIBRARY DESTINATION ${NRL_PLUGIN_INSTALL_DIR}/${P_KIND})
  endif()
endfunction()

function(nrl_plugin_test name)
  get_property(target GLOBAL PROPERTY nrl_plugin_${name})
  if(NOT target)
    message(FATAL_ERROR "nrl_plugin_test: there is no plugin '${name}'; call nrl_plugin first")
  endif()
  list(JOIN ARGN " " settings)
  string(STRIP "rules ${name} ${settings}" test) # set apart by its options
  add_test(NAME ${test}
           COMMAND nrl::nrl plugins test $<TARGET_FILE:${target}> ${ARGN})
endfunction()
