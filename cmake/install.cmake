# What `cmake --install` lays down: the program, libsheaf (static and shared, made of all layers' objects, exporting
# what sheaf.h declares), sheaf.h, sheaf.pc, the licence.
include(GNUInstallDirs)

set(layer_objects)
foreach(layer base quant kernels comm onnx graph partition engine)
    list(APPEND layer_objects $<TARGET_OBJECTS:sheaf_${layer}>)
endforeach()

foreach(kind STATIC SHARED)
    string(TOLOWER sheaf_${kind} target)
    add_library(${target} ${kind} ${layer_objects})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME sheaf LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR})
    target_link_libraries(${target} PRIVATE sheaf_engine) # for what the layers need; their own objects are in already
endforeach()

# The prefix is worked out from where sheaf.pc lies, so that the installed tree can be moved.
file(RELATIVE_PATH SHEAF_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(JOIN MPI_C_LIBRARIES " " SHEAF_PC_MPI)
configure_file(${PROJECT_SOURCE_DIR}/cmake/sheaf.pc.in ${PROJECT_BINARY_DIR}/sheaf.pc @ONLY)

install(TARGETS sheaf_static sheaf_shared)
if(TARGET sheaf)
    install(TARGETS sheaf)
endif()
install(FILES runtime/engine/sheaf.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_BINARY_DIR}/sheaf.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
