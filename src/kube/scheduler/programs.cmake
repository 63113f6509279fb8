add_executable(aliquot-kube-scheduler scheduler/main.cpp)
target_link_libraries(aliquot-kube-scheduler PRIVATE aliquot_kube spdlog::spdlog)
target_compile_definitions(aliquot-kube-scheduler PRIVATE ALIQUOT_VERSION="${PROJECT_VERSION}")
# GCC 12 sees a null pointer in Asio's io_context that is never there.
set_source_files_properties(scheduler/main.cpp PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)
if(NOT CMAKE_UNITY_BUILD)
  set_source_files_properties(scheduler/service.cpp PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)
endif()
install(TARGETS aliquot-kube-scheduler DESTINATION sbin)
