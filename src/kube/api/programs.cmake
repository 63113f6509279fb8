# The API server of the tests, for the unit tests of others as well.
add_library(aliquot_kube_fake STATIC EXCLUDE_FROM_ALL api/fake_api.cpp)
target_link_libraries(aliquot_kube_fake PUBLIC aliquot_kube)
aliquot_common_headers(aliquot_kube_fake library)
if(TARGET kube_test)
  target_link_libraries(kube_test PRIVATE aliquot_kube_fake OpenSSL::Crypto)
endif()
# GCC 12 sees a null pointer in Asio's io_context that is never there.
if(NOT CMAKE_UNITY_BUILD)
  set_source_files_properties(
    api/api_client.cpp api/events.cpp api/fake_api.cpp api/lease.cpp api/reflector.cpp
    PROPERTIES COMPILE_OPTIONS -Wno-null-dereference)
endif()
