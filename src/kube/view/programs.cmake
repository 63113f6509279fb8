# What `aliquot status` and its like run to ask a cluster.
find_package(CLI11 REQUIRED)
add_executable(aliquot-kube view/main.cpp)
target_link_libraries(aliquot-kube PRIVATE aliquot_kube CLI11::CLI11)
target_compile_definitions(aliquot-kube PRIVATE ALIQUOT_VERSION="${PROJECT_VERSION}")
# GCC 12 sees a null pointer in CLI11's split(), and in Asio's io_context, that is never there.
set_source_files_properties(view/main.cpp view/questions.cpp PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)
install(TARGETS aliquot-kube DESTINATION libexec/aliquot)
