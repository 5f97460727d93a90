# sheaf_layer(NAME FOLDER DEPENDS...): the library sheaf_NAME from FOLDER's sources. Its headers are included as
# "NAME/header.h", and only by targets that link it: the include path is a folder of the build tree that holds nothing
# but a link to FOLDER, so an include of a higher layer does not compile.
function(sheaf_layer name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    set(view ${PROJECT_BINARY_DIR}/include/${name})
    file(MAKE_DIRECTORY ${view})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${view}/${name} SYMBOLIC)
    if(NOT sources) # a layer that has no code yet is still a library
        set(sources ${view}/empty.c)
        file(WRITE ${sources} "")
    endif()
    add_library(sheaf_${name} STATIC ${sources})
    set_target_properties(sheaf_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE C)
    target_include_directories(sheaf_${name} PUBLIC ${view})
    target_link_libraries(sheaf_${name} PRIVATE sheaf_flags)
    foreach(lower ${ARGN})
        target_link_libraries(sheaf_${name} PUBLIC sheaf_${lower})
    endforeach()
endfunction()
